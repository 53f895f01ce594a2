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

GAP, ACCEPT, RELEASE, REJECT, _, DEFER = range(6)
GIVES_BACK = (RELEASE, DEFER)
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
        named: dict[int, int] | None = None,
        mode: str = "",
        replaces: bool = False,
        has_target: bool = True,
        unreadable: bool = False,
    ) -> tuple[int, int, int]:
        """How many rows were staged, how many were stale, and about how many an earlier commit of the attempt decided
        otherwise. ``pinned``: this life of the group. ``named``: the plans that the sink's tasks found, with their
        members' epochs. ``mode``: the sink's own. ``replaces``: its target does. ``unreadable``: the driver rejects,
        and no sink."""
        deciding = [m.pending for m in self.members.values() if m.query and m.pending is not None and m.pending.started]
        if not pinned or (rows and not deciding):
            raise Refused("outdated, or no plan")
        self.check_rows(rows)
        matching = [(plan, row) for row in rows if (plan := self.decided_by(row)) is not None]
        named_plans = [plan for plan in deciding if plan.plan_id in (named or {})]
        decided_now = {plan.plan_id: plan for plan, _ in matching}
        if any((named or {})[p.plan_id] < p.epoch for p in named_plans if p.plan_id not in decided_now):
            raise Refused("reclaimed since")
        if fail_on_stale and len(matching) < len(rows):
            raise Refused("stale")
        if rows and not matching and self.lost_nothing(named_plans or deciding):
            self.met["none held"] += 1
            raise Refused("none held")
        spoken_for = decided_now | {plan.plan_id: plan for plan in named_plans if not unreadable}
        if not unreadable:
            self.check_mode(deciding, list(spoken_for.values()), mode, has_target and not replaces)
        contradicted = 0
        for plan, row in matching:
            before = {said.outcome for said in plan.said.get(row.key, []) if said.count == row.count}
            contradicted += len(before) == 1 and row.outcome not in before
            delay_ms = row.delay_ms if row.outcome in GIVES_BACK else None
            at_ms = None if delay_ms is None else now_ms + delay_ms
            passed_over = not unreadable and self.is_passed_over(plan, row)
            said = Said(
                row.count, row.outcome, at_ms, delay_ms or 0, row.dead_letter, row.reason, passed_over, unreadable
            )
            plan.said.setdefault(row.key, []).append(said)
        for plan in spoken_for.values() if not unreadable else ():
            if plan.plan_id in decided_now:
                self.members[plan.member].query_id = query_id or self.members[plan.member].query_id
            self.met["nothing said"] += plan.plan_id not in decided_now
            self.members[plan.member].decides = True
            if plan.explicit:
                plan.heard.add(plan.reclaims)
            plan.targets.add(replaces)
        staged = [row for _, row in matching]
        for plan in spoken_for.values():
            late = [row for row in rows if row not in staged and row.key in plan.unreported_losses]
            given_back = [row.key for row in late if not self.is_done(row.outcome, is_written=row.dead_letter)]
            plan.lost_if_completed += given_back
            self.met["given back, and lost before"] += bool(given_back)
        return len(matching), len(rows) - len(matching), contradicted

    def check_mode(self, deciding: list[Plan], spoken_for: list[Plan], mode: str, skips: bool) -> None:
        other = [plan for plan in spoken_for or deciding if mode and plan.explicit != (mode == "explicit")]
        if other and (spoken_for or len(other) == len(deciding)):
            raise Refused("another mode")
        matters = any(plan.explicit and list(self.held(plan)) for plan in deciding)
        if skips and mode != "implicit" and not spoken_for and matters:
            self.met["no batch named"] += 1
            raise Refused("no batch named")

    def check_rows(self, rows: list[Row]) -> None:
        if any(self.is_of_no_delivery(row) for row in rows):
            raise Refused("never delivered")
        if any(self.is_of_an_earlier_attempt(row) for row in rows):
            raise Refused("reclaimed since")

    def is_of_no_delivery(self, row: Row) -> bool:
        """Whether no record was ever handed out at that count, as far as the model knows."""
        partition = self.partitions[row.key[0]]
        record = partition.records.get(row.key[1])
        return row.count < 1 or row.key[1] >= partition.end or (record is not None and row.count > record.count)

    def lost_nothing(self, plans: list[Plan]) -> bool:
        """Whether nothing is missing from the batches that rows may be of."""
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
        for key in plan.lost_if_completed:
            self.log_lost(key, None)
            self.met["lost, and completed"] += 1
        plan.unreported_losses, plan.lost_if_completed = [], []
        if plan.explicit and not member.decides and processed and held:
            self.give_back(held)
            return True
        missing = set(gaps)
        self.judge_rejects(plan, held, missing)
        keeps_tries = self.keeps_tries(member)
        if processed:
            outcomes = [o for key, record in held if (o := self.judged(plan, key, record, key in missing)) is not None]
            deferred = [True] * sum(self.is_deferred(plan, key, record) for key, record in held)
            self.met["all deferred"] += bool(deferred) and not outcomes
            keeps_tries = self.judge(member, outcomes or deferred, now_ms)
        keeps_tries = keeps_tries and processed
        decided = [self.decide(plan, key, record, key in missing, now_ms, keeps_tries) for key, record in held]
        member.evidence = member.evidence or (any(decided) and processed and plan.counts_as_evidence)
        self.settle()
        return False

    def log_lost(self, key: Key, number: int | None) -> None:
        super().log_lost(key, number)
        plan = self.plans.get(number or 0)
        if plan is None or plan is not self.members[plan.member].pending:
            return
        record, said = self.partitions[key[0]].records[key[1]], plan.said.get(key, [])
        outcome = self.outcome_of(plan, self.counting(plan, said, record), record)
        is_done = self.is_done(outcome, is_written=bool(said) and self.has_letter(said))
        if not is_done or (outcome == ACCEPT and self.is_unread(plan, key, record)):
            plan.lost_if_completed.append(key)

    def is_done(self, outcome: int, *, is_written: bool) -> bool:
        """Whether nothing is missing of a record that is gone. ``is_written``: its dead letter is."""
        return outcome == ACCEPT or (outcome == REJECT and (is_written or not self.dead_letters))

    def has_letter(self, said: list[Said]) -> bool:
        """Whether the dead letter of the last outcome is written."""
        return any(s.dead_letter for s in takewhile(lambda s: s.outcome == said[-1].outcome, reversed(said)))

    def judge_rejects(self, plan: Plan, held: list[tuple[Key, Record]], missing: set[Key]) -> None:
        """Counts the batch in the window of rejects; gives the rejected records back if they are too many."""
        plan.too_many = False
        if not plan.targets:
            return
        accepted = rejected = 0
        for key, record in held:
            said = plan.said.get(key, [])
            if said or key not in missing:
                outcome = self.outcome_of(plan, self.counting(plan, said, record), record)
                accepted += outcome == ACCEPT and not self.is_unread(plan, key, record)
                rejected += outcome == REJECT and not said[-1].unreadable and not self.is_gone(key)
        decided = self.decided + accepted + rejected
        if rejected and self.reject_ratio < 1 and decided >= RATIO_FROM:
            plan.too_many = self.rejected + rejected > self.reject_ratio * decided
        if plan.too_many:
            self.met["too many rejects"] += 1
            rejected = 0
        if accepted or rejected:
            self.decided, self.rejected = self.decided + accepted + rejected, self.rejected + rejected
        while self.decided > RATIO_WINDOW:
            self.decided, self.rejected = self.decided // 2, self.rejected // 2

    def counting(self, plan: Plan, said: list[Said], record: Record) -> list[Said]:
        """Returns what counts of what was said: the last attempt's alone if the target replaces its output."""
        return [s for s in said if s.count == record.count] if plan.targets == {True} else said

    def give_back(self, held: Iterable[tuple[Key, Record]]) -> None:
        for key, record in held:
            if key[1] < self.partitions[key[0]].log_start:
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
        said = self.counting(plan, said, record)
        if (outcome := self.outcome_of(plan, said, record)) == DEFER:
            return None
        if outcome == REJECT and plan.too_many and not said[-1].unreadable and not self.is_gone(key):
            return None  # given back as if it had not been delivered
        if outcome != RELEASE:
            return None if self.is_unread(plan, key, record) else False
        if self.is_gone(key):
            return None
        if said and said[-1].count == record.count:
            is_divided = len({s.outcome for s in said if s.count == record.count}) > 1
            return said[-1].outcome == RELEASE and said[-1].at_ms is None and not is_divided
        return plan.explicit

    def is_deferred(self, plan: Plan, key: Key, record: Record) -> bool:
        """Whether the record is deferred, and has no delay of its own."""
        said = self.counting(plan, plan.said.get(key, []), record)
        defers = bool(said) and self.outcome_of(plan, said, record) == DEFER and not self.is_gone(key)
        return defers and said[-1].at_ms is None

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
        letter = self.has_letter(said)
        said = self.counting(plan, said, record)
        outcome = self.outcome_of(plan, said, record)
        if outcome == ACCEPT and self.is_unread(plan, key, record):
            self.log_lost(key, None)
            self.archive(key, record, removed=True)
            self.met["gone, and maybe unread"] += 1
            return False
        if outcome == ACCEPT:
            record.end(ACKNOWLEDGED)
            self.partitions[key[0]].accepted += 1
        elif outcome == REJECT and plan.too_many and not said[-1].unreadable and not self.is_gone(key):
            record.state, record.plan_id = AVAILABLE, None
            return False
        elif outcome == REJECT:
            self.give_up(key, record, REJECTED, said[-1].reason)
            if record.state == ARCHIVING and letter:
                self.archive(key, record)
                self.met["dead letter was written"] += 1
        elif self.is_gone(key):
            self.log_lost(key, None)
            self.archive(key, record, removed=True)
        elif outcome == DEFER:
            at_ms = said[-1].at_ms
            record.delay_ms = 0 if at_ms is None else said[-1].delay_ms
            record.not_before_ms = now_ms if at_ms is None else min(at_ms, now_ms + said[-1].delay_ms)
            record.state, record.plan_id = AVAILABLE, None
            self.met["deferred"] += 1
            self.met["deferred, and quarantined"] += record.quarantined
        else:
            own = said[-1] if said and said[-1].outcome in GIVES_BACK else None
            why = DELIVERY_LIMIT if said else UNDECIDED
            self.release(key, record, now_ms, own, why, by_query=True, keeps_tries=keeps_tries)
        return outcome in (ACCEPT, REJECT)

    def outcome_of(self, plan: Plan, said: list[Said], record: Record) -> int:
        """Returns the last attempt's outcome, which may be silence. If any two attempts disagree, the record is
        released. If the target replaces what it holds, no attempt counts but the last one."""
        if said and said[-1].unreadable and said[-1].count == record.count:
            return said[-1].outcome
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

    def lost_before(self, name: str) -> list[tuple[Key, int]]:
        """Receipts that the sink of the query has read, of records that the log lost since."""
        member: Member | None = self.members.get(name)
        plan = member.pending if member is not None else None
        lost = plan.unreported_losses if plan is not None and plan.started else []
        return [(key, self.handed[key]) for key in lost if key in self.handed]

    def sink_of(self, name: str) -> list[tuple[Key, int]]:
        """The receipts of the started batch, which the query's sink has to decide."""
        member: Member | None = self.members.get(name)
        plan = member.pending if member is not None else None
        return [(key, record.count) for key, record in self.held(plan)] if plan is not None and plan.started else []
