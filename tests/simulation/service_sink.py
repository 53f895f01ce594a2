"""Sinks of the simulated queries: what they say of a record, and how their outputs are written.

Most of what is said depends on the record alone. Some records are released once: by the plan that holds them first, in
all its attempts alike, or, where sinks are ``fickle``, in the first delivery only, so that attempts disagree. Where
sinks defer, some records are deferred by the first plans that hold them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from coordinator.core.commands import StageRuns
from coordinator.protocol.messages import PartitionOutcomes
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.simulation.broker import Record, topic_partition_of
from tests.simulation.changes_judge import ACCEPT, DEFER, REJECT, RELEASE
from tests.simulation.session import GROUP
from tests.simulation.witness import Receipt

LOTS = 10
DEFERRED_BY = {7: 1, 8: 2, 9: 3}
"""By lot, the number of plans that defer a record, where sinks defer."""
MOST_DEFERRED_BY = 9
"""So many plans defer the first record of the last lot: more than any limit of tries."""


@dataclass(frozen=True, kw_only=True)
class SinkScenario:
    """``skips``, ``replaces``, ``writes_first``: by query. A sink that skips a batch id which it knows acknowledges
    first; one that replaces its output, and may say so (``replaces``), may do so afterwards. ``executor_dead_letters``:
    how often an executor writes its dead letter itself. ``dies``: how often a driver dies between staging and Spark's
    commit."""

    explicit: bool
    dead_letters: bool
    fickle: bool
    skips: tuple[bool, ...]
    replaces: tuple[bool, ...]
    writes_first: tuple[bool, ...]
    executor_dead_letters: float
    dead_letters_fail: float
    backoff_ms: int
    dies: float
    defers: bool = False

    @classmethod
    def of(cls, seed: int) -> SinkScenario:
        chance = random.Random(f"sinks {seed}")
        return cls(
            explicit=chance.random() < 0.4,
            dead_letters=chance.random() < 0.7,
            fickle=chance.random() < 0.5,
            skips=tuple(chance.random() < 0.5 for _ in range(3)),
            writes_first=tuple(chance.random() < 0.3 for _ in range(3)),
            executor_dead_letters=chance.choice((0.0, 0.5, 0.9)),
            dead_letters_fail=chance.choice((0.0, 0.3)),
            backoff_ms=chance.choice((0, 0, 3_000)),
            dies=chance.choice((0.0, 0.1, 0.3)),
            replaces=tuple(chance.random() < 0.5 for _ in range(3)),
        )

    @property
    def keeps_order(self) -> bool:
        """Whether sinks decide nothing behind a record that comes again, in a group in order."""
        return self.defers and not self.fickle

    @property
    def configs(self) -> dict[str, str]:
        return {
            "share.acknowledgement.mode": "explicit" if self.explicit else "implicit",
            "errors.deadletterqueue.topic.name": "dlq" if self.dead_letters else "",
            "share.release.backoff.ms": str(self.backoff_ms),
        }


@dataclass
class Judge:
    """The outcomes that all sinks of a run stage. ``modes_change``: a record that they pass over may be accepted in one
    attempt, and released in the next."""

    scenario: SinkScenario
    modes_change: bool = False
    peace: bool = False
    away: set[Record] = field(default_factory=set)
    """Records that were released since the service behind the sinks went down."""
    plans: dict[Record, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By record, the plans that held it when it was judged, the first one first."""

    def outcome(self, record: Record, count: int, number: int) -> int | None:
        """None: no row says anything of it."""
        lot = self._lot(record)
        if number not in (plans := self.plans[record]):
            plans.append(number)
        is_first = plans[0] == number
        if lot == 0:
            return REJECT
        if self.scenario.defers and plans.index(number) < self._deferred_by(record, lot):
            return DEFER
        if lot == 2 and self.scenario.defers and self.scenario.fickle:
            return (DEFER, RELEASE, ACCEPT)[count % 3]
        if lot == 5 and self.scenario.fickle:
            return (REJECT, None, RELEASE)[count % 3]
        if lot == 6 and self.scenario.fickle:
            return ACCEPT if count % 2 else None
        if lot in (1, 2) and self.scenario.fickle:
            return RELEASE if count == 1 else ACCEPT
        if lot == 3 and self.scenario.fickle:
            return REJECT if count == 1 else None
        if lot in (1, 2):
            return RELEASE if is_first else ACCEPT
        if lot == 4:
            return ACCEPT if self.peace or (self.scenario.explicit and not is_first) else None
        return ACCEPT

    def is_accepted(self, outcome: int | None, *, explicit: bool) -> bool:
        return outcome == ACCEPT or (outcome is None and not explicit)

    def is_rejected_always(self, record: Record) -> bool:
        return self._lot(record) == 0

    def changes(self, record: Record) -> bool:
        """Whether attempts may say different things of it."""
        if record in self.away or (self.modes_change and self._lot(record) == 4):
            return True
        return self.scenario.fickle and self._lot(record) in (1, 2, 3, 5, 6)

    def _deferred_by(self, record: Record, lot: int) -> int:
        return MOST_DEFERRED_BY if lot == 9 and record[1] < LOTS else DEFERRED_BY.get(lot, 0)

    def _lot(self, record: Record) -> int:
        return (record[0] * 5 + record[1] * 7) % LOTS


def in_order(said: Mapping[Receipt, int | None], *, explicit: bool) -> dict[Receipt, int | None]:
    """What is said once each record behind one that comes again is deferred, as ``sharegroup.in_order`` does it."""
    found: dict[Receipt, int | None] = {}
    waiting = set[int]()
    for receipt in sorted(said):
        found[receipt] = outcome = DEFER if receipt[0] in waiting else said[receipt]
        if outcome in (RELEASE, DEFER) or (outcome is None and explicit):
            waiting.add(receipt[0])
    return found


def staging(
    incarnation: str,
    query_id: str,
    said: Mapping[Receipt, OutcomeRun],
    *,
    plans: Mapping[str, int] | None = None,
    mode: str = "",
    replaces: bool = False,
) -> StageRuns:
    """Rows by receipt, as a sink's commit sends them. ``plans``: those that the sink's tasks found."""
    partitions = []
    for log, receipts in groupby(sorted(said), key=lambda receipt: receipt[0]):
        topic_id, partition = topic_partition_of(log)
        runs = tuple(_joined(said[receipt] for receipt in receipts))
        partitions.append(PartitionOutcomes(topic_id=topic_id, partition=partition, runs=runs))
    return StageRuns(
        group_id=GROUP,
        incarnation=incarnation,
        query_id=query_id,
        plans=dict(plans or {}),
        acknowledgement_mode=mode,
        replaces=replaces,
        partitions=tuple(partitions),
    )


def row(receipt: Receipt, outcome: int, delay_ms: int | None = None, letter: bool = False) -> OutcomeRun:
    _, offset, count = receipt
    return OutcomeRun(offset, offset, count, AcknowledgeType(outcome), delay_ms, letter)


def _joined(runs: Iterable[OutcomeRun]) -> list[OutcomeRun]:
    found: list[OutcomeRun] = []
    for run in runs:
        if found and found[-1].last == run.first - 1 and found[-1][2:] == run[2:]:
            found[-1] = found[-1]._replace(last=run.last)
        else:
            found.append(run)
    return found
