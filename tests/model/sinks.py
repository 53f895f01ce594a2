"""The naive model's sinks (design §5): what was said of each record, in order, and what becomes of it at completion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.model.naive import ACKNOWLEDGED, ARCHIVING, AVAILABLE, REJECTED, Key, Member, Plan, Record, Refused, Said
from tests.model.plans import PlansModel

GAP, ACCEPT, RELEASE, REJECT = range(4)
RATIO_WINDOW, RATIO_FROM = 10_000, 100


class Row(NamedTuple):
    """What a sink's row says of the record that was delivered at this count."""

    key: Key
    count: int
    outcome: int
    delay_ms: int | None = None
    letter: bool = False
    reason: str = ""


class SinksModel(PlansModel):
    """PlansModel, with outcomes by row."""

    def stage(
        self, rows: list[Row], now_ms: int, query_id: str, *, pinned: bool, fail_on_stale: bool
    ) -> tuple[int, int]:
        """How many rows were staged, and how many were stale. ``pinned``: this life of the group and its topics."""
        deciding = [m.pending for m in self.members.values() if m.query and m.pending is not None and m.pending.used]
        if not pinned or (rows and not deciding):
            raise Refused("outdated, or no plan")
        if any(self.is_of_an_earlier_attempt(row) for row in rows):
            raise Refused("taken up since")
        matching = [(plan, row) for row in rows if (plan := self.decided_by(row)) is not None]
        rejects = sum(row.outcome == REJECT for _, row in matching)
        if fail_on_stale and len(matching) < len(rows):
            raise Refused("stale")
        decided, rejected = self.decided + len(matching), self.rejected + rejects
        if rejects and self.reject_ratio < 1 and decided >= RATIO_FROM and rejected > self.reject_ratio * decided:
            raise Refused("too many rejects")
        for plan, row in matching:
            at_ms = now_ms + row.delay_ms if row.outcome == RELEASE and row.delay_ms is not None else None
            passed_over = self.is_passed_over(plan, row)
            said = Said(row.count, row.outcome, at_ms, row.letter, row.reason, passed_over)
            plan.said.setdefault(row.key, []).append(said)
        decided_now = {plan.number: plan for plan, _ in matching}
        for plan in decided_now.values():
            self.members[plan.member].decides = True
            self.members[plan.member].query_id = query_id or self.members[plan.member].query_id
        if self.explicit:
            for plan in deciding:
                if plan.number in decided_now or self.may_be_of(plan, query_id, bool(matching)):
                    self.members[plan.member].decides = True
                    plan.heard.add(plan.reclaims)
                    self.met["nothing said"] += plan.number not in decided_now
        self.decided, self.rejected = decided, rejected
        while self.decided > RATIO_WINDOW:
            self.decided, self.rejected = self.decided // 2, self.rejected // 2
        return len(matching), len(rows) - len(matching)

    def is_passed_over(self, plan: Plan, row: Row) -> bool:
        """Whether a sink spoke in an earlier attempt, after the last one that named the record."""
        said = plan.said.get(row.key, [])
        named = max((plan.reclaims - (row.count - s.count) for s in said), default=-1)
        return row.outcome != RELEASE and any(named < attempt < plan.reclaims for attempt in plan.heard)

    def may_be_of(self, plan: Plan, query_id: str, has_rows: bool) -> bool:
        """Whether a sink that says nothing of a batch is this batch's: its rows, or what others named before, tell."""
        mine = self.members[plan.member].query_id
        if query_id and mine == query_id:
            return True
        if has_rows or (query_id and any(m.query_id == query_id for m in self.members.values())):
            return False
        return not (query_id and mine)

    def decided_by(self, row: Row) -> Plan | None:
        """The batch that a row is of: a used plan, the newest of its query, that carries the record at this count."""
        plan, count = self.carried_by(row)
        return plan if count == row.count else None

    def is_of_an_earlier_attempt(self, row: Row) -> bool:
        """Whether the record's batch was taken up by a later process since the row's was read."""
        plan, count = self.carried_by(row)
        return plan is not None and count - plan.reclaims <= row.count < count

    def carried_by(self, row: Row) -> tuple[Plan | None, int]:
        record = self.partitions[row.key[0]].records.get(row.key[1])
        plan = self.plans.get(record.number or 0) if record is not None else None
        if record is None or plan is None or not plan.query or not plan.used:
            return None, 0
        return (plan, record.count) if plan is self.members[plan.member].pending else (None, 0)

    def complete(self, name: str, epoch: int, number: int, processed: bool, gaps: Iterable[Key], now_ms: int) -> bool:
        """Whether all was given back, since there is no sink in explicit mode."""
        member = self.member(name, epoch)
        if number == member.completed:
            return False
        plan = member.newest
        if plan is None or plan.number != number:
            raise Refused("not the newest")
        held = list(self.held(plan))
        member.completed = number
        if self.explicit and not member.decides and processed and held:
            self.give_back(held)
            return True
        missing = set(gaps)
        decided = [self.decide(plan, key, record, key in missing, now_ms) for key, record in held]
        member.evidence = member.evidence or (any(decided) and processed and plan.vouches)
        self.settle()
        return False

    def give_back(self, held: Iterable[tuple[Key, Record]]) -> None:
        for key, record in held:
            if self.is_gone(key):
                self.log_lost(key, None)
                self.archive(key, record)
            else:
                record.state, record.number = AVAILABLE, None
        self.met["given back"] += 1
        self.settle()

    def is_gone(self, key: Key) -> bool:
        return key[1] < self.partitions[key[0]].log_start

    def decide(self, plan: Plan, key: Key, record: Record, missing: bool, now_ms: int) -> bool:
        """What becomes of a record when its batch is committed; whether it was accepted or rejected."""
        said = plan.said.get(key, [])
        if not said and missing:
            self.archive(key, record)
            self.met["gap at completion"] += 1
            return False
        outcome = self.outcome_of(said, record)
        if outcome == ACCEPT:
            record.end(ACKNOWLEDGED)
        elif outcome == REJECT:
            self.give_up(key, record, REJECTED, said[-1].reason)
            if record.state == ARCHIVING and any(s.letter for s in said):
                self.archive(key, record)
                self.met["letter was written"] += 1
        elif self.is_gone(key):
            self.log_lost(key, None)
            self.archive(key, record)
        else:
            own_ms = said[-1].at_ms if said and said[-1].outcome == RELEASE else None
            self.release(key, record, now_ms, own_ms)
        return outcome in (ACCEPT, REJECT)

    def outcome_of(self, said: list[Said], record: Record) -> int:
        """The last attempt's, of which silence is one; where any two attempts disagree the record is released."""
        outcomes = {s.outcome for s in said}
        if not said or said[-1].count != record.count:
            outcomes.add(RELEASE if self.explicit else ACCEPT)
            self.met["silence"] += bool(said)
        if any(s.passed_over for s in said):
            outcomes.add(RELEASE)
            self.met["passed over"] += 1
        self.met["veto"] += len(outcomes) > 1
        return outcomes.pop() if len(outcomes) == 1 else RELEASE

    def file_letters(self, keys: Iterable[Key], count: int) -> None:
        for key in keys:
            record = self.partitions[key[0]].records.get(key[1])
            if record is not None and record.state == ARCHIVING and record.count == count:
                self.archive(key, record)
                self.met["letter filed"] += 1
        self.settle()

    def waiting_for_letters(self) -> list[tuple[Key, int]]:
        """Records that are ARCHIVING, and the delivery that they were given up at."""
        return [
            ((index, offset), record.count)
            for index, partition in self.partitions.items()
            for offset, record in sorted(partition.records.items())
            if record.state == ARCHIVING
        ]

    def sink_of(self, name: str) -> list[tuple[Key, int]]:
        """What a query's sink is asked to decide: the receipts of its batch."""
        member: Member | None = self.members.get(name)
        plan = member.pending if member is not None else None
        return [(key, record.count) for key, record in self.held(plan)] if plan is not None and plan.used else []
