"""ShareConsumers acquire and acknowledge (KIP-932, ShareFetch and ShareAcknowledge; KIP-1222, RENEW).

Per partition an acknowledgement is validated whole and applied whole or not at all. Its receipt is (topic, partition,
offset, delivery count): one from an older delivery is refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby

from coordinator.config.resolved import GroupConfig
from coordinator.core.changes import Changes, MemoizedTransition, archived, moved, split_at
from coordinator.core.commands import Decision
from coordinator.core.record_state import Event, RecordState
from coordinator.core.records import LocksRenewed, Record
from coordinator.core.redelivery import released
from coordinator.core.release_backoff import not_before_ms
from coordinator.core.runs import FRESH, Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.errors import InvalidRecordState, InvalidRequest, ShareGroupError
from coordinator.protocol.messages import AckBatch, Acknowledge, AcknowledgeReply
from coordinator.protocol.values import AcknowledgeType, Disposition, SharePartitionKey

Piece = tuple[int, int, AcknowledgeType]
_TYPES = {kind.value: kind for kind in AcknowledgeType}


def acknowledge(group: ShareGroup, command: Acknowledge, now_ms: int) -> Decision[AcknowledgeReply]:
    """Apply outcomes; the reply names the error of each partition that was refused."""
    group.member(command.member_id, command.member_epoch)
    records: list[Record] = []
    errors: dict[str, str] = {}
    batches: dict[SharePartitionKey, tuple[AckBatch, ...]] = {}
    for acks in command.partitions:  # a partition that is named twice is one all the same
        key = SharePartitionKey(acks.topic_id, acks.partition)
        batches[key] = (*batches.get(key, ()), *acks.batches)
    for key, of_partition in batches.items():
        try:
            records += _partition_records(group, command.member_id, key, of_partition, now_ms)
        except ShareGroupError as error:
            errors[f"{key.topic_id}:{key.partition}"] = error.kafka_error
    return Decision(tuple(records), AcknowledgeReply(errors=errors))


def _partition_records(
    group: ShareGroup, member_id: str, key: SharePartitionKey, batches: Iterable[AckBatch], now_ms: int
) -> list[Record]:
    partition = group.partitions.get(key)
    if partition is None:
        raise InvalidRequest(what=f"partition {key.topic_id}:{key.partition} is not one of the group's")
    changes, renewals = Changes(), Changes()
    outcomes: dict[AcknowledgeType, MemoizedTransition] = {}
    named, window = _Named(), _Window(partition)
    for batch in batches:
        _check_range(window, batch)
        for first, last, kind in _pieces(batch):
            named.add(first, last)
            target = renewals if kind == AcknowledgeType.RENEW else changes
            if kind not in outcomes:
                outcomes[kind] = MemoizedTransition(partial(_outcome, group, kind, now_ms))
            for part in window.parts(first, last):
                if part.last < partition.start_offset:
                    if kind != AcknowledgeType.RENEW and _is_holder(group, member_id, part.run):
                        changes.put(partition.key, part.first, part.last, moved(part.run, Event.LOG_START))
                    continue
                _check_held(group, member_id, batch, part)
                if kind == AcknowledgeType.RELEASE and group.config.share_release_backoff_ms:
                    after = _delayed(group, part, now_ms)
                else:
                    after = outcomes[kind](part.run)
                target.put(partition.key, part.first, part.last, after)
    renewed = [LocksRenewed(topic_id=r.topic_id, partition=r.partition, runs=r.runs) for r in renewals.records()]
    return [*renewed, *changes.records()]


def _check_range(window: _Window, batch: AckBatch) -> None:
    partition = window.partition
    if batch.last < batch.first or len(batch.types) not in (1, batch.last - batch.first + 1):
        raise InvalidRequest(what=f"acknowledgement of {batch.first}-{batch.last} with {len(batch.types)} types")
    if batch.last < partition.start_offset:
        return
    if batch.first < partition.start_offset:
        lowest = partition.runs.first()
        if lowest is None or batch.last < lowest.first:
            raise InvalidRecordState(what=f"{partition!r} holds nothing at {batch.first}")
    elif not partition.runs:
        raise InvalidRecordState(what=f"{partition!r} holds nothing at {batch.first}")
    if not window.holds(batch.last):
        raise InvalidRequest(what=f"{batch.first}-{batch.last} lies beyond what {partition!r} has acquired")


def _pieces(batch: AckBatch) -> Iterator[Piece]:
    """The batch as ranges of one type each."""
    first = batch.first
    for kind, same in groupby(batch.types):
        last = batch.last if len(batch.types) == 1 else first + sum(1 for _ in same) - 1
        try:
            yield first, last, _TYPES[kind]
        except KeyError:
            raise InvalidRequest(what=f"acknowledgement of {first}-{last} with type {kind}") from None
        first = last + 1


class _Named:
    """The offsets that a request has named so far: each may be named once."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, first: int, last: int) -> None:
        """InvalidRecordState if one of them was named before."""
        ranges = self._ranges
        if not ranges or ranges[-1][1] < first:
            ranges.append((first, last))
            return
        at = bisect_left(ranges, (first, last))
        if (ranges[at : at + 1] and ranges[at][0] <= last) or (at and ranges[at - 1][1] >= first):
            raise InvalidRecordState(what=f"{first}-{last} is acknowledged twice in one request")
        ranges.insert(at, (first, last))


class _Window:
    """The partition's runs as a request walks over them. It mostly stays in one, which is looked up once."""

    def __init__(self, partition: SharePartition) -> None:
        self.partition = partition
        self._first, self._last = 0, -1
        self._run = FRESH

    def holds(self, offset: int) -> bool:
        """Whether there is a run at this offset."""
        return self._first <= offset <= self._last or self.partition.runs.at(offset) is not None

    def parts(self, first: int, last: int) -> Iterable[Segment]:
        """The runs of a piece, cut at the start offset: what lies below it is the log's loss, and never refused."""
        if first < self.partition.start_offset:
            return [
                part
                for segment in self.partition.runs.between(first, last)
                for part in split_at(segment, self.partition.start_offset)
            ]
        if not self._first <= first <= self._last and (whole := self.partition.runs.at(first)) is not None:
            self._first, self._last, self._run = whole
        if self._first <= first and last <= self._last:
            return (Segment(first, last, self._run),)
        return self.partition.runs.between(first, last)


def _is_holder(group: ShareGroup, member_id: str, run: Run) -> bool:
    plan = group.plans.get(run.plan_id) if run.plan_id is not None else None
    return run.state == RecordState.ACQUIRED and plan is not None and plan.member_id == member_id


def _check_held(group: ShareGroup, member_id: str, batch: AckBatch, segment: Segment) -> None:
    first, last, run = segment
    if not _is_holder(group, member_id, run):
        raise InvalidRecordState(what=f"{first}-{last} is not held by {member_id}")
    if run.delivery_count != batch.delivery_count:
        raise InvalidRecordState(
            what=f"{first}-{last} was delivered {run.delivery_count} times, the receipt says {batch.delivery_count}"
        )


def _outcome(group: ShareGroup, kind: AcknowledgeType, now_ms: int, run: Run) -> Run:
    if kind == AcknowledgeType.ACCEPT:
        return moved(run, Event.ACCEPT)
    if kind == AcknowledgeType.RELEASE:
        return released(run, group.config)
    if kind == AcknowledgeType.RENEW:
        return _renewed(group, run, group.config, now_ms)
    if kind == AcknowledgeType.REJECT:
        return archived(run, Event.REJECT, group.config, Disposition.REJECTED)
    return moved(run, Event.GAP)


def _delayed(group: ShareGroup, part: Segment, now_ms: int) -> Run:
    at_ms = not_before_ms(group.config, part.run.releases + 1, part.first, now_ms)
    return released(part.run, group.config, at_ms)


def _renewed(group: ShareGroup, run: Run, config: GroupConfig, now_ms: int) -> Run:
    """A new lock from now, but never beyond the cap counted from the acquisition (ours)."""
    if not config.share_renew_acknowledge_enable:
        raise InvalidRecordState(what="share.renew.acknowledge.enable is false")
    assert run.plan_id is not None
    plan = group.plans[run.plan_id]
    if plan.query:
        return run
    cap_ms = plan.acquired_ms + config.share_max_lock_extension_ms
    deadline_ms = min(now_ms + config.share_record_lock_duration_ms, cap_ms)
    return moved(run, Event.RENEW, deadline_ms=max(deadline_ms, run.deadline_ms or 0))
