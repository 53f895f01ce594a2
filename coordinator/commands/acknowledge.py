"""ShareConsumers acquire and acknowledge (KIP-932, ShareFetch and ShareAcknowledge; KIP-1222, RENEW).

Per partition an acknowledgement is validated whole and applied whole or not at all. Its receipt is (topic, partition,
offset, delivery count): one from an older delivery is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from coordinator.changes import Changes, moved, split_at
from coordinator.commands import Decision
from coordinator.config import GroupConfig
from coordinator.errors import InvalidRecordState, InvalidRequest, ShareGroupError
from coordinator.losing import released
from coordinator.messages import AckBatch, Acknowledge, AcknowledgeReply, PartitionAcks
from coordinator.record_state import Event, RecordState
from coordinator.records import LocksRenewed, Record
from coordinator.runs import Run, Segment
from coordinator.share_group import ShareGroup
from coordinator.share_partition import SharePartition
from coordinator.values import AcknowledgeType, TopicIdPartition

Piece = tuple[int, int, AcknowledgeType]


def acknowledge(group: ShareGroup, command: Acknowledge, now_ms: int) -> Decision:
    """Apply outcomes; the reply names the error of each partition that was refused."""
    group.member(command.member_id, command.member_epoch)
    records: list[Record] = []
    errors: dict[str, str] = {}
    for acks in command.partitions:
        try:
            records += _partition_records(group, command.member_id, acks, now_ms)
        except ShareGroupError as error:
            errors[f"{acks.topic_id}:{acks.partition}"] = error.kafka_error
    return Decision(tuple(records), AcknowledgeReply(errors=errors))


def _partition_records(group: ShareGroup, member_id: str, acks: PartitionAcks, now_ms: int) -> list[Record]:
    partition = group.partitions.get(TopicIdPartition(acks.topic_id, acks.partition))
    if partition is None:
        raise InvalidRequest(what=f"partition {acks.topic_id}:{acks.partition} is not one of the group's")
    changes, renewals = Changes(), Changes()
    taken: list[Piece] = []
    for batch in acks.batches:
        _check_range(partition, batch)
        for piece in _pieces(batch):
            _check_overlap(taken, piece)
            taken.append(piece)
            for first, last, run in _parts(partition, piece):
                if last < partition.start_offset:
                    if piece[2] != AcknowledgeType.RENEW and _is_holder(group, member_id, run):
                        changes.put(partition.key, first, last, moved(run, Event.LOG_START))
                    continue
                _check_held(group, member_id, batch, Segment(first, last, run))
                target = renewals if piece[2] == AcknowledgeType.RENEW else changes
                target.put(partition.key, first, last, _outcome(group, run, piece[2], now_ms))
    renewed = [LocksRenewed(topic_id=r.topic_id, partition=r.partition, runs=r.runs) for r in renewals.records()]
    return [*renewed, *changes.records()]


def _check_range(partition: SharePartition, batch: AckBatch) -> None:
    lowest = partition.runs.first()
    if batch.last < batch.first or len(batch.types) not in (1, batch.last - batch.first + 1):
        raise InvalidRequest(what=f"acknowledgement of {batch.first}-{batch.last} with {len(batch.types)} types")
    if batch.last < partition.start_offset:
        return
    if lowest is None or (batch.first < min(lowest.first, partition.start_offset) and batch.last < lowest.first):
        raise InvalidRecordState(what=f"{partition!r} holds nothing at {batch.first}")
    if batch.last >= partition.end_offset or not any(partition.runs.between(batch.last, batch.last)):
        raise InvalidRequest(what=f"{batch.first}-{batch.last} lies beyond what {partition!r} has acquired")


def _pieces(batch: AckBatch) -> Iterator[Piece]:
    """The batch as ranges of one type each."""
    try:
        types = [AcknowledgeType(t) for t in batch.types]
    except ValueError as error:
        raise InvalidRequest(what=f"acknowledgement of {batch.first}-{batch.last}: {error}") from None
    if len(types) == 1:
        yield batch.first, batch.last, types[0]
        return
    first = batch.first
    for kind, same in groupby(types):
        last = first + sum(1 for _ in same) - 1
        yield first, last, kind
        first = last + 1


def _check_overlap(taken: list[Piece], piece: Piece) -> None:
    first, last, _ = piece
    if taken and first > max(taken[-1][1], taken[0][0]):
        return
    if any(t_first <= last and first <= t_last for t_first, t_last, _ in taken):
        raise InvalidRecordState(what=f"{first}-{last} is acknowledged twice in one request")


def _parts(partition: SharePartition, piece: Piece) -> Iterator[Segment]:
    """The runs of the piece, cut at the start offset: what lies below it is the log's loss, and never refused."""
    for segment in partition.runs.between(piece[0], piece[1]):
        yield from split_at(segment, partition.start_offset)


def _is_holder(group: ShareGroup, member_id: str, run: Run) -> bool:
    plan = group.plans.get(run.acquisition) if run.acquisition is not None else None
    return run.state == RecordState.ACQUIRED and plan is not None and plan.member_id == member_id


def _check_held(group: ShareGroup, member_id: str, batch: AckBatch, segment: Segment) -> None:
    first, last, run = segment
    if not _is_holder(group, member_id, run):
        raise InvalidRecordState(what=f"{first}-{last} is not held by {member_id}")
    if run.delivery_count != batch.delivery_count:
        raise InvalidRecordState(
            what=f"{first}-{last} was delivered {run.delivery_count} times, the receipt says {batch.delivery_count}"
        )


def _outcome(group: ShareGroup, run: Run, kind: AcknowledgeType, now_ms: int) -> Run:
    if kind == AcknowledgeType.ACCEPT:
        return moved(run, Event.ACCEPT)
    if kind == AcknowledgeType.RELEASE:
        return released(run, group.config)
    if kind == AcknowledgeType.RENEW:
        return _renewed(group, run, group.config, now_ms)
    return moved(run, Event.REJECT if kind == AcknowledgeType.REJECT else Event.GAP)


def _renewed(group: ShareGroup, run: Run, config: GroupConfig, now_ms: int) -> Run:
    """A new lock from now, but never beyond the cap counted from the acquisition (ours)."""
    if not config.share_renew_acknowledge_enable:
        raise InvalidRecordState(what="share.renew.acknowledge.enable is false")
    assert run.acquisition is not None
    plan = group.plans[run.acquisition]
    if plan.query:
        return run
    cap_ms = plan.acquired_ms + config.share_max_lock_extension_ms
    deadline_ms = min(now_ms + config.share_record_lock_duration_ms, cap_ms)
    return moved(run, Event.RENEW, deadline_ms=max(deadline_ms, run.deadline_ms or 0))
