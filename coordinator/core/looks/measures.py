"""Measures a group: the numbers of its records and members for the coordinator's metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

from coordinator.config.group_keys import IN_FLIGHT, RATE
from coordinator.core.flow import flow_of
from coordinator.core.isolation import Stage, stage_of
from coordinator.core.looks.description import awaited, describe_counts, slowed_queries, state_of
from coordinator.core.looks.ending_queries import shown
from coordinator.core.members import AcquiredPlan
from coordinator.core.record_state import HELD
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition, lag_of
from coordinator.protocol.messages import GroupRequest, RecordCounts

MOST_ISOLATED = 10_000
"""Up to this many quarantined runs are counted in each partition."""
MOST_SLICED = 4_000
"""A group's SLICED records are counted among the first runs of its partitions, up to this many in all, which takes some
milliseconds. A run that fails holds back its partition's start offset, so it is among the first."""
MOST_LOOKED_AT = 10_000
"""The search for a held run of a plan stops after this many runs, some milliseconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionMeasures:
    """The numbers of one share partition. ``in_flight``: records of the window that are neither ACKNOWLEDGED nor
    ARCHIVED. ``runs``: the runs of the window. ``delivery_complete``: terminal records of the window, which the lag
    leaves out (KIP-1226)."""

    topic: str
    partition: int
    start_offset: int
    in_flight: int
    runs: int
    acquired: int
    archiving: int
    delivery_complete: int

    def lag(self, end: int) -> int:
        """Records up to the log's ``end`` that are not delivered to completion."""
        return lag_of(end, self.start_offset, self.delivery_complete)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupMeasures:
    """The numbers of a group.

    members: how many (queries, ShareConsumers) have a session.
    oldest_ms: for how long the oldest acquired record has been held; 0 if no record is held.
    isolated: the number of records by stage of isolation; SLICED records are counted among MOST_SLICED runs.
    slowed: how many queries with a session have an open breaker on releases, while records are in flight.
    ending: how many queries ended with a named error, or keep ending, by error; an empty one for those without.
    waiting: in an ordered group, how many share partitions wait for a record that nobody holds, or that is delivered
        alone. longest_wait_ms: the longest of these waits, as far as the times of their begins are known.
    records: what became of the records of all share partitions that the group has or had.
    paused: the group's topics of which nothing is acquired.
    limits: the keys of the group's rate and of its limit of records in flight, and whether each is used up.
    """

    state: str
    read_committed: bool
    members: tuple[int, int]
    oldest_ms: int
    isolated: Mapping[Stage, int]
    slowed: int
    ending: Mapping[str, int]
    waiting: int
    longest_wait_ms: int
    records: RecordCounts
    partitions: tuple[PartitionMeasures, ...]
    paused: tuple[str, ...]
    limits: Mapping[str, bool]


class MeasureGroup(GroupRequest[GroupMeasures], frozen=True):
    """Asks for the group's :class:`GroupMeasures`."""


def measure_group(group: ShareGroup, command: MeasureGroup, now_ms: int) -> GroupMeasures:
    """The numbers of the group as it is now."""
    active = [member.query for member in group.members.values() if member.active]
    current = set(group.topics.values())
    partitions = [partition for key, partition in sorted(group.partitions.items()) if key.topic_id in current]
    waits = [wait for p in partitions if (wait := awaited(group, p, now_ms)) and not wait.is_in_batch]
    limits = {RATE: group.config.share_max_records_per_second, IN_FLIGHT: group.config.share_max_in_flight_records}
    used_up = flow_of(group, now_ms).limited_by
    return GroupMeasures(
        state=state_of(group),
        read_committed=group.config.share_isolation_level == "read_committed",
        members=(sum(active), len(active) - sum(active)),
        oldest_ms=_oldest_ms(group, now_ms),
        isolated=_isolated(group),
        slowed=len(slowed_queries(group)),
        ending=Counter(found.error for member in group.members.values() if (found := shown(group, member, now_ms))),
        waiting=len(waits),
        longest_wait_ms=max((now_ms - wait.since_ms for wait in waits if wait.since_ms is not None), default=0),
        records=describe_counts(group),
        partitions=tuple(_of(group, partition) for partition in partitions),
        paused=tuple(filter(group.config.is_paused, sorted(group.topics))),
        limits={key: key == used_up for key, limit in limits.items() if limit is not None},
    )


def _of(group: ShareGroup, partition: SharePartition) -> PartitionMeasures:
    counts = partition.runs.counts
    complete = partition.delivery_complete_count
    return PartitionMeasures(
        topic=group.topic_names[partition.key.topic_id],
        partition=partition.key.partition,
        start_offset=partition.start_offset,
        in_flight=sum(counts) - complete,
        runs=len(partition.runs),
        acquired=partition.acquired_count,
        archiving=partition.archiving_count,
        delivery_complete=complete,
    )


def _oldest_ms(group: ShareGroup, now_ms: int) -> int:
    for plan in sorted(group.plans.values(), key=attrgetter("acquired_ms")):
        if _is_held(group, plan):
            return max(0, now_ms - plan.acquired_ms)
    return 0


def _is_held(group: ShareGroup, plan: AcquiredPlan) -> bool:
    """Whether a member holds a record of the plan. After MOST_LOOKED_AT runs the answer is yes."""
    return any(
        looked_at == MOST_LOOKED_AT or (run.plan_id == plan.plan_id and run.state in HELD)
        for looked_at, run in enumerate(group.runs_in(plan), 1)
    )


def _isolated(group: ShareGroup) -> dict[Stage, int]:
    counts: Counter[Stage] = Counter()
    limit = group.config.share_delivery_count_limit
    for partition in group.partitions.values():
        for first, last, run in islice(partition.runs, max(1, MOST_SLICED // len(group.partitions))):
            if run.failures and stage_of(run, limit) is Stage.SLICED:
                counts[Stage.SLICED] += last - first + 1
        for first, last, run in islice(partition.runs.quarantined(), MOST_ISOLATED):
            counts[stage_of(run, limit)] += last - first + 1
    for plan in group.plans.values():
        if plan.trial:
            counts[Stage.TRIAL] += sum(s.last - s.first + 1 for _, segments in group.carrying(plan) for s in segments)
    return dict(counts)
