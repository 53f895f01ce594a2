"""A Spark query against the simulated service: its checkpoint, its sink, and the process that works on them.

It is a task that asks over the network, may die at every step, and may have a second process beside it. A log's entry
is written once: a second writer of the same one fails, as in Spark. The sink replaces its
output of a (query, batch id).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.client.connection import CALL_TIMEOUT_S
from coordinator.protocol.errors import (
    BatchNotNamed,
    CoordinatorNotAvailable,
    DeadLetterTopicInUse,
    GroupTakenOver,
    NoPlanToDecide,
    PlanDiffersFromLog,
    ShareGroupError,
    SinkOutdated,
)
from coordinator.protocol.messages import (
    LatestOffsets,
    LeftOut,
    NextPlan,
    OpenSink,
    PartitionPlan,
    PlanReply,
    SinkOpened,
    StartPlan,
)
from coordinator.protocol.values import OutcomeRun
from tests.simulation.broker import TOPIC, Broker, Record
from tests.simulation.changes_judge import DEFER, REJECT, RELEASE
from tests.simulation.faults import MODE, NO_FAULTS, Faults
from tests.simulation.network import Network
from tests.simulation.service_sink import Judge, in_order, row, staging
from tests.simulation.session import GROUP, OUTAGE_TIMEOUT_MS, PATTERN, Find, Session
from tests.simulation.simulated_world import Gone, Process, Task, World
from tests.simulation.witness import Receipt, Witness, number_of, receipts


@dataclass(eq=False)
class Checkpoint:
    """The files of a query's checkpoint, and the contents of its sink."""

    query: str
    offsets: dict[int, tuple[str, str, tuple[PartitionPlan, ...]]] = field(default_factory=dict)
    """By batch id, (plan, member id, ranges)."""
    commits: set[int] = field(default_factory=set)
    outputs: dict[int, tuple[Record, ...]] = field(default_factory=dict)
    gone: set[Record] = field(default_factory=set)
    """Records that the log lost between plan and read."""
    doubled: set[Record] = field(default_factory=set)
    """Records that a process wrote although a later process of the query lived."""
    attempts: Counter[int] = field(default_factory=Counter)
    """By batch id, the number of times that it was decided."""
    left_out: set[Record] = field(default_factory=set)
    """Records that a process wrote although a later process lived, and for which its sink sent another outcome."""
    processes: int = 0
    refused: bool = False
    """True if the group has forgotten the query: it is never started again."""


@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """How the query was started."""

    max_records: int | None
    available_now: bool
    fail_on_data_loss: bool
    starting_offsets: str
    batch_ms: tuple[int, int] = (100, 8_000)
    skips: bool = False
    replaces: bool = False
    """True: the sink sends that its target replaces its output; False: it sends nothing."""
    writes_first: bool = False
    executor_dead_letters: float = 0.0


class QueryProcess(Process):
    """One driver with its reader. ``death_rate``: how often it dies at a step; ``stop_rate``: how often it is stopped
    with a plan that it has not logged yet; ``sink_death_rate``: how often it dies with outcomes staged."""

    death_rate = 0.0
    stop_rate = 0.0
    sink_death_rate = 0.0
    on_stop: Callable[[], None]

    def __init__(
        self,
        world: World,
        checkpoint: Checkpoint,
        options: QueryOptions,
        witness: Witness,
        broker: Broker,
        network: Network,
        find: Find,
        configs: dict[str, str],
        judge: Judge | None = None,
        faults: Faults = NO_FAULTS,
    ) -> None:
        checkpoint.processes += 1
        super().__init__(world, f"{checkpoint.query}-{checkpoint.processes}")
        self.mine, self.options, self.witness, self.broker = checkpoint, options, witness, broker
        self.number_of_process = checkpoint.processes
        self.judge, self.faults = judge, faults
        has_mode = faults.configs and not (faults.sinks_at_steps and world.happens(0.5))
        self.own_mode = configs[MODE] if has_mode else ""
        self.sink_configs = configs if faults.configs else {}
        self.batch_ms = options.batch_ms
        self.batch = max(checkpoint.offsets, default=-1)
        self.newest, member_id, self.logged = checkpoint.offsets.get(self.batch, ("", self.name, ()))
        self.acquired = ""
        subscription = {"topics": (), "topic_pattern": PATTERN} if faults.topics_ms else {}
        self.session = Session(
            self, network, find, member_id, configs=configs, starting_offsets=options.starting_offsets, **subscription
        )
        if faults.stalls_ms:
            self.session.answer_timeout_ms = int(CALL_TIMEOUT_S * 1000)
        if faults.brokers_stop:
            self.session.retry_timeout_ms = OUTAGE_TIMEOUT_MS
        self.until: dict[str, dict[str, int]] | None = None
        self.rows_alone = False
        self.began_ms: int | None = None
        self.read: tuple[Receipt, ...] = ()
        self.unread: set[Record] = set()
        """Records of the batch that were gone when its tasks read."""
        if self._replays:
            witness.replayed.add(number_of(self.newest))
        self.spawn(self._live())

    @property
    def _replays(self) -> bool:
        return self.batch >= 0 and self.batch not in self.mine.commits

    def _step(self) -> None:
        """Here it may die."""
        if self.world.happens(self.death_rate):
            raise Gone("killed at a step")

    def _live(self) -> Task:
        try:
            yield from self.session.join()
            if self.options.available_now:
                latest = yield from self.session.call(lambda who: LatestOffsets(**who))
                self.until, self.began_ms = latest.ends, latest.now_ms
            if self._replays:
                yield from self._run_batch()
            while True:
                yield from self._next_batch()
        except CoordinatorNotAvailable as error:
            raise Gone(str(error)) from error
        except ShareGroupError as error:
            # Of two coordinators that take turns, one answers from what it knew before the other's turn.
            if isinstance(error, PlanDiffersFromLog) and self.faults.hosts == 1:
                self.world.fail(f"{self.name} has the log as the coordinator answered it, and is refused: {error}")
            alone = self.mine.processes == self.number_of_process and not self.was_second
            was_told = self.faults.topics_ms and isinstance(error, SinkOutdated | NoPlanToDecide)
            was_told = was_told or (self.faults.hosts > 1 and isinstance(error, GroupTakenOver))
            was_told = was_told or (self.faults.configs and isinstance(error, DeadLetterTopicInUse))
            was_told = was_told or (self.rows_alone and isinstance(error, BatchNotNamed))  # others have its records
            if self.witness.was_forgotten(self.session.member_id, error):
                self.mine.refused = True
            elif alone and self.witness.sure_locks and not was_told:
                self.world.fail(f"{self.name} is healthy, and is refused: {error}")
            raise Gone(str(error)) from error

    explicit = False
    """The acknowledgement mode in which the query started the plan."""
    was_second = False
    """True if another process of this query lived at its start: its view of the checkpoint may be old."""

    def _next_batch(self) -> Task:
        """latestOffset(start): the batch before is done; then the next one."""
        reply: PlanReply = yield from self.session.call(
            lambda who: NextPlan(
                **who, start=self.newest, max_records=self.options.max_records, until=self.until, began_ms=self.began_ms
            )
        )
        self.witness.received(self.name, reply.plan.plan_id, reply.plan.partitions)
        if self.newest:
            self.witness.was_completed(self.read)
            self.read = ()
        self._step()
        if not reply.plan.plan_id:
            if self.options.available_now:
                raise Gone("nothing left of what was there when it began")
            yield self.world.between(500, 5_000)
            return
        if self.stop_rate and self.world.happens(self.stop_rate):
            self.on_stop()
            yield 0
        if self.batch + 1 in self.mine.offsets:
            raise Gone("concurrent update of the offset log")
        self.batch, self.newest = self.batch + 1, reply.plan.plan_id
        self.acquired, self.logged = self.newest, reply.plan.partitions
        self.mine.offsets[self.batch] = (self.newest, self.session.member_id, self.logged)
        self._step()
        yield self.world.between(0, 50)
        yield from self._run_batch()

    def _run_batch(self) -> Task:
        """partitions(end), the tasks, the sink, the commit."""
        reply: PlanReply = yield from self.session.call(
            lambda who: StartPlan(
                **who,
                plan_id=self.newest,
                fail_on_data_loss=self.options.fail_on_data_loss,
                acknowledgement_mode=self.own_mode,
                logged=self.logged,
                acquired_here=self.acquired == self.newest,
            )
        )
        self.witness.received(self.name, reply.plan.plan_id, reply.plan.partitions)
        self.explicit = self.witness.ledger.plans[number_of(self.newest)].explicit
        self._lose(reply.data_loss)
        self._step()
        yield self.world.between(*self.batch_ms)
        yield from self._wait_for_brokers()
        self.read = tuple(receipts(reply.plan.partitions))
        records = self._read([(p, offset) for p, offset, _ in self.read])
        if self.broker.poison.intersection(records):
            raise Gone("a record that can't be processed")
        if self.judge is None:
            self._write(records)
        else:
            yield from self._decide(self.judge, set(records))
        self._step()
        yield self.world.between(0, 50)
        if self.batch in self.mine.commits:
            raise Gone("concurrent update of the commit log")
        self.mine.commits.add(self.batch)
        self.witness.ledger.order.outputs.append(self.mine.outputs.get(self.batch, ()))
        self._note_doubled()
        self.witness.committed_numbers.add(number_of(self.newest))
        self.witness.unread[number_of(self.newest)] = self.unread
        self.world.note(self.name, f"commits batch {self.batch}, plan {number_of(self.newest)}")
        self._step()
        yield self.world.between(0, 200) if self.world.happens(0.9) else self.world.between(0, 60_000)

    def _wait_for_brokers(self) -> Task:
        """The tasks of the batch wait for records longer than brokers stand still."""
        while (left_ms := self.broker.stopped_until_ms - self.world.now_ms) > 0:
            self.world.note(self.name, "waits for records")
            yield left_ms

    # --- its sink

    def _decide(self, judge: Judge, records: set[Record]) -> Task:
        """Outcomes by row, and the output, which holds what was accepted."""
        number = number_of(self.newest)
        said = {r: judge.outcome(r[:2], r[2], number) for r in self.read if r[:2] in records}
        if judge.scenario.defers and self.witness.ledger.config.is_ordered:
            said = in_order(said, explicit=self.explicit)
        if self._is_service_away:
            said = dict.fromkeys(said, RELEASE)
            judge.away.update(receipt[:2] for receipt in said)
        accepted = [r[:2] for r, outcome in said.items() if judge.is_accepted(outcome, explicit=self.explicit)]
        self.mine.attempts[self.batch] += 1
        if self.options.writes_first and not self.options.skips:
            self._write_decided(judge, accepted, said)
            self._step()
        rows = {r: outcome for r, outcome in said.items() if outcome is not None}
        yield from self._stage(rows)
        if self.world.happens(self.sink_death_rate):
            raise Gone("killed before Spark's commit")
        self._step()
        if not self.options.writes_first or self.options.skips:
            self._write_decided(judge, accepted, said)
        done = {
            r for r, outcome in said.items() if outcome == REJECT or judge.is_accepted(outcome, explicit=self.explicit)
        }
        passed_over = self.witness.ledger.passed_over
        self.read = tuple(r for r in self.read if r in done and r[:2] not in passed_over and not judge.changes(r[:2]))

    @property
    def _is_service_away(self) -> bool:
        return self.world.now_ms < self.faults.outage_ms

    def _stage(self, said: dict[Receipt, int]) -> Task:
        """In one request, or in two, as two sinks would."""
        rows = {receipt: self._row(receipt, outcome) for receipt, outcome in said.items()}
        self.witness.rows.update((receipt[:2], receipt[2], outcome) for receipt, outcome in said.items())
        self._step()
        opened = yield from self._open_sink()
        parts = [list(rows)]
        if len(rows) > 1 and self.world.happens(0.2):
            parts = [list(rows)[::2], list(rows)[1::2]]
        for part in parts:
            said_in_part = {receipt: rows[receipt] for receipt in part}
            self.rows_alone = bool(part) and not self.world.happens(0.5)
            yield from self.session.ask(
                staging(
                    opened.incarnation,
                    self.mine.query,
                    said_in_part,
                    plans={} if self.rows_alone else {self.newest: self.session.member_epoch},
                    mode=self.own_mode,
                    replaces=self.options.replaces,
                )
            )

    def _open_sink(self) -> Task:
        """In foreachBatch when the rows are there, which is after the batch was read."""
        if self.faults.real_service:
            return (yield from self.session.ask(OpenSink(group_id=GROUP, configs=self.sink_configs)))
        return SinkOpened(incarnation=self.newest.rpartition(".")[0], topics={"T0": TOPIC})

    def _row(self, receipt: Receipt, outcome: int) -> OutcomeRun:
        delay_ms = None
        if outcome in (RELEASE, DEFER) and not self._is_service_away:
            delay_ms = self.world.chance.choice((None, None, 0, 5_000, 30_000))
        letter = outcome == REJECT and self.world.happens(self.options.executor_dead_letters)
        if letter:
            self.broker.letters[receipt[:2]] += 1
        return row(receipt, outcome, delay_ms, letter)

    def _write_decided(self, judge: Judge, accepted: list[Record], said: dict[Receipt, int | None]) -> None:
        if self.options.skips and self.batch in self.mine.outputs:
            return
        self._write(accepted)
        if self._has_successor():
            other = {r[:2] for r, outcome in said.items() if judge.changes(r[:2]) or outcome == DEFER}
            self.mine.left_out.update(other.difference(accepted))

    def _lose(self, lost: tuple[LeftOut, ...]) -> None:
        if lost and self.options.fail_on_data_loss:
            raise Gone("data loss")

    def _read(self, records: list[Record]) -> list[Record]:
        found = self.broker.readable(records)
        self.unread = set(records) - set(found)
        if len(found) < len(records):
            if self.options.fail_on_data_loss:
                raise Gone("data loss while it reads")
            self.mine.gone.update(self.unread)
        return found

    def _write(self, records: list[Record]) -> None:
        self.mine.outputs[self.batch] = tuple(records)
        self._note_doubled()

    def _has_successor(self) -> bool:
        fenced = self.witness.ledger.epochs[self.session.member_id] > self.session.member_epoch
        return fenced or self.mine.processes > self.number_of_process

    def _note_doubled(self) -> None:
        """A process that was stopped writes or commits after another took its place: that one may have been cut. The
        other may also have been started before it, and have joined after it."""
        if self._has_successor():
            self.mine.doubled.update(self.mine.outputs[self.batch])
