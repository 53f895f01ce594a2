"""Judges order by partition (docs/learn/order.md): one holder of a log's records, each delivered when all earlier ones
are done or in the same delivery, and outputs in offset order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator.core.record_state import HELD, TERMINAL, RecordState
from coordinator.core.runs import Run
from tests.simulation.broker import Record

if TYPE_CHECKING:
    from tests.simulation.ledger import Ledger


@dataclass
class OrderJudge:
    """The ledger's part about order. ``deliveries``: how many deliveries were judged, of groups in order."""

    ledger: Ledger
    deliveries: int = 0
    given_back: int = 0
    outputs: list[tuple[Record, ...]] = field(default_factory=list)
    """What each batch wrote, in the order in which Spark committed the batches."""
    _now: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By log, the offsets that the newest append has delivered."""

    def changed(self, key: Record, before: Run, after: Run) -> None:
        if after.state == RecordState.ACQUIRED and after.delivery_count != before.delivery_count:
            self._now[key[0]].add(key[1])

    def check_append(self) -> None:
        delivered, self._now = self._now, defaultdict(set)
        if not self.ledger.config.is_ordered:
            return
        for log, offsets in delivered.items():
            self.deliveries += 1
            undone = sorted((o, run) for (of, o), run in self.ledger.runs.items() if of == log and self._waits(of, o))
            holders = {self.ledger.plans[run.plan_id or 0].member_id for _, run in undone if run.state in HELD}
            if len(holders) > 1:
                self.ledger.world.fail(f"records of log {log} are held by {sorted(holders)}")
            number = self.ledger.runs[log, max(offsets)].plan_id
            earlier = [o for o, run in undone if o < max(offsets) and (run.state not in HELD or run.plan_id != number)]
            if earlier:
                self.ledger.world.fail(f"{sorted(offsets)} of log {log} are delivered, and {earlier} are not done")

    def _waits(self, log: int, offset: int) -> bool:
        run = self.ledger.runs[log, offset]
        is_done = run.state in (*TERMINAL, RecordState.ARCHIVING) or self.ledger.is_done((log, offset))
        return run.state in HELD or not is_done

    def is_given_back(self, key: Record, before: Run, after: Run) -> bool:
        """Whether the record goes back since an earlier one of its log does in the same append: no try, no failure."""
        log, offset = key
        is_no_try = after.plan_id is None and (after.failures, after.releases) == (before.failures, before.releases)
        back = is_no_try and any(
            (log, o) in self.ledger.just_changed and self.ledger.runs[log, o].state == RecordState.AVAILABLE
            for o in range(offset)
        )
        self.given_back += self.ledger.config.is_ordered and back
        return self.ledger.config.is_ordered and back

    def ends_with_its_holder(self, key: Record, before: Run) -> bool:
        """Whether work in progress ends since its holder has left, or its session has ended: it is not kept for a
        while."""
        plan, evidence = self.ledger.plans[before.plan_id or 0], self.ledger.evidence
        has_left = evidence.has_left(plan.member_id)
        return self.ledger.config.is_ordered and (
            has_left or evidence.may_lose(plan.member_id, key, before.delivery_count)
        )

    def check_outputs(self, excused: Iterable[Record]) -> None:
        """At the end: the outputs have each log in offset order. No sink may accept behind a record that comes again;
        records whose locks were lost are excused."""
        excused, last = set(excused), dict[int, int]()
        for batch in self.outputs:
            for log, offset in batch:
                if (log, offset) not in excused and offset < last.get(log, -1):
                    self.ledger.world.fail(f"{(log, offset)} is in an output after {last[log]}")
                last[log] = max(offset, last.get(log, -1))
