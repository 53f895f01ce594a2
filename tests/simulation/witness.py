"""Compares the answers with the log, and tells the ledger what the members did. Every answer is in the log. No receipt
names two deliveries. A record that was answered as done is never delivered again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from coordinator.core.commands import StageRuns
from coordinator.core.isolation import isolation_class, slice_size
from coordinator.core.record_state import HELD, RecordState
from coordinator.protocol.admin_messages import Action
from coordinator.protocol.errors import (
    BatchNotNamed,
    InternalError,
    MemberForgotten,
    NoneHeld,
    NoPlanToDecide,
    ShareGroupError,
    StalePlan,
    StateRecordUnreadable,
)
from coordinator.protocol.messages import (
    Acknowledge,
    AcknowledgeReply,
    AcquiredReply,
    AcquireRecords,
    Joined,
    MarkInProgress,
    NextPlan,
    OutcomesStaged,
    PartitionAcks,
    PartitionPlan,
    PlanReply,
    ProgressReply,
    StartPlan,
)
from tests.simulation.broker import Record, log_of
from tests.simulation.changes_judge import ACCEPT, GAP, REJECT
from tests.simulation.ledger import NEVER_ACQUIRED, Ledger
from tests.simulation.memory import check_group
from tests.simulation.signals_judge import SKEW_MS, Signals
from tests.simulation.simulated_coordinator import CoordinatorProcess
from tests.simulation.simulated_world import World

RENEW = 4
CHECK_GROUP_EVERY = 40
Receipt = tuple[int, int, int]


def number_of(text: str) -> int:
    """A plan's number without the group's incarnation; 0 for none."""
    return int(text.rpartition(".")[2]) if text else 0


def receipts(partitions: Iterable[PartitionPlan]) -> Iterator[Receipt]:
    """Each record of a plan with its delivery count."""
    for part in partitions:
        log = log_of(part.topic_id, part.partition)
        for first, last, count in part.ranges:
            for offset in range(first, last + 1):
                yield log, offset, count


@dataclass
class Witness:
    """``sure_locks``: whether a lock that was answered holds until it is over (not with two owners that take turns).
    ``steady``: a query's holds for as long as its process lives, since nothing but coordinators and their store fails;
    ``died``: members whose process did not."""

    world: World
    ledger: Ledger
    lock_ms: int
    session_ms: int
    sure_locks: bool
    steady: bool = False
    configs_change: bool = False
    committed_numbers: set[int] = field(default_factory=set)
    unread: dict[int, set[Record]] = field(default_factory=dict)
    """By committed plan, the records that were gone when its tasks read."""
    replayed: set[int] = field(default_factory=set)
    outcomes: set[tuple[Record, int, int]] = field(default_factory=set)
    rows: set[tuple[Record, int, int]] = field(default_factory=set)
    """The outcomes that sinks sent: record, delivery count, outcome."""
    stale: int = 0
    left: set[str] = field(default_factory=set)
    died: set[str] = field(default_factory=set)
    own_modes: dict[tuple[int, int], str] = field(default_factory=dict)
    session_until_ms: dict[str, int] = field(default_factory=dict)
    lock_until_ms: dict[Receipt, int] = field(default_factory=dict)
    receivers: dict[Receipt, tuple[int, str]] = field(default_factory=dict)
    final: dict[Record, int] = field(default_factory=dict)
    asked: Counter[Any] = field(default_factory=Counter)
    signals: Signals = field(init=False)
    answers: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.signals = Signals(self)

    # --- asked by the ledger

    def committed(self, member_id: str, number: int) -> bool:
        """Spark committed the batch of this plan."""
        return number in self.committed_numbers

    def was_unread(self, number: int, record: Record) -> bool:
        """Kafka had removed the record when the tasks of the plan's committed batch read."""
        return record in self.unread.get(number, ())

    def asked_for(self, record: Record, count: int, *kinds: int) -> bool:
        """A ShareConsumer sent one of these outcomes with this receipt."""
        return any((record, count, kind) in self.outcomes for kind in kinds)

    def was_said(self, record: Record, count: int, outcome: int) -> bool:
        """A query's sink sent a row with this receipt and outcome."""
        return (record, count, outcome) in self.rows

    def own_mode(self, number: int, member_epoch: int) -> str:
        """The acknowledgement mode that the query named when it started the plan; empty: the group's."""
        return self.own_modes.get((number, member_epoch), "")

    def signalled(self, member_id: str, record: Record, count: int) -> bool:
        return (member_id, record, count) in self.signals.sent

    def is_gone(self, member_id: str, at_ms: int) -> bool:
        """Whether the member's session may have ended by then."""
        is_over = at_ms > self.session_until_ms.get(member_id, 0)
        return is_over or member_id in self.left or self.ledger.actions.may_release(member_id)

    def has_left(self, member_id: str) -> bool:
        return member_id in self.left

    @property
    def _sure_lock_ms(self) -> int:
        """A new lock's time. One that is longer than a session is compared with the clock of whoever takes over."""
        return self.lock_ms if self.lock_ms <= self.session_ms else self.lock_ms - 2 * SKEW_MS

    def may_lose(self, member_id: str, record: Record, count: int) -> bool:
        """Whether the member's lock may be over by now."""
        now_ms = self.world.now_ms
        if self.steady and self.ledger.queries[member_id]:
            return member_id in self.died
        if not self.sure_locks or self.is_gone(member_id, now_ms):
            return True
        return not self.ledger.queries[member_id] and now_ms > self.lock_until_ms.get((*record, count), 0)

    def was_forgotten(self, member_id: str, error: ShareGroupError) -> bool:
        """Whether a member is refused by name since the group forgot it. It must be refused so, or not at all."""
        if member_id not in self.ledger.forgotten_plans:
            return False
        by_name = isinstance(error, MemberForgotten | StalePlan) and "share.member.retention.ms" in str(error)
        # A sink's rows name no member.
        if not by_name and not isinstance(error, NoneHeld | NoPlanToDecide | BatchNotNamed):
            self.world.fail(f"{member_id} was forgotten, and is refused by another name: {error}")
        self.answers["refused, was forgotten"] += 1
        return True

    def trial_broke_off(self, number: int) -> bool:
        """A process of the query died or was away while it had this plan."""
        return number in self.replayed or number in self.ledger.lost_numbers

    # --- every answer on its way out

    def begun(self, coordinator: CoordinatorProcess, request: Any) -> None:
        if isinstance(request, Acknowledge | MarkInProgress) or _rides(request):
            self.asked[request] += 1
        if isinstance(request, StartPlan):
            self.own_modes[number_of(request.plan_id), request.member_epoch] = request.acknowledgement_mode

    def answered(self, coordinator: CoordinatorProcess, request: Any, answer: Any) -> None:
        name = type(answer).__name__
        self.answers[name] += 1
        self.world.note(coordinator.name, f"answers {_text(request)}: {_text(answer)}")
        if isinstance(answer, InternalError | StateRecordUnreadable):
            self.world.fail(str(answer))
        if isinstance(answer, OutcomesStaged):
            self._staged(request, answer)
        elif isinstance(request, Action):
            self.ledger.actions.answered(answer)
        elif not isinstance(answer, ShareGroupError):
            self._check_epoch(coordinator, request)
            self.ledger.seen_ms[request.member_id] = self.world.now_ms
        if isinstance(answer, Joined):
            self._joined(coordinator, request, answer)
        elif isinstance(answer, PlanReply):
            self._planned(coordinator, request, answer)
        elif isinstance(answer, AcquiredReply):
            self._acknowledged(coordinator, request, request.acknowledgements, answer.errors)
            self._durable(answer.plan_id, answer.partitions)
            left_ms = min(self.lock_ms, answer.lock_timeout_ms) - (self.lock_ms - self._sure_lock_ms)
            for receipt in receipts(answer.partitions):
                self.lock_until_ms[receipt] = coordinator.decided_ms + left_ms
        elif isinstance(answer, AcknowledgeReply):
            self._acknowledged(coordinator, request, request.partitions, answer.errors)
        elif isinstance(answer, ProgressReply):
            self.signals.answered(coordinator, request, answer)
        self._look_at(coordinator, request.group_id, name)

    def _look_at(self, coordinator: CoordinatorProcess, group_id: str, name: str) -> None:
        """Now and then the whole group is compared with the log, and always what must have ended by now."""
        group = coordinator.look_in(group_id)
        if coordinator.serves and self.sure_locks and group is not None:  # None: the group's load has failed
            self.signals.check_overdue(coordinator)
        if coordinator.serves and group is not None and self.answers[name] % CHECK_GROUP_EVERY == 0:
            self.check_group(coordinator)

    def check_group(self, coordinator: CoordinatorProcess) -> None:
        """The owner's memory is the log, if nothing is under way."""
        for group in coordinator.runtime.groups.values():
            if self.ledger.starts and coordinator.is_idle and coordinator.knows_the_log:
                check_group(self.ledger, group)

    def _check_epoch(self, coordinator: CoordinatorProcess, request: Any) -> None:
        """A process is served no more when its member has a newer one."""
        durable = self.ledger.epochs.get(request.member_id, 0)
        earlier = self.ledger.joined_in.get(request.member_id, 0) < self.ledger.appends  # not in the very same round
        epoch = durable if request.member_epoch is None else request.member_epoch
        if earlier and epoch < durable:
            self.world.fail(f"{request.member_id} is served in epoch {epoch}, the log has {durable}")

    def _joined(self, coordinator: CoordinatorProcess, request: Any, answer: Joined) -> None:
        durable = self.ledger.epochs.get(request.member_id, 0)
        if answer.member_epoch > durable:
            self.world.fail(f"{request.member_id} is told epoch {answer.member_epoch}, the log has {durable}")
        if coordinator.serves:
            # A coordinator that loads the group gives a session by the configs of that time.
            self.session_until_ms[request.member_id] = coordinator.decided_ms + self.session_ms

    def _planned(self, coordinator: CoordinatorProcess, request: Any, answer: PlanReply) -> None:
        self._durable(answer.plan.plan_id, answer.plan.partitions)
        number = number_of(answer.plan.plan_id)
        named = number if isinstance(request, StartPlan) else number_of(request.start)
        if named in self.ledger.forgotten_plans.get(request.member_id, ()):
            self.world.fail(f"plan {named} of {request.member_id}, which was forgotten, is answered")
        if isinstance(request, NextPlan) and request.start and number_of(request.start) not in self.ledger.completed:
            self.world.fail(f"{request.start} is said to be completed, and is not in the log")
        if isinstance(request, StartPlan):
            if (number, request.member_epoch) not in self.ledger.started:
                self.world.fail(f"plan {number} is said to be used in epoch {request.member_epoch}: not in the log")
            if coordinator.serves and not self.configs_change:
                self._check_slice(number, answer)

    def _staged(self, request: StageRuns, answer: OutcomesStaged) -> None:
        """Each row that was answered as staged is in the log."""
        self.stale += answer.stale
        durable = sum(self.was_staged(*row) for row in rows_of(request))
        if durable < answer.staged:
            self.world.fail(f"{answer.staged} rows are said to be staged, and {durable} are in the log")

    def was_staged(self, record: Record, count: int, outcome: int) -> bool:
        """Whether the log has it as staged."""
        number = self.ledger.delivered.get((*record, count), 0)
        said = self.ledger.said.get((number, record), [])
        return any((v.delivery_count, v.outcome) == (count, outcome) for v in said)

    def _durable(self, number: str, partitions: Iterable[PartitionPlan]) -> None:
        for receipt in receipts(partitions):
            if self.ledger.delivered.get(receipt) != number_of(number):
                self.world.fail(f"{receipt} is answered for plan {number_of(number)}, and is not in the log")

    def _check_slice(self, number: int, answer: PlanReply) -> None:
        held = [self.ledger.runs.get((p, offset), NEVER_ACQUIRED) for p, offset, _ in receipts(answer.plan.partitions)]
        held = [run for run in held if run.plan_id == number and run.state == RecordState.ACQUIRED]
        tries = {run.failures + 1 for run in held if isolation_class(run.failures, self.ledger.limit)}
        most = min((slice_size(c, self.ledger.limit, self.ledger.base) or 1 for c in tries), default=len(held))
        if len(held) > most:
            self.world.fail(f"plan {number} delivers {len(held)} records on try {sorted(tries)}: {most} at most")

    def _acknowledged(
        self, coordinator: CoordinatorProcess, request: Any, partitions: Iterable[PartitionAcks], errors: dict[str, str]
    ) -> None:
        of_all = list(partitions)
        for acks in of_all:
            error = errors.get(f"{acks.topic_id}:{acks.partition}")
            alike = [a for a in of_all if (a.topic_id, a.partition) == (acks.topic_id, acks.partition)]
            if error is None:
                self._said_to_be_done(coordinator, request, acks)
            elif all(self._was_in_time(coordinator, request, each) for each in alike):
                self.world.fail(f"{request.member_id} is refused in time ({error}): {acks}")

    def _said_to_be_done(self, coordinator: CoordinatorProcess, request: Any, acks: PartitionAcks) -> None:
        for offset, count, kind in outcomes(acks):
            record = (log_of(acks.topic_id, acks.partition), offset)
            run = self.ledger.runs.get(record)
            if kind == RENEW:
                if coordinator.serves:
                    until_ms = coordinator.decided_ms + min(
                        self.lock_ms, self.session_ms
                    )  # renewals are not in the log
                    self.lock_until_ms[(*record, count)] = max(until_ms, self.lock_until_ms.get((*record, count), 0))
            elif run is not None and run.state in HELD and run.delivery_count == count:
                self.world.fail(f"{record} is said to be acknowledged, and is still held in the log")

    def _was_in_time(self, coordinator: CoordinatorProcess, request: Any, acks: PartitionAcks) -> bool:
        log = log_of(acks.topic_id, acks.partition)
        return self.is_held(coordinator, request, [(log, offset, count) for offset, count, _ in outcomes(acks)])

    def is_held(self, coordinator: CoordinatorProcess, request: Any, asked: list[Receipt]) -> bool:
        """Whether the member that asks has a session, and the locks of these deliveries, for sure."""
        now_ms = self.world.now_ms
        if not self.sure_locks or not coordinator.serves or self.asked[request] > 1:
            return False
        if now_ms > self.session_until_ms.get(request.member_id, 0):
            return False
        taken = self.ledger.actions.reset
        held = [r for r in asked if r not in self.ledger.lost and r[:2] not in taken and self._is_undecided(r)]
        return len(held) == len(asked) and all(now_ms <= self.lock_until_ms.get(r, 0) for r in held)

    def _is_undecided(self, receipt: Receipt) -> bool:
        """Whether the delivery is held in the log. The member's process before may have acknowledged it."""
        run = self.ledger.runs.get(receipt[:2])
        return run is not None and run.state in HELD and run.delivery_count == receipt[2]

    # --- what a member received

    def received(self, receiver: str, number: str, partitions: Iterable[PartitionPlan]) -> None:
        for receipt in receipts(partitions):
            partition, offset, count = receipt
            who = (number_of(number), receiver)
            if self.receivers.setdefault(receipt, who) != who:
                self.world.fail(f"{receipt} was delivered to {self.receivers[receipt]}, and to {who}")
            done = self.final.get((partition, offset))
            is_back = (partition, offset, done) in self.ledger.lost or (partition, offset) in self.ledger.actions.reset
            if done is not None and count > done and not is_back:
                self.world.fail(f"{receipt} is delivered, and delivery {done} was answered to be done")

    def handed_out(self, member_id: str, held: dict[Record, int]) -> None:
        """A ShareConsumer's poll returns these records: nobody else has got them meanwhile."""
        if not self.sure_locks or self.ledger.actions.may_release(member_id):
            return
        for record, count in held.items():
            run = self.ledger.runs.get(record, NEVER_ACQUIRED)
            if run.delivery_count > count and record not in self.ledger.actions.reset:
                self.world.fail(f"{member_id} hands out delivery {count} of {record}, and there is a later one: {run}")

    def sent(self, acks: PartitionAcks) -> None:
        """A ShareConsumer is about to send these outcomes."""
        for offset, count, kind in outcomes(acks):
            self.outcomes.add(((log_of(acks.topic_id, acks.partition), offset), count, kind))

    def was_told(self, acks: PartitionAcks) -> None:
        """A ShareConsumer got the answer that these outcomes are accepted."""
        for offset, count, kind in outcomes(acks):
            if kind in (ACCEPT, REJECT, GAP):
                self.final.setdefault((log_of(acks.topic_id, acks.partition), offset), count)

    def was_completed(self, batch: Iterable[Receipt]) -> None:
        """A query got the answer that its batch is completed."""
        for partition, offset, count in batch:
            self.final.setdefault((partition, offset), count)


def _rides(request: Any) -> bool:
    """Whether outcomes go with a question for records."""
    return isinstance(request, AcquireRecords) and bool(request.acknowledgements)


def rows_of(request: StageRuns) -> Iterator[tuple[Record, int, int]]:
    """(record, delivery count, outcome) of each row of a sink."""
    for part in request.partitions:
        log = log_of(part.topic_id, part.partition)
        for run in part.runs:
            for offset in range(run.first, run.last + 1):
                yield (log, offset), run.delivery_count, int(run.outcome)


def outcomes(acks: PartitionAcks) -> Iterator[tuple[int, int, int]]:
    """(offset, delivery count, outcome) of each record."""
    for batch in acks.batches:
        for offset in range(batch.first, batch.last + 1):
            yield offset, batch.delivery_count, batch.types[offset - batch.first if len(batch.types) > 1 else 0]


def _text(message: Any) -> str:
    """A message for people, without what differs from run to run (the group's incarnation)."""
    if isinstance(message, PlanReply):
        held = [(log_of(p.topic_id, p.partition), *map(tuple, p.ranges)) for p in message.plan.partitions]
        left = [(o.topic, o.partition, o.first, o.last, o.reason) for o in (*message.left_out, *message.data_loss)]
        trial = " on trial" if message.plan.trial else ""
        return f"plan {number_of(message.plan.plan_id)}{trial} {held}{f' without {left}' if left else ''}"
    if isinstance(message, AcquiredReply):
        held = [(log_of(p.topic_id, p.partition), *map(tuple, p.ranges)) for p in message.partitions]
        return f"acquired {number_of(message.plan_id)} {held}"
    if isinstance(message, AcknowledgeReply):
        return f"acknowledged, errors {message.errors}"
    if isinstance(message, StageRuns):
        return f"StageRuns {[(p.partition, *[tuple(r[:6]) for r in p.runs]) for p in message.partitions]}"
    if isinstance(message, OutcomesStaged):
        return f"staged {message.staged}, stale {message.stale}"
    if isinstance(message, Joined):
        return f"epoch {message.member_epoch}"
    if _rides(message):
        done = [(a.partition, *outcomes(a)) for a in message.acknowledgements]
        return f"AcquireRecords of {message.member_id} with {done}"
    if isinstance(message, Acknowledge):
        return f"Acknowledge of {message.member_id} {[(a.partition, *outcomes(a)) for a in message.partitions]}"
    if isinstance(message, Exception):
        return f"{type(message).__name__} {getattr(message, 'fields', {}).get('reason', '')}"
    epoch = getattr(message, "member_epoch", "")
    number = number_of(getattr(message, "start", "") or getattr(message, "number", ""))
    return f"{type(message).__name__} of {getattr(message, 'member_id', '')} epoch {epoch} {number or ''}"
