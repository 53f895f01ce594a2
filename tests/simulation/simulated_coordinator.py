"""The coordinator's process in the simulation: the real runtime and the real transactions, with the brokers' facts.

What :class:`coordinator.service.handlers.coordinator_service.CoordinatorService` does around them with threads is done
here with tasks: look at the group, ask the brokers, run the transaction, answer. It may die or be stopped at any of
these points, also in the middle of an append.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from coordinator.core.commands import DeletedTopicsArchived
from coordinator.core.looks.view import GroupView, ViewGroup
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import AcquireRecords, JoinGroup, LatestOffsets, NextPlan, OffsetsReply, StartPlan
from coordinator.service.brokers.partition_starts import Start
from coordinator.service.brokers.subscription import TopicIdPartition
from coordinator.service.dead_letters import group_backlog
from coordinator.service.dead_letters.group_backlog import Backlog, Due
from coordinator.service.handlers.open_sink import SinkView
from coordinator.service.process.clock import STALLED_MS
from coordinator.service.runtime import transactions
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.transaction import ORIGIN, Access, FromAnotherHost, Transaction
from coordinator.service.runtime.transactions import Facts, JoinView
from tests.simulation.broker import TOPIC, Broker, log_of
from tests.simulation.network import Reply
from tests.simulation.session import GROUP
from tests.simulation.simulated_store import Died, OwnedStore, StateLog
from tests.simulation.simulated_world import BrokenPromise, Pending, Process, Task, World

if TYPE_CHECKING:
    from tests.simulation.witness import Witness

FAR = 400
"""Multiplies the offset of a coordinator's clock from the world's, for a clock that is far from it. The world's clock
begins at 1,000 s; none is below 0."""


def skew_of(drawn_ms: int, *, far: bool) -> int:
    """How far a process's clock is from the world's: some seconds, or, of a few if ``far``, up to 13 minutes."""
    return drawn_ms * FAR if far and drawn_ms % 8 == 0 else drawn_ms


class CoordinatorProcess(Process):
    """``skew_ms``: how far its clock is from the world's. ``death_rate``: how often it dies at a step.
    ``far_clocks``: the clocks of some are up to 13 minutes away, which the judge of signals does not reckon with."""

    death_rate = 0.0
    dead_letters_fail = 0.0

    def __init__(
        self,
        world: World,
        name: str,
        log: StateLog,
        broker: Broker,
        listener: Witness,
        *,
        snapshot_after: int,
        writes_dead_letters: bool = False,
        far_clocks: bool = True,
        host: int | None = None,
    ) -> None:
        super().__init__(world, name)
        self.broker, self.listener = broker, listener
        self.skew_ms = skew_of(world.between(-2_000, 2_000), far=far_clocks)
        self.host = host
        self.store = self._open_store(log)
        self.runtime = CoordinatorRuntime(self.store, snapshot_after=snapshot_after, clock=self.now_ms)
        self.decided_ms = 0
        self._unheard_ms = self.unread_ms = 0
        self._in_step = False
        self._wakes_ms: int | None = None
        if writes_dead_letters:
            self.spawn(self._dispatch_dead_letters())

    def _open_store(self, log: StateLog) -> OwnedStore:
        return OwnedStore(log, self)

    def now_ms(self) -> int:
        """The time by the process's own clock."""
        return self.world.now_ms + self.skew_ms

    @property
    def serves(self) -> bool:
        """No other owner has come after it."""
        return self.alive and self.store.owner == self.store.log.owner

    @property
    def in_step_s(self) -> float:
        """For how many seconds the round lasts that runs now."""
        return (self.world.now_ms - self.decided_ms) / 1000 if self._in_step else 0.0

    @property
    def is_idle(self) -> bool:
        return self.store.log.in_doubt is None

    @property
    def knows_the_log(self) -> bool:
        """Nobody else has written since it last did."""
        return self.store.knows_the_log

    def stop_for(self, ms: int) -> None:
        super().stop_for(ms)
        self._hears_nobody(ms, self.stopped_until_ms)

    def _hears_nobody(self, ms: int, until_ms: int) -> None:
        """Adds to the time for which the process heard nobody, as
        :class:`coordinator.service.process.clock.StallDetector` measures it."""
        self._unheard_ms += max(0, ms - STALLED_MS)
        if ms > STALLED_MS:
            self.store.log.heard_nobody(until_ms, ms)

    def receive(self, request: Any, reply: Reply) -> None:
        self.spawn(self._handle(request, reply))

    def look_in(self, group_id: str) -> ShareGroup | None:
        return self.runtime.groups.get(group_id)

    # --- requests

    def _handle(self, request: Any, reply: Reply) -> Task:
        self.listener.begun(self, request)
        try:
            answer = yield from self._answer(request)
        except ShareGroupError as error:
            answer = error
        reply(answer)

    def _answer(self, request: Any) -> Task:
        if isinstance(request, JoinGroup):
            return (yield from self._join(request))
        if isinstance(request, NextPlan):
            return (yield from self._next_plan(request))
        if isinstance(request, StartPlan):
            return (yield from self._start_plan(request))
        if isinstance(request, AcquireRecords):
            yield from self._look(request)
            facts = yield from self._ask_brokers()
            return (yield from self._run(request, transactions.acquire_records(request, facts)))
        if isinstance(request, LatestOffsets):
            yield from self._look(request)
            facts = yield from self._ask_brokers()
            ends = {TOPIC: {str(p): end for (_, p), end in facts.ends.items()}}
            return OffsetsReply(ends=ends, now_ms=self.now_ms())
        return (yield from self._run(request, transactions.single_command(request)))

    def _join(self, request: JoinGroup) -> Task:
        view: JoinView = yield from self._run(request, transactions.look_before_join(request))
        facts = yield from self._ask_brokers()
        starts = {}
        for p in facts.partitions:
            if (p.topic_id, p.partition) not in view.fetch_from:
                reset = request.starting_offsets or view.config.share_auto_offset_reset
                earliest = facts.log_starts[p.topic_partition]
                starts[p] = Start(earliest, earliest if reset == "earliest" else facts.ends[p.topic_partition])
        return (yield from self._run(request, transactions.join(request, topic_ids=True, starts=starts)))

    def _next_plan(self, request: NextPlan) -> Task:
        yield from self._look(request)
        facts = yield from self._ask_brokers()
        return (yield from self._run(request, transactions.next_plan(request, facts)))

    def _start_plan(self, request: StartPlan) -> Task:
        view = yield from self._look(request, plan_id=request.plan_id)
        facts = yield from self._ask_brokers()
        kept = [TopicIdPartition(*held) for held in sorted(view.plan)]
        asked = Facts(
            partitions=kept, log_starts={p.topic_partition: facts.log_starts[p.topic_partition] for p in kept}, ends={}
        )
        return (
            yield from self._run(
                request, transactions.start_plan(request, asked, gone=frozenset(), unsubscribed=frozenset())
            )
        )

    def _look(self, request: Any, **fields: Any) -> Task:
        who = {name: getattr(request, name) for name in ("group_id", "member_id", "member_epoch")}
        return (yield from self._run(request, transactions.single_command(ViewGroup(**who, **fields))))

    def _ask_brokers(self) -> Task:
        """The facts of now; what follows comes later."""
        facts = self.broker.facts()
        yield self.world.between(0, 5) if self.world.happens(0.95) else self.world.between(0, 3_000)
        return facts

    # --- dead letters: what coordinator.service.dead_letters.group_worker does

    def _dispatch_dead_letters(self) -> Task:
        while True:
            yield self.world.between(200, 3_000)
            if self.look_in(GROUP) is not None:
                try:
                    yield from self._write_dead_letters()
                except ShareGroupError:
                    continue  # the next pass, or the next coordinator

    def _write_dead_letters(self) -> Task:
        """Write dead letters, then file them; the process may die or be stopped between the two."""
        backlog: Backlog | None = yield from self._own(group_backlog.look(group_backlog.BEGINNING, lambda index: True))
        if backlog is None or not backlog.due:
            return
        waiting = [(due, offset) for due in backlog.due for offset in due.offsets.as_range()]
        yield from self._file(backlog, [each for each in waiting if not self.world.happens(self.dead_letters_fail)])

    def _file(self, backlog: Backlog, written: list[tuple[Due, int]]) -> Task:
        self._produce_dead_letters(written)
        yield self.world.between(0, 500)
        yield from self._own(group_backlog.mark_written(backlog.incarnation, group_backlog.coalesced(written)))

    def _produce_dead_letters(self, letters: list[tuple[Due, int]]) -> None:
        self.broker.letters.update((log_of(*due.offsets.key), offset) for due, offset in letters)

    # --- the runtime

    def _run(
        self,
        request: Any,
        transaction: Transaction[Any],
        access: Access = Access.SERVE,
        origin: FromAnotherHost | None = None,
    ) -> Task:
        answer, before = Pending(), ORIGIN.set(origin)
        submitted: Future[Any] = self.runtime.submit(request.group_id, transaction, access)
        ORIGIN.reset(before)
        submitted.add_done_callback(lambda done: self._hear(request, done, answer))
        return (yield from self._outcome(answer))

    def _own(self, transaction: Transaction[Any]) -> Task:
        """A transaction that nobody asked for."""
        answer = Pending()
        submitted: Future[Any] = self.runtime.submit(GROUP, transaction)
        submitted.add_done_callback(lambda done: self.world.after(0, lambda: answer.set(done)))
        return (yield from self._outcome(answer))

    def _outcome(self, answer: Pending) -> Task:
        self._wake(self.world.now_ms + self.world.between(0, 2))
        done = yield answer
        if self.world.happens(self.death_rate):
            self.die("killed at a step")
            yield Pending()
        return done.result()

    def _hear(self, request: Any, done: Future[Any], answer: Pending) -> None:
        outcome = done.exception() or done.result()
        if not isinstance(
            outcome, JoinView | GroupView | SinkView | DeletedTopicsArchived
        ):  # those are the service's own
            with contextlib.suppress(BrokenPromise):  # a future's callback: the world says it after this event
                self.listener.answered(self, request, outcome)
        self.world.after(0, lambda: answer.set(done))

    def _wake(self, at_ms: int) -> None:
        if self._wakes_ms is None or at_ms < self._wakes_ms:
            self._wakes_ms = at_ms
            self.world.at(at_ms, lambda: self._step(at_ms))

    def _step(self, planned_ms: int) -> None:
        if self._wakes_ms != planned_ms or not self.when_running(lambda: self._step(planned_ms)):
            return
        self._wakes_ms = None
        if self._in_step:
            return  # the running step checks for more at its end
        self._in_step = True
        self.decided_ms = self.world.now_ms
        try:
            stalled_ms, self._unheard_ms = self._unheard_ms, 0
            unread_ms, self.unread_ms = self.unread_ms, 0
            self.runtime.step(self.now_ms(), stalled_ms, unread_ms)
        except Died:
            return
        finally:
            self._in_step = False
            self._hears_nobody(self.world.now_ms - self.decided_ms, self.world.now_ms)
        due_ms = self.runtime.next_deadline_ms()
        if self.runtime.has_waiting:
            self._wake(self.world.now_ms)
        elif due_ms is not None:
            self._wake(max(due_ms - self.skew_ms, self.world.now_ms + 10))
