"""The partitions that a ShareConsumer leaves out of its requests for a while, since their brokers sent no records while
others did.

Rule: each time that a partition is given up, it is left out for longer, so that an unreachable broker delays the other
records little. It also gets more time, so that a slow broker is not given up for ever. Pure, except for the log: the
time comes as an argument."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.protocol.messages import PartitionPlan
from coordinator.protocol.repeated_lines import FIRST_LINE_AFTER_S, Outage

PAUSE_S = 1.0
"""A partition is left out for this many seconds at first, twice as long after each further failure."""
PATIENCE_S = FIRST_LINE_AFTER_S
"""After this many seconds without a record, the rest of an acquisition is given up; the time doubles with each failure.
A change of leader usually takes less."""
MOST_DOUBLINGS = 4
"""Limits the doubling: pauses of up to 16 s, waits of up to 48 s."""


class SilentPartitions:
    """The partitions that one consumer leaves out of its requests now. ``outage`` logs them."""

    def __init__(self, outage: Outage) -> None:
        self._outage = outage
        self._failures: dict[tuple[str, int], int] = {}
        self._until_s: dict[tuple[str, int], float] = {}

    def patience_s(self, plans: Iterable[PartitionPlan]) -> float:
        """Returns after how many seconds without a record the rest of these partitions is given up."""
        return PATIENCE_S * _doubled(max((self._failures.get(_key(plan), 0) for plan in plans), default=0))

    def now(self, now_s: float) -> tuple[tuple[str, int], ...]:
        """Returns the partitions to leave out now, as (topic id, partition)."""
        self._until_s = {key: until_s for key, until_s in self._until_s.items() if now_s < until_s}
        return tuple(self._until_s)

    def read(self, plan: PartitionPlan) -> None:
        if self._failures.pop(_key(plan), 0):
            self._outage.answered(_label(plan))

    def gave_up(self, plan: PartitionPlan, now_s: float, silent_s: float) -> None:
        failures = self._failures[_key(plan)] = self._failures.get(_key(plan), 0) + 1
        self._until_s[_key(plan)] = now_s + PAUSE_S * _doubled(failures - 1)
        self._outage.failed(_label(plan), now_s - silent_s, _label(plan))


def _doubled(times: int) -> float:
    return 2.0 ** min(times, MOST_DOUBLINGS)


def _key(plan: PartitionPlan) -> tuple[str, int]:
    return plan.topic_id, plan.partition


def _label(plan: PartitionPlan) -> str:
    return f"{plan.topic}-{plan.partition}"
