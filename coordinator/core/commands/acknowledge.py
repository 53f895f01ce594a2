"""ShareConsumers acknowledge (KIP-932, ShareAcknowledge; KIP-1222, RENEW).

The acknowledgements of a partition are applied all, or none of them. The receipt of a record is (topic, partition,
offset, delivery count); that of an older delivery is refused. In an ordered group, a member that releases a record
gives back the later ones of the share partition that it holds and does not name, without a try.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby

import msgspec

from coordinator.config.resolved import GroupConfig
from coordinator.core.changes import Changes, MemoizedTransition, archived, moved
from coordinator.core.commands import Decision
from coordinator.core.commands.held_records import NamedOffsets, RunLookup, by_partition, check_held, holds
from coordinator.core.failed_deliveries import given_back, released
from coordinator.core.log_records import LocksRenewed, Record
from coordinator.core.order import held_after
from coordinator.core.record_state import Event, RecordState
from coordinator.core.release_backoff import NO_DELAY, Delay, backoff, first_delay_ms
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.errors import InvalidRequest, RenewalDisabled
from coordinator.protocol.messages import AckBatch, Acknowledge, AcknowledgeReply
from coordinator.protocol.values import LONGEST_REASON, AcknowledgeType, CappedLock, Disposition, SharePartitionKey

Piece = tuple[int, int, AcknowledgeType]
_TYPES = {kind.value: kind for kind in AcknowledgeType if kind != AcknowledgeType.DEFER}


def acknowledge(group: ShareGroup, command: Acknowledge, now_ms: int) -> Decision[AcknowledgeReply]:
    """Apply outcomes. The reply names the error of each refused partition."""
    group.member(command.member_id, command.member_epoch)
    records, errors = by_partition(group, command.partitions, partial(_partition_records, group, command, now_ms))
    by_name = {name: error.kafka_error for name, error in errors.items()}
    renewed = any(isinstance(record, LocksRenewed) for record in records)
    reply = AcknowledgeReply(
        errors=by_name,
        done_below=_done_below(group, command),
        capped=tuple(_capped(group.config, records, now_ms)),
        lock_timeout_ms=group.config.share_record_lock_duration_ms if renewed else 0,
    )
    return Decision(records, reply)


def _capped(config: GroupConfig, records: Iterable[Record], now_ms: int) -> Iterator[CappedLock]:
    """Yield the renewed locks that share.max.lock.extension.ms makes shorter than share.record.lock.duration.ms. The
    reply names these locks, so that the member does not rely on the full duration."""
    whole_ms = now_ms + config.share_record_lock_duration_ms
    for renewed in records:
        if not isinstance(renewed, LocksRenewed):
            continue
        for first, last, run in renewed.runs:
            if run.deadline_ms is not None and run.deadline_ms < whole_ms:
                yield CappedLock(renewed.topic_id, renewed.partition, first, last, run.deadline_ms - now_ms)


def _done_below(group: ShareGroup, command: Acknowledge) -> dict[str, int]:
    """The start offsets of partitions in which the request renews locks of records below the start offset. Such a
    renewal has no effect and no error, so this tells the member that the records are done."""
    found = {}
    for acks in command.partitions:
        partition = group.partitions.get(SharePartitionKey(acks.topic_id, acks.partition))
        if partition is not None and any(
            batch.first < partition.start_offset and AcknowledgeType.RENEW in batch.types for batch in acks.batches
        ):
            found[f"{acks.topic_id}:{acks.partition}"] = partition.start_offset
    return found


def _partition_records(
    group: ShareGroup, command: Acknowledge, now_ms: int, partition: SharePartition, batches: Iterable[AckBatch]
) -> list[Record]:
    member_id = command.member_id
    changes, renewals = Changes(), Changes()
    outcomes: dict[tuple[AcknowledgeType, str, int | None], MemoizedTransition[Run]] = {}
    named, lookup = NamedOffsets(), RunLookup(partition)
    backs_off = first_delay_ms(group.config, by_query=False) > 0
    for batch in batches:
        if len(batch.types) not in (1, batch.last - batch.first + 1):
            what = f"The acknowledgement of {batch.first}-{batch.last} has {len(batch.types)} types."
            raise InvalidRequest(what=what)
        lookup.check(batch.first, batch.last)
        for first, last, kind in _pieces(batch):
            named.add(first, last)
            target = renewals if kind == AcknowledgeType.RENEW else changes
            outcome = (kind, batch.reason, batch.delay_ms)
            if outcome not in outcomes:
                outcomes[outcome] = MemoizedTransition(partial(_outcome, group, *outcome, now_ms))
            for part in lookup.parts(first, last):
                if part.last < partition.start_offset:
                    if kind != AcknowledgeType.RENEW and holds(group, member_id, part.run):
                        changes.put(partition.key, part.first, part.last, moved(part.run, Event.LOG_START))
                    continue
                check_held(group, member_id, batch.delivery_count, part)
                if kind == AcknowledgeType.RELEASE and command.unread and part.run.state == RecordState.ACQUIRED:
                    after = given_back(part.run)
                elif kind == AcknowledgeType.RELEASE and batch.delay_ms is None and backs_off:
                    after = _delayed(group, part, now_ms)
                else:
                    after = outcomes[outcome](part.run)
                target.put(partition.key, part.first, part.last, after)
    _give_back_later(group, partition, changes, named)
    renewed = [LocksRenewed(**msgspec.structs.asdict(changed)) for changed in renewals.records()]
    return [*renewed, *changes.records()]


def _give_back_later(group: ShareGroup, partition: SharePartition, changes: Changes, named: NamedOffsets) -> None:
    """In an ordered group, add the records after the first released one that the member holds and does not name."""
    if not group.config.is_ordered:
        return
    released = (first for c in changes.records() for first, _, run in c.runs if run.state == RecordState.AVAILABLE)
    for segment in held_after(group, partition, next(released, partition.end_offset)):
        for first, last in named.others(segment):
            changes.put(partition.key, first, last, segment.run)


def _pieces(batch: AckBatch) -> Iterator[Piece]:
    """Yield the batch as ranges of one type each."""
    first = batch.first
    for kind, same in groupby(batch.types):
        last = batch.last if len(batch.types) == 1 else first + sum(1 for _ in same) - 1
        try:
            yield first, last, _TYPES[kind]
        except KeyError:
            raise InvalidRequest(
                what=f"The acknowledgement of {first}-{last} has the type {kind}, which is none."
            ) from None
        first = last + 1


def _outcome(group: ShareGroup, kind: AcknowledgeType, reason: str, delay_ms: int | None, now_ms: int, run: Run) -> Run:
    if kind == AcknowledgeType.ACCEPT:
        return moved(run, Event.ACCEPT)
    if kind == AcknowledgeType.RELEASE:
        return released(run, group.config, NO_DELAY if delay_ms is None else Delay(now_ms + delay_ms, delay_ms))
    if kind == AcknowledgeType.RENEW:
        return _renewed(group, run, group.config, now_ms)
    if kind == AcknowledgeType.REJECT:
        return archived(run, Event.REJECT, group.config, Disposition.REJECTED, reason[:LONGEST_REASON])
    return moved(run, Event.GAP)


def _delayed(group: ShareGroup, part: Segment, now_ms: int) -> Run:
    delay = backoff(group.config, part.run.releases + 1, part.first, now_ms, by_query=False)
    return released(part.run, group.config, delay)


def _renewed(group: ShareGroup, run: Run, config: GroupConfig, now_ms: int) -> Run:
    """The run with a new lock from now, but not beyond share.max.lock.extension.ms after the acquisition. A renewal
    that this limit cuts is not refused: the outcomes in the same request would be refused with it."""
    if not config.share_renew_acknowledge_enable:
        raise RenewalDisabled()
    assert run.plan_id is not None
    plan = group.plans[run.plan_id]
    if plan.query:
        return run
    cap_ms = plan.held_since_ms + config.share_max_lock_extension_ms
    deadline_ms = min(now_ms + config.share_record_lock_duration_ms, cap_ms)
    before_ms = 0 if run.deadline_ms is None else group.locks.deadline_ms(run.deadline_ms)
    return moved(run, Event.RENEW, deadline_ms=max(deadline_ms, before_ms))
