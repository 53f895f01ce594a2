"""Judges a group's limits (docs/run/flow.md) by what was appended: the rate in any second of the world's clock, whoever
owned the group in it; what all members hold after an acquisition; and that nothing is acquired from a paused topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator.core.log_records import PlanAcquired
from coordinator.core.record_state import HELD, RecordState
from coordinator.core.runs import Run
from tests.simulation.broker import Record, topic_partition_of

if TYPE_CHECKING:
    from tests.simulation.ledger import Ledger


@dataclass
class FlowJudge:
    """The ledger's part about limits. ``skew_ms``: how far the clock of the owner that appends is from the world's.
    ``met``: what the limits have held up."""

    ledger: Ledger
    skew_ms: Callable[[], int] = lambda: 0
    met: Counter[str] = field(default_factory=Counter)
    _plans: dict[int, int] = field(default_factory=dict)
    """The plans that the newest append has acquired, each with its time by the world's clock."""
    _acquired: list[tuple[int, int]] = field(default_factory=list)
    """Time and records of each acquisition since the group has a rate."""

    def acquired(self, record: PlanAcquired) -> None:
        self._plans[record.plan_id] = record.acquired_ms - self.skew_ms()

    def changed(self, key: Record, after: Run) -> None:
        """The record's run in the ledger is ``after`` by now."""
        ledger, config = self.ledger, self.ledger.config
        if after.state != RecordState.ACQUIRED or after.plan_id not in self._plans:
            return
        if config.is_paused(ledger.broker.names[topic_partition_of(key[0])[0]]):
            ledger.world.fail(f"{key} is acquired, and its topic is paused")
        at_ms, rate, most = (
            self._plans[after.plan_id],
            config.share_max_records_per_second,
            config.share_max_in_flight_records,
        )
        if rate is None:
            self._acquired.clear()
        else:
            self._acquired.append((at_ms, 1))
            recent = sum(count for time_ms, count in self._acquired if time_ms > at_ms - 1_000)
            if recent > rate:
                ledger.world.fail(f"{recent} records are acquired within a second, {rate} at most")
            self.met["rate"] += recent == rate
        held, most = sum(run.state in HELD for run in ledger.runs.values()), config.share_max_in_flight_records
        if most is not None and held > most:
            ledger.world.fail(f"{held} records are held after an acquisition, {most} at most")
        self.met["in flight"] += held == most

    def check_append(self) -> None:
        self._plans.clear()
        self.met["paused"] += bool(self.ledger.config.share_paused_topics)
