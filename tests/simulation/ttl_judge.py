"""Judges share.record.ttl.ms by what was appended: nothing is given up that a member holds, or that is younger by the
world's clock, and a delivery of what was given up is a change of what is done."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from tests.simulation.broker import Record

if TYPE_CHECKING:
    from tests.simulation.ledger import Ledger

TOO_OLD = "too old"


@dataclass
class TtlJudge:
    """The ledger's part about records that waited for too long. ``met``: how many were given up, by what they were."""

    ledger: Ledger
    met: Counter[str] = field(default_factory=Counter)

    def wrong(self, key: Record, before: Run, after: Run) -> str:
        """Returns why it is wrong to give up the record for its age, in a sentence; empty: it is right."""
        ledger, ttl_ms = self.ledger, self.ledger.config.share_record_ttl_ms
        age_ms = ledger.world.now_ms - ledger.broker.timestamp_ms(key)
        if before.state != RecordState.AVAILABLE:
            return "is given up for its age, and a member holds it"
        if ttl_ms is None or age_ms <= ttl_ms:
            return f"is given up for its age, and is {age_ms} ms old, of {ttl_ms} ms"
        if (after.state == RecordState.ARCHIVED) == ledger.dead_letters:
            return "is given up for its age, and its dead letter is not written"
        ledger.archived[key] = TOO_OLD
        self.met["fresh" if before.delivery_count == 0 else "lost" if before.plan_id is not None else "released"] += 1
        return ""
