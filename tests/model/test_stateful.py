"""Hypothesis chooses the steps: the core against the naive model, and a failure shrunk to the few steps that make
it.

After every step both sides are compared offset by offset, the invariants are checked, and the group is rebuilt from
what was appended and from a snapshot. The walk (:mod:`tests.model.walk`) goes further; this one explains better.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.model.arguments import BACKOFFS, SinkConfigs, pieces
from tests.model.compare import PARTITIONS
from tests.model.member_steps import CONSUMERS, QUERIES
from tests.model.plans import Ack
from tests.model.sinks import Row
from tests.model.steps import Steps
from tests.model.walk import BEHIND_MS
from tests.support.group_driver import GroupDriver

TWO_QUERIES = QUERIES[:2]
MEMBERS = (*TWO_QUERIES, *CONSUMERS)
KINDS = (None, 0, 1, 2, 3, 4)  # None: this record is passed over

queries, consumers, members = st.sampled_from(TWO_QUERIES), st.sampled_from(CONSUMERS), st.sampled_from(MEMBERS)
indexes = st.integers(0, PARTITIONS - 1)
asked = st.integers(1, PARTITIONS)
booleans = st.booleans()
# Mostly the present one: 0 is none too old.
behind = st.sampled_from((0, 0, 0, 0, 0, 0, 0, 1))
older = st.sampled_from((0, 0, 0, 1))
limits = st.sampled_from((2, 3, 3, 5, 10))
bases = st.sampled_from((5, 30, 100_000))
modes = st.sampled_from(("batch_optimized", "record_limit"))
sinks = st.builds(
    SinkConfigs,
    explicit=booleans,
    dead_letters=booleans,
    backoff=st.sampled_from(BACKOFFS),
    reject_ratio=st.sampled_from((1.0, 1.0, 0.3)),
    breaker_ratio=st.sampled_from((0.5, 0.0, 1.0)),
)
SAID = (None, 1, 1, 2, 3)  # None: no row says anything of this record
said = st.lists(st.sampled_from(SAID), min_size=1, max_size=4)
delays_ms = st.sampled_from((None, None, 0, 5_000, 60_000))
reasons = st.sampled_from(("", "bad"))
failures = st.sampled_from((0, 0, 0, 1, 2, 3, 5))
ENDS = ("completed", "failed", "gone")
times_ms = st.sampled_from((1, 500, 2_000, 10_000, 30_001, 46_000))


class EngineAndModel(RuleBasedStateMachine):
    """Each rule is a command, or something that happens around the coordinator."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = Steps()

    @initialize(limit=limits, base=bases, mode=modes, sinks=sinks)
    def begin(self, limit: int, base: int, mode: str, sinks: SinkConfigs) -> None:
        self.steps.config(limit, base, mode, sinks)
        for name in MEMBERS[:3]:
            self.steps.join_anew(name)

    def epoch(self, name: str, behind: int) -> int:
        return self.steps.epochs.get(name, 1) - behind

    # --- members, time, the coordinator

    @rule(name=members)
    def join_anew(self, name: str) -> None:
        self.steps.join_anew(name)

    @rule(name=members, older=behind, names_its_epoch=booleans, behind=behind)
    def join_again(self, name: str, older: int, names_its_epoch: bool, behind: int) -> None:
        process = max(1, self.steps.processes[name] - older)
        self.steps.processes[name] = max(process, self.steps.processes[name])
        self.steps.join(name, f"{name}-{process}", self.epoch(name, behind) if names_its_epoch else None)

    @rule(name=members, behind=behind)
    def heartbeat(self, name: str, behind: int) -> None:
        self.steps.heartbeat(name, self.epoch(name, behind))

    @rule(name=members, behind=behind)
    def leave(self, name: str, behind: int) -> None:
        self.steps.leave(name, self.epoch(name, behind))

    @rule(ms=times_ms)
    def time_passes(self, ms: int) -> None:
        self.steps.pass_time(ms)

    @rule(from_a_snapshot=booleans, behind_ms=st.sampled_from((0, 0, 0, *BEHIND_MS)))
    def crash(self, from_a_snapshot: bool, behind_ms: int) -> None:
        if from_a_snapshot:
            self.steps.core.snapshot()
        self.steps.crash(behind_ms)

    # --- the log and the configs

    @rule(index=indexes, count=st.integers(1, 12))
    def new_records(self, index: int, count: int) -> None:
        self.steps.new_records(index, count)

    @rule(index=indexes, by=st.integers(1, 30), noticed=booleans)
    def log_start_moves(self, index: int, by: int, noticed: bool) -> None:
        self.steps.move_log_start(index, by, noticed=noticed)

    @rule(index=indexes, beyond=st.integers(-1, 12), size=st.integers(1, 6))
    def a_gap_is_found(self, index: int, beyond: int, size: int) -> None:
        first = self.steps.model.partitions[index].start + beyond
        self.steps.gap(index, first, first + size - 1)

    @rule(limit=limits, base=bases, mode=modes, sinks=sinks)
    def config_changes(self, limit: int, base: int, mode: str, sinks: SinkConfigs) -> None:
        self.steps.config(limit, base, mode, sinks)

    # --- queries

    @rule(name=queries, behind=behind, rolled_back=behind, most=st.integers(1, 40), partitions=asked)
    def acquire(self, name: str, behind: int, rolled_back: int, most: int, partitions: int) -> None:
        start = max(0, self.steps.completed(name) - rolled_back)
        self.steps.acquire(name, self.epoch(name, behind), start, most, partitions)

    @rule(name=queries, behind=behind, rolled_back=behind, looks=booleans, fail=booleans)
    def start(self, name: str, behind: int, rolled_back: int, looks: bool, fail: bool) -> None:
        number = max(0, self.steps.newest(name) - rolled_back)
        self.steps.start(name, self.epoch(name, behind), number, looks=looks, fail=fail)

    @rule(name=queries, times=st.integers(1, 5), looks=booleans, fail=booleans)
    def fail_and_replay(self, name: str, times: int, looks: bool, fail: bool) -> None:
        for _ in range(times):
            self.steps.replay(name, self.steps.newest(name), looks=looks, fail=fail)
            self.steps.comparison.compare()

    @rule(name=queries, most=st.integers(1, 40), times=failures, ends=st.sampled_from(ENDS))
    def a_batch(self, name: str, most: int, times: int, ends: str) -> None:
        """A query completes the batch before, acquires the next one, begins to read it, and fails so often."""
        self.steps.join_again(name)
        epoch = self.epoch(name, 0)
        self.steps.complete(name, epoch, self.steps.newest(name))
        self.steps.acquire(name, epoch, self.steps.completed(name), most)
        self.steps.start(name, epoch, self.steps.newest(name))
        self.fail_and_replay(name=name, times=times, looks=False, fail=False)
        self.steps.comparison.compare()
        if ends == "completed":
            self.steps.complete(name, self.epoch(name, 0), self.steps.newest(name))
        elif ends == "gone":
            self.steps.leave(name, self.epoch(name, 0))

    @rule(name=queries, consumer=consumers, most=st.integers(1, 40), times=st.integers(1, 3), looks=booleans)
    def a_driver_logs_a_plan_that_was_given_up(
        self, name: str, consumer: str, most: int, times: int, looks: bool
    ) -> None:
        for _ in range(times):
            self.steps.another_plan(name, consumer, most)
        if given_up := self.steps.given_up(name):
            self.steps.replay(name, given_up[most % len(given_up)], looks=looks)

    @rule(name=queries, behind=behind, rolled_back=behind, processed=booleans, gaps=st.integers(0, 3), looks=booleans)
    def complete(self, name: str, behind: int, rolled_back: int, processed: bool, gaps: int, looks: bool) -> None:
        number = max(0, self.steps.newest(name) - rolled_back)
        missing = [key for key, _ in self.steps.model.sink_of(name)[1 : gaps + 1]]
        self.steps.complete(name, self.epoch(name, behind), number, processed=processed, missing=missing, looks=looks)

    # --- sinks, and who writes dead letters

    @rule(
        name=queries,
        outcomes=said,
        older=older,
        delay_ms=delays_ms,
        letter=booleans,
        also=st.integers(0, 60),
        query_id=st.sampled_from(("", "q1", "q2")),
        outdated=st.sampled_from((False, False, False, True)),
        fail_on_stale=booleans,
    )
    def stage(
        self,
        name: str,
        outcomes: list[int | None],
        older: int,
        delay_ms: int | None,
        letter: bool,
        also: int,
        query_id: str,
        outdated: bool,
        fail_on_stale: bool,
    ) -> None:
        """A sink stages outcomes of its batch, in any mixture, and of a record that the batch may not hold."""
        rows = self.rows(name, outcomes, older, delay_ms, letter)
        if all(row.key != (0, also) for row in rows):
            rows.append(Row((0, also), 1, 3))
        self.steps.stage(rows, query_id=query_id, outdated=outdated, fail_on_stale=fail_on_stale, names=[(name, 0)])

    def rows(self, name: str, outcomes: list[int | None], older: int, delay_ms: int | None, letter: bool) -> list[Row]:
        receipts = self.steps.model.sink_of(name)
        return [
            Row(key, count - older, outcome, delay_ms if outcome == 2 else None, letter and outcome == 3)
            for at, (key, count) in enumerate(receipts)
            if (outcome := outcomes[at % len(outcomes)]) is not None
        ]

    @rule(name=queries, most=st.integers(1, 8), attempts=st.lists(said, min_size=1, max_size=3), delay_ms=delays_ms)
    def a_batch_with_a_sink(self, name: str, most: int, attempts: list[list[int | None]], delay_ms: int | None) -> None:
        """Attempts that each stage, and fail but for the last, which Spark commits."""
        self.a_batch(name=name, most=most, times=0, ends="failed")
        for attempt, outcomes in enumerate(attempts):
            if attempt:
                self.steps.replay(name, self.steps.newest(name))
            self.steps.stage(self.rows(name, outcomes, 0, delay_ms, False), names=[(name, 0)])
            self.steps.comparison.compare()
        self.steps.complete(name, self.epoch(name, 0), self.steps.newest(name))

    @precondition(lambda self: self.steps.model.waiting_for_dead_letters())
    @rule(most=st.integers(1, 40), older=older)
    def dead_letters_are_written(self, most: int, older: int) -> None:
        waiting = self.steps.model.waiting_for_dead_letters()[:most]
        self.steps.mark_dead_letters_written([(key, count - older) for key, count in waiting])

    # --- ShareConsumers

    @rule(name=consumers, behind=behind, most=st.integers(1, 10), partitions=asked, beyond=booleans)
    def fetch(self, name: str, behind: int, most: int, partitions: int, beyond: bool) -> None:
        self.steps.fetch(name, self.epoch(name, behind), most, partitions, beyond=beyond)

    @rule(name=consumers, most=st.integers(1, 10), times=st.integers(1, 6), gives_back=booleans)
    def fetch_and_fail(self, name: str, most: int, times: int, gives_back: bool) -> None:
        """A ShareConsumer fetches records that come back again and again: by a release, or at the lock's end."""
        for _ in range(times):
            self.steps.join_again(name)
            self.steps.fetch(name, self.epoch(name, 0), most)
            if gives_back:
                for index in range(PARTITIONS):
                    acks = pieces((o, count, 2, False) for o, count in self.steps.held_by(name, index).items())
                    self.steps.acknowledge(name, self.epoch(name, 0), index, acks)
            else:
                self.steps.pass_time(30_001)
            self.steps.comparison.compare()

    @precondition(lambda self: any(self.holders()))
    @rule(data=st.data(), behind=behind, older=older, one_by_one=booleans, reason=reasons, delay_ms=delays_ms)
    def acknowledge(
        self, data: Any, behind: int, older: int, one_by_one: bool, reason: str, delay_ms: int | None
    ) -> None:
        """A member, also a query's reader, acknowledges records that it holds, in any mixture of outcomes."""
        name, index = data.draw(st.sampled_from(self.holders()))
        held = self.steps.held_by(name, index)
        kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
        outcomes = [kinds[i % len(kinds)] for i in range(len(held))]
        acks = pieces(
            (o, c - older, kind, one_by_one)
            for (o, c), kind in zip(held.items(), outcomes, strict=True)
            if kind is not None
        )
        if acks:
            self.steps.acknowledge(name, self.epoch(name, behind), index, acks, reason, delay_ms)

    @rule(name=members, index=indexes, first=st.integers(0, 60), size=st.integers(1, 3), count=st.integers(1, 3))
    def acknowledge_something(self, name: str, index: int, first: int, size: int, count: int) -> None:
        """Offsets that the member may never have held, with a receipt that may be another's."""
        acks: list[Ack] = [(first, first + size - 1, count, [2] * size)]
        self.steps.acknowledge(name, self.epoch(name, 0), index, acks)

    def holders(self) -> list[tuple[str, int]]:
        return [(name, i) for name in MEMBERS for i in range(PARTITIONS) if self.steps.held_by(name, i)]

    # --- after every step

    @invariant()
    def both_sides_agree(self) -> None:
        """One holder an offset; the start offset and the counts never fall; nothing is skipped; runs in order, disjoint
        and merged; the lag, the losses and who is told of them."""
        self.steps.comparison.compare()
        self.steps.comparison.compare_words()

    @invariant()
    def a_replay_comes_to_the_same(self) -> None:
        GroupDriver.check_recovery(self.steps.core)


@pytest.mark.slow  # the walks of test_model.py are its short form
class EngineAndModelTest(EngineAndModel.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(
        max_examples=80,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
