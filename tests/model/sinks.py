"""The naive model's sinks (docs/trust/protocol.md, "Outcomes of a sink"): what was said of each record, in order, and
what becomes of it at completion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import takewhile
from types import MappingProxyType
from typing import NamedTuple

from tests.model.breaker import BreakerModel
from tests.model.state import (
    ACKNOWLEDGED,
    ARCHIVING,
    AVAILABLE,
    DELIVERY_LIMIT,
    REJECTED,
    UNDECIDED,
    Key,
    Member,
    Plan,
    Record,
    Refused,
    Said,
)

GAP, ACCEPT, RELEASE, REJECT = range(4)
RATIO_WINDOW, RATIO_FROM = 10_000, 100


class Row(NamedTuple):
    """A row of a sink: the outcome of a record that was delivered at this count."""

    key: Key
    count: int
    outcome: int
    delay_ms: int | None = None
    dead_letter: bool = False
    reason: str = ""


class SinksModel(BreakerModel):
    """BreakerModel, with outcomes by row."""

    def stage(
        self,
        rows: list[Row],
        now_ms: int,
        query_id: str,
        *,
        pinned: bool,
        fail_on_stale: bool,
        mode: str = "",
        replaces: bool = False,
    ) -> tuple[int, int]:
        """How many rows were staged, and how many were stale. ``pinned``: this life of the group.
        ``mode``: the sink's own. ``replaces``: its target does."""
        deciding = [m.pending for m in self.members.values() if m.query and m.pending is not None and m.pending.started]
        if not pinned or (rows and not deciding):
            raise Refused("outdated, or no plan")
        self.check_rows(rows)
        matching = [(plan, row) for row in rows if (plan := self.decided_by(row)) is not None]
        rejects = sum(row.outcome == REJECT for _, row in matching)
        if fail_on_stale and len(matching) < len(rows):
            raise Refused("stale")
        if rows and not matching:
            self.check_some_held(query_id)
        decided, rejected = self.decided + len(matching), self.rejected + rejects
        if rejects and self.reject_ratio < 1 and decided >= RATIO_FROM and rejected > self.reject_ratio * decided:
            raise Refused("too many rejects")
        for plan, row in matching:
            delay_ms = row.delay_ms if row.outcome == RELEASE else None
            at_ms = None if delay_ms is None else now_ms + delay_ms
            passed_over = self.is_passed_over(plan, row)
            said = Said(row.count, row.outcome, at_ms, delay_ms or 0, row.dead_letter, row.reason, passed_over)
            plan.said.setdefault(row.key, []).append(said)
        decided_now = {plan.plan_id: plan for plan, _ in matching}
        for plan in decided_now.values():
            self.members[plan.member].decides = True
            self.members[plan.member].query_id = query_id or self.members[plan.member].query_id
        for plan in deciding:
            has_rows = plan.plan_id in decided_now
            if has_rows or self.may_be_of(plan, query_id, bool(matching)):
                self.heard_of(plan, mode, replaces, has_rows=has_rows, is_known=self.is_of(plan, query_id))
        self.decided, self.rejected = decided, rejected
        while self.decided > RATIO_WINDOW:
            self.decided, self.rejected = self.decided // 2, self.rejected // 2
        return len(matching), len(rows) - len(matching)

    def heard_of(self, plan: Plan, mode: str, replaces: bool, *, has_rows: bool, is_known: bool) -> None:
        """A sink has committed, surely or perhaps this batch's."""
        if mode == "explicit":
            plan.explicit = True
        elif mode == "implicit" and has_rows and plan.reclaims not in plan.heard:
            plan.explicit = False
        self.members[plan.member].decides = True
        if plan.explicit:
            plan.heard.add(plan.reclaims)
            self.met["nothing said"] += not has_rows
        if has_rows or is_known or (plan.explicit and not replaces):
            plan.targets.add(replaces)

    def check_rows(self, rows: list[Row]) -> None:
        if any(self.is_of_no_delivery(row) for row in rows):
            raise Refused("never delivered")
        if any(self.is_of_an_earlier_attempt(row) for row in rows):
            raise Refused("reclaimed since")

    def check_some_held(self, query_id: str) -> None:
        """No row is held: the query must have lost something of its batch."""
        if self.lost_nothing(query_id):
            self.met["none held"] += 1
            raise Refused("none held")

    def is_of_no_delivery(self, row: Row) -> bool:
        """Whether no record was ever handed out at that count, as far as the model knows."""
        partition = self.partitions[row.key[0]]
        record = partition.records.get(row.key[1])
        return row.count < 1 or row.key[1] >= partition.end or (record is not None and row.count > record.count)

    def lost_nothing(self, query_id: str) -> bool:
        """Whether the queries that rows may be of are in batches from which nothing is missing."""
        queries = [m for m in self.members.values() if m.query]
        its = [m for m in queries if query_id and m.query_id == query_id] or queries
        plans = [m.pending for m in its if m.pending is not None]
        return all(
            plan.started
            and bool(plan.offsets)
            and len(list(self.held(plan))) == len(plan.offsets)
            and not (plan.goes_without or plan.told)
            for plan in plans
        )

    def is_passed_over(self, plan: Plan, row: Row) -> bool:
        """Whether a sink wrote in an earlier attempt, after the last one that named the record."""
        said = plan.said.get(row.key, [])
        named = max((plan.reclaims - (row.count - s.count) for s in said), default=-1)
        return row.outcome != RELEASE and any(named < attempt < plan.reclaims for attempt in plan.heard)

    def may_be_of(self, plan: Plan, query_id: str, has_rows: bool) -> bool:
        """Whether a sink that sends nothing of a batch belongs to this batch: its rows, or the outcomes of others
        before, show that."""
        mine = self.members[plan.member].query_id
        if self.is_of(plan, query_id):
            return True
        if has_rows or (query_id and any(m.query_id == query_id for m in self.members.values())):
            return False
        return not (query_id and mine)

    def is_of(self, plan: Plan, query_id: str) -> bool:
        """Whether rows have come with this id before, for the plan's query."""
        return bool(query_id) and self.members[plan.member].query_id == query_id

    def decided_by(self, row: Row) -> Plan | None:
        """The batch that a row is of: a used plan, the newest of its query, that carries the record at this count."""
        plan, count = self.carried_by(row)
        return plan if plan is not None and plan.started and count == row.count else None

    def is_of_an_earlier_attempt(self, row: Row) -> bool:
        """Whether the record's batch was reclaimed by a later process since the row's was read, perhaps by one that
        only reported lost data."""
        plan, count = self.carried_by(row)
        return plan is not None and count - plan.reclaims <= row.count < count

    def carried_by(self, row: Row) -> tuple[Plan | None, int]:
        record = self.partitions[row.key[0]].records.get(row.key[1])
        plan = self.plans.get(record.plan_id or 0) if record is not None else None
        if record is None or plan is None or not plan.query:
            return None, 0
        return (plan, record.count) if plan is self.members[plan.member].pending else (None, 0)

    def complete(
        self,
        name: str,
        epoch: int,
        number: int,
        processed: bool,
        gaps: Iterable[Key],
        now_ms: int,
        logs: Mapping[int, range] = MappingProxyType({}),
    ) -> bool:
        """Whether all was given back, since there is no sink in explicit mode. ``logs``: the offsets that the logs of
        the plan hold now, where the brokers were asked."""
        self.logs = logs
        member = self.member(name, epoch)
        if number == member.completed:
            return False
        plan = member.newest
        if plan is None or plan.plan_id != number:
            raise Refused("not the newest")
        held = list(self.held(plan))
        member.completed = number
        if plan.explicit and not member.decides and processed and held:
            self.give_back(held)
            return True
        missing = set(gaps)
        keeps_tries = self.keeps_tries(member)
        if processed:
            outcomes = [o for key, record in held if (o := self.judged(plan, key, record, key in missing)) is not None]
            keeps_tries = self.judge(member, outcomes, now_ms)
        keeps_tries = keeps_tries and processed
        decided = [self.decide(plan, key, record, key in missing, now_ms, keeps_tries) for key, record in held]
        member.evidence = member.evidence or (any(decided) and processed and plan.counts_as_evidence)
        self.settle()
        return False

    def give_back(self, held: Iterable[tuple[Key, Record]]) -> None:
        for key, record in held:
            if self.is_gone(key):
                self.log_lost(key, None)
                self.archive(key, record)
            else:
                record.state, record.plan_id = AVAILABLE, None
        self.met["given back"] += 1
        self.settle()

    def is_gone(self, key: Key) -> bool:
        """Whether nobody gets the record again, as far as is known."""
        log = self.logs.get(key[0])
        return key[1] < max(self.partitions[key[0]].log_start, 0 if log is None else log.start)

    def is_unread(self, plan: Plan, key: Key, record: Record) -> bool:
        """Whether a task may have gone on without the record: it is gone, and no row shows that it was read."""
        log, said = self.logs.get(key[0]), plan.said.get(key, [])
        gone = self.is_gone(key) or (log is not None and key[1] >= log.stop)
        return gone and not plan.fails and not (said and said[-1].count == record.count)

    def judged(self, plan: Plan, key: Key, record: Record, missing: bool) -> bool | None:
        """Whether the last attempt released the record and gave it no delay of its own; None: it was not decided."""
        said = plan.said.get(key, [])
        if not said and missing:
            return None
        if plan.targets == {True}:
            said = [s for s in said if s.count == record.count]
        if self.outcome_of(plan, said, record) != RELEASE:
            return None if self.is_unread(plan, key, record) else False
        if self.is_gone(key):
            return None
        if said and said[-1].count == record.count:
            return said[-1].outcome == RELEASE and said[-1].at_ms is None
        return plan.explicit

    def decide(
        self, plan: Plan, key: Key, record: Record, missing: bool, now_ms: int, keeps_tries: bool = False
    ) -> bool:
        """Decides a record when its batch is committed. Returns whether the record was accepted or rejected."""
        said = plan.said.get(key, [])
        if said and plan.targets == {True}:
            self.met["what was replaced"] += said[0].count != record.count
        if not said and missing:
            self.archive(key, record)
            self.met["gap at completion"] += 1
            return False
        letter = any(s.dead_letter for s in takewhile(lambda s: s.outcome == said[-1].outcome, reversed(said)))
        if plan.targets == {True}:
            said = [s for s in said if s.count == record.count]
        outcome = self.outcome_of(plan, said, record)
        if outcome == ACCEPT and self.is_unread(plan, key, record):
            self.log_lost(key, None)
            self.archive(key, record, removed=True)
            self.met["gone, and maybe unread"] += 1
            return False
        if outcome == ACCEPT:
            record.end(ACKNOWLEDGED)
            self.partitions[key[0]].accepted += 1
        elif outcome == REJECT:
            self.give_up(key, record, REJECTED, said[-1].reason)
            if record.state == ARCHIVING and letter:
                self.archive(key, record)
                self.met["dead letter was written"] += 1
        elif self.is_gone(key):
            self.log_lost(key, None)
            self.archive(key, record, removed=True)
        else:
            own = said[-1] if said and said[-1].outcome == RELEASE else None
            why = DELIVERY_LIMIT if said else UNDECIDED
            self.release(key, record, now_ms, own, why, by_query=True, keeps_tries=keeps_tries)
        return outcome in (ACCEPT, REJECT)

    def outcome_of(self, plan: Plan, said: list[Said], record: Record) -> int:
        """Returns the last attempt's outcome, which may be silence. If any two attempts disagree, the record is
        released. If the target replaces what it holds, no attempt counts but the last one."""
        outcomes = {s.outcome for s in said}
        alone = plan.targets == {True}
        if not said or said[-1].count != record.count:
            named = max((plan.reclaims - (record.count - s.count) for s in said), default=-1)
            unheard = not alone and any(named < attempt for attempt in plan.heard)
            outcomes.add(RELEASE if plan.explicit or unheard else ACCEPT)
            self.met["silence in both modes"] += unheard and not plan.explicit
            self.met["silence"] += bool(said)
        if not alone and any(s.passed_over for s in said):
            outcomes.add(RELEASE)
            self.met["passed over"] += 1
        self.met["veto"] += len(outcomes) > 1
        return outcomes.pop() if len(outcomes) == 1 else RELEASE

    def mark_dead_letters_written(self, keys: Iterable[Key], count: int) -> None:
        for key in keys:
            record = self.partitions[key[0]].records.get(key[1])
            if record is not None and record.state == ARCHIVING and record.count == count:
                self.archive(key, record)
                self.met["dead letter filed"] += 1
        self.settle()

    def waiting_for_dead_letters(self) -> list[tuple[Key, int]]:
        """Records that are ARCHIVING, and the delivery that they were given up at."""
        return [
            ((index, offset), record.count)
            for index, partition in self.partitions.items()
            for offset, record in sorted(partition.records.items())
            if record.state == ARCHIVING
        ]

    def sink_of(self, name: str) -> list[tuple[Key, int]]:
        """The receipts of the started batch, which the query's sink has to decide."""
        member: Member | None = self.members.get(name)
        plan = member.pending if member is not None else None
        return [(key, record.count) for key, record in self.held(plan)] if plan is not None and plan.started else []
