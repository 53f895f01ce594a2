"""Forget members that were away for too long, and the share partitions of topics that were deleted.

A member is forgotten only if no run carries the id of one of its plans. Then a replay of its batch would be empty, and
the completion of its plan would complete nothing. The group keeps its last plan id and the highest epoch of forgotten
members, so that neither is ever given twice: if such a query comes back after all, it is refused, and so is an older
process of it. The members that were seen last are never forgotten, so that a small group's queries may rest for as long
as they like.

A topic is forgotten only if the group has known for SWEEP_MS that it was deleted, no record of it is held or waits for
its dead letter, and no plan that may be started has its records. The group keeps the counts of the topic's share
partitions. It also keeps the ends of the last forgotten topics, for a redrive, and in case a topic comes back under the
same id.
"""

from __future__ import annotations

from coordinator.core import share_group
from coordinator.core.left_out import LeftOutRange, bounded
from coordinator.core.log_records import MembersForgotten, PartitionsForgotten, Record, Swept
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition

SWEEP_MS = 600_000
"""Sweeps are this many milliseconds apart, and a deleted topic is kept for the same time, so that requests under way
still find its id."""
SEEN_PARTS = 8
"""The log gets a record that says that a member is there, this many times within share.member.retention.ms."""
MOST_AT_ONCE = 1_000
"""A sweep forgets up to this many members, so that a round of the runtime stays short."""
MOST_DROPPED = 10_000
"""A sweep stops after the topic with which it has dropped this many share partitions, after up to half a second."""


def forget(group: ShareGroup, now_ms: int) -> list[Record]:
    """The log records that forget what can be forgotten now, and set the time of the next sweep."""
    members, next_ms = _members(group, now_ms)
    records: list[Record] = [_forgotten(group, members)] if members else []
    of_topics, is_more = _topics(group, now_ms)
    if group.gone:
        next_ms = now_ms if is_more else min(next_ms, now_ms + SWEEP_MS)
    return [*records, *of_topics, Swept(next_ms=next_ms)]


def _forgotten(group: ShareGroup, member_ids: tuple[str, ...]) -> MembersForgotten:
    """The log record that forgets these members. The group takes over the unreported losses of their plans."""
    members = [group.members[member_id] for member_id in member_ids]
    epoch = max(group.forgotten_epoch, *(member.member_epoch for member in members))
    losses: tuple[LeftOutRange, ...] | None = None
    for member in members:
        if member.pending is not None and member.pending.unreported_losses:
            losses = bounded((*(losses or group.unreported_losses), *member.pending.unreported_losses))
    return MembersForgotten(member_ids=member_ids, forgotten_epoch=epoch, unreported_losses=losses)


def _members(group: ShareGroup, now_ms: int) -> tuple[tuple[str, ...], int]:
    """The ids of the members to forget, those that were away longest first, and when there may be more."""
    retention_ms = group.config.share_member_retention_ms
    longest_ms = retention_ms + retention_ms // SEEN_PARTS
    resting = sorted((m for m in group.members.values() if not m.active), key=lambda m: (m.seen_ms, m.member_id))
    holders = {plan.member_id for plan in group.plans.values()}
    beyond = resting[: max(0, len(resting) - share_group.MEMBERS_KEPT)]
    idle = [member for member in beyond if member.member_id not in holders]
    gone = [member.member_id for member in idle if member.seen_ms + longest_ms < now_ms]
    if len(gone) > MOST_AT_ONCE:
        return tuple(gone[:MOST_AT_ONCE]), now_ms
    first_due_ms = min((m.seen_ms + longest_ms for m in idle[len(gone) :]), default=now_ms + retention_ms // SEEN_PARTS)
    return tuple(gone), max(first_due_ms, now_ms + SWEEP_MS)


def _is_over(partition: SharePartition) -> bool:
    """Whether no record of the deleted topic's share partition is held or waits for its dead letter."""
    return not partition.runs


def _topics(group: ShareGroup, now_ms: int) -> tuple[list[Record], bool]:
    """The log records that forget deleted topics with their share partitions, and whether another sweep is needed for
    more. A topic without share partitions, since an administrator deleted their state, is forgotten as well."""
    # A deletion that lies ahead of now was noted by another clock.
    old = {topic_id for topic_id, at_ms in group.gone.items() if not 0 <= now_ms - at_ms < SWEEP_MS}
    if not old:
        return [], False
    pending = [member.pending for member in group.members.values()]
    plans = [*group.plans.values(), *(plan for plan in pending if plan is not None)]
    old -= {topic_id for plan in plans for topic_id, _, _ in plan.ranges}
    found: dict[str, list[int]] = {topic_id: [] for topic_id in old}
    for key, partition in group.partitions.items():
        if key.topic_id in found:
            found[key.topic_id].append(key.partition)
            if not _is_over(partition):
                old.discard(key.topic_id)
    records: list[Record] = []
    dropped = 0
    for topic_id in sorted(old):
        if dropped >= MOST_DROPPED:
            return records, True
        partitions = tuple(sorted(found[topic_id]))
        records.append(PartitionsForgotten(topic_id=topic_id, partitions=partitions, whole_topic=True))
        dropped += len(partitions)
    return records, False
