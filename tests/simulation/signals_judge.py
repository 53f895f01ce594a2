"""Judges signals of progress (KAFKA-20458) by the log and by what was answered.

A record is IN_PROGRESS by its holder's signal alone; it leaves its holder when the signals are stale, at the end of the
extension, or after the grace of a member that is gone: not before, and, while a coordinator answers, not much later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator.core.record_state import HELD, RecordState
from coordinator.core.runs import Run
from coordinator.protocol.messages import MarkInProgress, PartitionProgress, ProgressReply
from tests.simulation.broker import Record, log_of

if TYPE_CHECKING:
    from tests.simulation.ledger import Ledger
    from tests.simulation.simulated_coordinator import CoordinatorProcess
    from tests.simulation.witness import Witness

RELEASE = 2
SKEW_MS = 2_000
"""A coordinator's clock may be this far from the world's, in ms."""
SLACK_MS = 2 * SKEW_MS + 1_000
Receipt = tuple[int, int, int]


def signal_receipts(signals: PartitionProgress) -> Iterator[Receipt]:
    """Each record of the signals with its delivery count."""
    for batch in signals.batches:
        for offset in range(batch.first, batch.last + 1):
            yield log_of(signals.topic_id, signals.partition), offset, batch.delivery_count


def end_of_signals_ms(ledger: Ledger, run: Run) -> int:
    """When the lock of an IN_PROGRESS run ends while its member has a session."""
    assert run.progress is not None
    stale_ms = run.progress.last_ms + ledger.config.group_share_in_progress_staleness_threshold_ms
    return min(stale_ms, extension_end_ms(ledger, run))


def extension_end_ms(ledger: Ledger, run: Run) -> int:
    """Until when signals extend the lock of the run."""
    acquired_ms = ledger.plans[run.plan_id or 0].acquired_ms
    return acquired_ms + ledger.config.group_share_in_progress_max_lock_extension_ms


def wrong_signal(ledger: Ledger, key: Record, before: Run, after: Run) -> str:
    """Returns the reason why a record may not become, or stay, IN_PROGRESS so; empty if it may."""
    plan = ledger.plans.get(before.plan_id or 0)
    if before.state not in HELD or plan is None or plan.query:
        return "is in progress, and no ShareConsumer holds it"
    if after._replace(state=before.state, progress=before.progress, deadline_ms=before.deadline_ms) != before:
        return "is changed by a signal"
    if after.progress is None or after.deadline_ms is None:
        return "is in progress without a signal or without an end"
    end_ms = end_of_signals_ms(ledger, after)
    if after.progress.last_ms > min(ledger.world.now_ms + SKEW_MS, extension_end_ms(ledger, after)):
        return f"has a signal at {after.progress.last_ms}, which is later than now or than the longest extension"
    if after.deadline_ms == end_ms and ledger.evidence.signalled(plan.member_id, key, before.delivery_count):
        return ""
    if after.progress != before.progress:
        return f"has a signal of nobody, or a lock until {after.deadline_ms} in place of {end_ms}"
    grace_ms = ledger.config.group_share_in_progress_rebalance_grace_ms
    ended_ms = min(after.deadline_ms - grace_ms, ledger.world.now_ms + SKEW_MS)
    if after.deadline_ms > min(end_ms, ledger.world.now_ms + SKEW_MS + grace_ms):
        return f"has a lock until {after.deadline_ms}, and its member is gone"
    if after.deadline_ms < end_ms and not ledger.evidence.is_gone(plan.member_id, ended_ms + SKEW_MS):
        return f"has a lock until {after.deadline_ms} in place of {end_ms}, and its member is there"
    return ""


def wrong_end_of_work(ledger: Ledger, key: Record, before: Run, after: Run) -> str:
    """Returns the reason why a ShareConsumer's work may not come to nothing so, empty if it may: by a release, or since
    its signals did not come in time."""
    if ledger.order.is_given_back(key, before, after):
        return ""
    if (after.failures, after.releases) != (before.failures + 1, before.releases):
        return "was in progress, and that is no failure"
    if ledger.order.ends_with_its_holder(key, before):
        return ""
    if after.plan_id is None:
        return "" if ledger.evidence.asked_for(key, before.delivery_count, RELEASE) else "is released by nobody"
    if not lock_is_over(ledger, before):
        return "is in progress, and loses its lock too early"
    ledger.lost_in_progress += 1
    ledger.note_lost(key, before)
    return ""


def lock_is_over(ledger: Ledger, run: Run) -> bool:
    """Whether the lock that the log tells of may be over. A load or a stall of the coordinator only extends it."""
    return run.deadline_ms is not None and ledger.world.now_ms + SKEW_MS >= run.deadline_ms


@dataclass
class Signals:
    """The witness's part about signals: what was sent, what was said to be taken, what is held for too long."""

    witness: Witness
    sent: set[tuple[str, Record, int]] = field(default_factory=set)
    taken: int = 0
    refused: int = 0
    at_work: dict[str, dict[Record, int]] = field(default_factory=dict)
    """The deliveries that a ShareConsumer's program works on: its next process may continue them."""

    def was_sent(self, member_id: str, signals: PartitionProgress) -> None:
        """A ShareConsumer is about to send these signals."""
        self.sent.update((member_id, (log, offset), count) for log, offset, count in signal_receipts(signals))

    def answered(self, coordinator: CoordinatorProcess, request: MarkInProgress, answer: ProgressReply) -> None:
        """A signal that is said to be taken is in the log; one of the holder is not refused in time."""
        for signals in request.partitions:
            error = answer.errors.get(f"{signals.topic_id}:{signals.partition}")
            receipts = list(signal_receipts(signals))
            if error is None:
                self.taken += 1
                self._taken(coordinator, request, receipts)
            else:
                self.refused += 1
                is_held = self.witness.is_held(coordinator, request, receipts)
                if is_held and self._holds(request, receipts) and not self._is_over(coordinator, receipts):
                    self.witness.world.fail(f"a signal of {request.member_id} is refused in time ({error}): {signals}")

    def _holds(self, request: MarkInProgress, receipts: list[Receipt]) -> bool:
        """Whether the log says that the member that asks has these deliveries."""
        ledger = self.witness.ledger
        numbers = [ledger.delivered.get(receipt, 0) for receipt in receipts]
        return all(number in ledger.plans and ledger.plans[number].member_id == request.member_id for number in numbers)

    def _taken(self, coordinator: CoordinatorProcess, request: MarkInProgress, receipts: list[Receipt]) -> None:
        ledger = self.witness.ledger
        if not self._holds(request, receipts):
            ledger.world.fail(f"{request.member_id} is said to work on what another one holds: {receipts}")
        for log, offset, count in receipts:
            run = ledger.runs.get((log, offset))
            if run is None or offset < ledger.log_starts.get(log, 0):
                continue
            if run.delivery_count != count or run.state != RecordState.IN_PROGRESS:
                if (log, offset) not in ledger.just_changed:  # its outcome may be of the same append
                    ledger.world.fail(f"a signal for {(log, offset)} is said to be taken, and is not in the log")
            elif coordinator.serves:
                left_ms = end_of_signals_ms(ledger, run) - coordinator.now_ms()
                self.witness.lock_until_ms[log, offset, count] = ledger.world.now_ms + left_ms - SLACK_MS

    def _is_over(self, coordinator: CoordinatorProcess, receipts: list[Receipt]) -> bool:
        """Whether the longest extension of one of them may be over."""
        ledger = self.witness.ledger
        runs = [ledger.runs[log, offset] for log, offset, _ in receipts]
        return any(
            run.plan_id is None or coordinator.now_ms() + SLACK_MS > extension_end_ms(ledger, run) for run in runs
        )

    def check_overdue(self, coordinator: CoordinatorProcess) -> None:
        """No record stays in progress for long after its lock, while a coordinator answers. Locks are extended by the
        time in which no coordinator heard anybody, and to a whole session from a load or a stall on."""
        ledger, log = self.witness.ledger, coordinator.store.log
        for key, told_ms in ledger.in_progress.items():
            run = ledger.runs[key]
            until_ms = run.deadline_ms or 0
            if log.pardoned_ms >= told_ms:
                until_ms = max(until_ms, end_of_signals_ms(ledger, run), log.pardoned_ms + self.witness.session_ms)
            until_ms += sum(ms for ended_ms, ms in log.unheard if ended_ms >= told_ms)
            if coordinator.decided_ms > until_ms + SLACK_MS:
                ledger.world.fail(f"{key} is in progress at {coordinator.decided_ms}, and was to be until {until_ms}")
