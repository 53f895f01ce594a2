"""Judges what becomes of records that sinks defer (docs/do/sink.md, "Outcomes"): they go back as if they had not been
delivered, and a query that gets nothing done for them is slowed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator.core.log_records import PlanCompleted
from coordinator.core.record_state import HELD, RecordState
from coordinator.core.release_backoff import first_delay_ms
from coordinator.core.release_breaker import JUDGED_FROM
from coordinator.core.runs import Run
from tests.simulation.broker import Record
from tests.simulation.changes_judge import DEFER

if TYPE_CHECKING:
    from tests.simulation.ledger import Ledger


@dataclass
class DeferralsJudge:
    """The ledger's part about deferred records. ``times``: how often each record was deferred."""

    ledger: Ledger
    times: Counter[Record] = field(default_factory=Counter)
    slowed: int = 0
    """The number of completed plans of deferred records alone after which the query was slowed."""
    alone: Counter[str] = field(default_factory=Counter)
    """By query, how many records without a delay of their own its newest plans deferred, which had no others."""

    def check_completion(self, done: PlanCompleted) -> None:
        ledger = self.ledger
        for key, run in ledger.runs.items():
            if run.plan_id == done.plan_id and run.state in (RecordState.AVAILABLE, *HELD):
                ledger.world.fail(f"plan {done.plan_id} is completed, and {key} still carries its number")
        returned = {
            key: (before, after)
            for key, (before, after) in ledger.returned.items()
            if before.plan_id == done.plan_id and before.state in HELD
        }
        deferred = [key for key, (before, _) in returned.items() if ledger.outcome(key, before) == DEFER]
        for key in deferred:
            self._check_deferral(key, *returned[key])
        self.times.update(deferred)
        at_once = sum(ledger.said[done.plan_id, key][-1].not_before_ms is None for key in deferred)
        is_alone = len(deferred) == len(ledger.just_changed)
        self.alone[done.member_id] = self.alone[done.member_id] + at_once if is_alone else 0
        self._check_told(done)

    def _check_deferral(self, key: Record, before: Run, after: Run) -> None:
        """Nothing but the holder and the delay has changed; the delay is the sink's, or none."""
        delays = {"not_before_ms": after.not_before_ms, "delay_ms": after.delay_ms}
        if after != before._replace(state=RecordState.AVAILABLE, plan_id=None, deadline_ms=None, **delays):
            self.ledger.world.fail(f"{key} was deferred, and has changed: {before} -> {after}")
        said = self.ledger.said[before.plan_id or 0, key][-1]
        if after.delay_ms != (said.delay_ms or 0) or (
            said.not_before_ms is not None and (after.not_before_ms or 0) > said.not_before_ms
        ):
            self.ledger.world.fail(f"{key} was deferred for {said.delay_ms} ms, and has the delay {after.delay_ms}")

    def _check_told(self, done: PlanCompleted) -> None:
        """A query that defers all that it reads pauses; its open breaker tells people so."""
        config = self.ledger.config
        if self.alone[done.member_id] < JUDGED_FROM or not first_delay_ms(config, by_query=True):
            return
        if done.breaker is None or not done.breaker.pauses:
            self.ledger.world.fail(f"{done.member_id} deferred {self.alone[done.member_id]} records, and is not slowed")
        self.slowed += 1
