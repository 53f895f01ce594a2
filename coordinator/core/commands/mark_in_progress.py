"""A ShareConsumer signals that it works on records (the proposal KAFKA-20458).

◆ Only the holder extends a lock by signals, and never beyond group.share.in.progress.max.lock.extension.ms after the
acquisition. Of each partition in a request either all signals are taken, or none. Signals are durable, so a record that
is IN_PROGRESS stays with its holder when the group is loaded again.
"""

from __future__ import annotations

from functools import partial

from coordinator.core.changes import Changes, moved
from coordinator.core.commands import Decision
from coordinator.core.commands.held_records import NamedOffsets, RunLookup, by_partition, check_held
from coordinator.core.consumer_locks import extension_end_ms, progress_deadline_ms
from coordinator.core.log_records import RunsChanged
from coordinator.core.record_state import Event
from coordinator.core.runs import Progress, Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.errors import HeldByQuery, InvalidRequest, LockExtensionOver, RecordNotHeld
from coordinator.protocol.messages import MarkInProgress, ProgressBatch, ProgressReply
from coordinator.protocol.values import MOST_HINT_BYTES


def mark_in_progress(group: ShareGroup, command: MarkInProgress, now_ms: int) -> Decision[ProgressReply]:
    """Apply the signals. The reply names the error of each refused partition."""
    group.member(command.member_id, command.member_epoch)
    records, errors = by_partition(group, command.partitions, partial(_marked, group, command.member_id, now_ms))
    told = {name: (error.kafka_error, f"{type(error).__name__}: {error}") for name, error in errors.items()}
    return Decision(records, ProgressReply(errors=told))


def _marked(
    group: ShareGroup, member_id: str, now_ms: int, partition: SharePartition, batches: tuple[ProgressBatch, ...]
) -> list[RunsChanged]:
    changes, named, lookup = Changes(), NamedOffsets(), RunLookup(partition)
    for batch in batches:
        if batch.hint is not None and len(batch.hint.encode()) > MOST_HINT_BYTES:
            raise InvalidRequest(what=f"The hint of {batch.first}-{batch.last} has more than {MOST_HINT_BYTES} bytes.")
        lookup.check(batch.first, batch.last)
        named.add(batch.first, batch.last)
        parts = list(lookup.parts(batch.first, batch.last))
        _check_whole(member_id, batch, parts)
        for part in parts:
            check_held(group, member_id, batch.delivery_count, part)
            if part.last >= partition.start_offset:  # else the log has lost the record: no signal helps
                changes.put(partition.key, part.first, part.last, _in_progress(group, part.run, batch.hint, now_ms))
    return changes.records()


def _check_whole(member_id: str, batch: ProgressBatch, parts: list[Segment]) -> None:
    """Check that all offsets of the batch have a run.

    Raises:
        RecordNotHeld: some offsets have no run any more: they are below the start offset, and done.
    """
    if sum(last - first + 1 for first, last, _ in parts) < batch.last - batch.first + 1:
        raise RecordNotHeld(offsets=f"{batch.first}-{batch.last}", member_id=member_id)


def _in_progress(group: ShareGroup, run: Run, hint: str | None, now_ms: int) -> Run:
    """The held run with one more signal, and the lock that follows from the signal.

    Raises:
        HeldByQuery: a query holds the run.
        LockExtensionOver: signals may extend the lock no further.
    """
    assert run.plan_id is not None
    plan, config, before = group.plans[run.plan_id], group.config, run.progress
    if plan.query:
        raise HeldByQuery(plan_id=group.plan_id_text(plan.plan_id))
    if now_ms > extension_end_ms(plan, config):
        raise LockExtensionOver(longest_ms=config.group_share_in_progress_max_lock_extension_ms)
    if before is None:
        progress = Progress(now_ms, now_ms, hint or "")
    else:
        progress = Progress(min(before.first_ms, now_ms), now_ms, before.hint if hint is None else hint)
    deadline_ms = progress_deadline_ms(plan, progress, config)
    return moved(run, Event.PROGRESS, progress=progress, deadline_ms=deadline_ms)
