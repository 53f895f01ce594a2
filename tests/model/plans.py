"""The naive model's plans of queries: start, reclaim; and ShareConsumers' acknowledgements and signals."""

from __future__ import annotations

from coordinator.core.isolation import integer_root
from tests.model.naive import Naive
from tests.model.queues import first_left, give_back_after
from tests.model.state import (
    ACKNOWLEDGED,
    ACQUIRED,
    AVAILABLE,
    DELIVERY_LIMIT,
    HELD,
    IN_PROGRESS,
    REJECTED,
    TERMINAL,
    Key,
    Member,
    Plan,
    Record,
    Refused,
    Said,
)

Ack = tuple[int, int, int, list[int]]  # first, last, the receipt's count, a type for each offset
Signal = tuple[int, int, int, str | None]  # first, last, the receipt's count, a hint


def isolation_try(record: Record, limit: int) -> int:
    """0: not isolated; else the try that its next delivery is."""
    current = record.failures + 1
    return current if limit > 2 and current >= max(2, -(-limit // 2)) else 0


def most_together(record: Record, limit: int, base: int) -> int | None:
    """docs/learn/concepts.md, Isolation: max(1, floor(B^((L-c)/(L-t+1)))) with a record on its c-th try; None: no
    cut."""
    current, threshold = min(isolation_try(record, limit), limit), max(2, -(-limit // 2))
    if not current:
        return None
    return max(1, integer_root(base ** (limit - current), limit - threshold + 1))


class PlansModel(Naive):
    """Naive, with what queries do to plans."""

    def pending_plan(self, member: Member, start: int) -> Plan | None:
        """The unused plan that latestOffset(start) finds, if any; Refused for a start that was rolled back."""
        pending = member.pending
        if pending is not None and (pending.started or start == pending.plan_id):
            raise Refused("started")
        if start != member.completed:
            raise Refused("rolled back")
        return pending

    def pending_again(self, member: Member, plan: Plan) -> bool:
        """Whether the plan not yet used is the answer, be it nothing any more; a later process reclaims it."""
        if plan.epoch == member.epoch:
            return True
        kept, gone = self.come_back(member, plan, 0, {})
        plan.unreported_losses += gone
        if kept:
            plan.told = []
            plan.epoch, plan.explicit = member.epoch, self.explicit
            plan.lost_if_completed = [*plan.unreported_losses] if self.explicit else []
            plan.reclaims += 1
            plan.targets = set()
            plan.offsets = kept
            plan.counts_as_evidence = plan.goes_without = False
            plan.fails = True
        return bool(kept)

    def come_back(
        self, member: Member, plan: Plan, now_ms: int, log_starts: dict[int, int]
    ) -> tuple[list[Key], list[Key]]:
        """Reclaim: what the batch goes on with, and what the log lost of it."""
        later, delivered = plan.epoch != member.epoch, len(plan.offsets)
        kept: list[Key] = []
        gone: list[Key] = []
        candidates: list[tuple[Key, Record]] = []
        old = trial_failed = False
        carried = list(self.held(plan))
        for key, record in carried:
            if key[1] < max(self.partitions[key[0]].log_start, log_starts.get(key[0], 0)):
                gone.append(key)
                self.archive(key, record, removed=True)
            elif not later:
                if record.state == ACQUIRED:
                    kept.append(key)
                else:
                    candidates.append((key, record))
            else:
                lost = plan.started and record.state == ACQUIRED
                record.failures, record.query_failures = record.failures + lost, record.query_failures + lost
                if plan.started and plan.trial:
                    self.give_up(key, record, DELIVERY_LIMIT)
                    trial_failed = True
                elif plan.started and record.quarantined:
                    old = self.failed_alone(record, now_ms) or old
                elif plan.started and self.at_limit(record):
                    self.quarantined(record, delivered, now_ms)
                    old = True
                else:
                    candidates.append((key, record))
        kept += self.cut(plan, candidates, first_left(carried) if self.ordered else None)
        if old:
            self.evidence_is_old()
        if trial_failed:
            member.evidence = False
        self.settle()
        return sorted(kept, key=plan.offsets.index), gone

    def cut(self, plan: Plan, candidates: list[tuple[Key, Record]], left: dict[int, int] | None = None) -> list[Key]:
        """The cut comes first: what is not kept goes back with its count unchanged. ``left``: in an ordered group, the
        first record of each partition that has left the batch."""
        if left is not None:
            for key, record in [c for c in candidates if c[0][1] > left.get(c[0][0], c[0][1])]:
                record.state, record.plan_id = AVAILABLE, None
                candidates.remove((key, record))
                self.met["in order: taken along at a reclaim"] += 1
        if not candidates:
            return []
        first = candidates[0][1]
        kind, most = isolation_try(first, self.limit), most_together(first, self.limit, self.base)
        kept: list[Key] = []
        stopped: set[int] = set()
        for key, record in candidates:
            if key[0] in stopped:
                record.state, record.plan_id = AVAILABLE, None
            elif isolation_try(record, self.limit) == kind and (most is None or len(kept) < most):
                record.state, record.not_before_ms, record.delay_ms, record.reason = ACQUIRED, None, None, ""
                self.hand_out(key, record)
                kept.append(key)
            else:
                record.state, record.plan_id = AVAILABLE, None
                stopped.update({key[0]} if self.ordered else ())
        return kept

    def reclaim(
        self, name: str, epoch: int, number: int, now_ms: int, log_starts: dict[int, int], fail: bool, mode: str = ""
    ) -> Plan:
        """partitions(end): what was lost is told, and if that fails the query, nobody reads the plan. ``mode``: the
        query's own; else the group's holds."""
        member = self.member(name, epoch)
        plan = member.newest
        if member.superseded_plans(number):
            return self.reclaim_empty(member, number, log_starts, fail)
        if plan is None or plan.plan_id != number or member.completed == number:
            raise Refused("not the newest")
        if plan.started and plan.epoch == member.epoch:
            return plan
        told = plan.told if plan.epoch == member.epoch else []
        offered = plan.offsets
        plan.offsets, gone = self.come_back(member, plan, now_ms, log_starts)
        plan.goes_without = bool(set(offered) - {*plan.offsets, *gone, *plan.unreported_losses})
        plan.told = [*told, *plan.unreported_losses, *gone]
        plan.unreported_losses, plan.lost_if_completed = [], []
        if plan.epoch != member.epoch:
            plan.reclaims += 1
            plan.targets = set()
        plan.epoch, plan.started = member.epoch, not (plan.told and fail)
        plan.counts_as_evidence = plan.started
        plan.explicit = mode == "explicit" if mode else self.explicit
        plan.fails = fail
        return plan

    def reclaim_empty(self, member: Member, number: int, log_starts: dict[int, int], fail: bool) -> Plan:
        """Spark logged a plan that was given up: nothing is in it, and what took its place goes back."""
        newest = member.newest
        assert newest is not None
        plan = member.newest = Plan(number, member.name, member.epoch, True, [], told=newest.unreported_losses)
        for key, record in list(self.held(newest)):
            if key[1] < max(self.partitions[key[0]].log_start, log_starts.get(key[0], 0)):
                plan.told.append(key)
                self.archive(key, record, removed=True)
            else:
                record.state, record.plan_id = AVAILABLE, None
        plan.started = plan.counts_as_evidence = not (plan.told and fail)
        self.settle()
        return plan

    def acknowledge(
        self, name: str, epoch: int, index: int, acks: list[Ack], now_ms: int, reason: str, delay_ms: int | None
    ) -> bool:
        """One partition, all or nothing: False if it is refused. ``reason``, ``delay_ms``: of all that it rejects and
        releases."""
        self.member(name, epoch)
        partition = self.partitions[index]
        decided: dict[int, int] = {}
        for first, last, count, types in acks:
            if last >= partition.start and last >= partition.end:
                return False
            for offset, kind in zip(range(first, last + 1), types, strict=True):
                record = partition.records.get(offset)
                if offset in decided:
                    return False
                decided[offset] = kind
                if offset < partition.start:
                    continue
                if record is None or not self.holds(name, record) or record.count != count:
                    return False
                if kind == 4 and record.state == IN_PROGRESS:
                    return False  # signals extend its lock
        for offset, kind in decided.items():
            record = partition.records.get(offset)
            if offset >= partition.start:
                assert record is not None
                self.outcome((index, offset), record, kind, now_ms, reason, delay_ms)
            elif record is not None and kind != 4 and self.holds(name, record):
                self.archive((index, offset), record)
        released = [o for o, kind in decided.items() if kind == 2 and self.is_available(index, o)]
        if self.ordered and released:
            self.met["in order: given back after a release"] += give_back_after(partition, min(released), decided)
        self.settle()
        return True

    def is_available(self, index: int, offset: int) -> bool:
        record = self.partitions[index].records.get(offset)
        return record is not None and record.state == AVAILABLE

    def holds(self, name: str, record: Record) -> bool:
        plan = self.plans.get(record.plan_id or 0)
        return record.state in HELD and plan is not None and plan.member == name

    def mark_in_progress(self, name: str, index: int, signals: list[Signal], now_ms: int) -> bool:
        """Whether the signals of the partition are taken: all of them, or none."""
        partition = self.partitions[index]
        named = [offset for first, last, *_ in signals for offset in range(first, last + 1)]
        if len(named) != len(set(named)):
            return False
        if any(len((hint or "").encode()) > 256 for *_, hint in signals):
            return False
        for first, last, count, _ in signals:
            for offset in range(first, last + 1):
                record = partition.records.get(offset)
                if record is None or not self.holds(name, record) or record.count != count:
                    return False
                if offset < partition.start:
                    continue
                plan = self.plans[record.plan_id or 0]
                if plan.query or now_ms > plan.held_since_ms + self.signals_extend_ms:
                    self.met["signal of a query, or over the extension"] += 1
                    return False
        for first, last, _, hint in signals:
            for offset in range(max(first, partition.start), last + 1):
                self.signal(partition.records[offset], hint, now_ms)
        return True

    def signal(self, record: Record, hint: str | None, now_ms: int) -> None:
        first_ms, _, before = record.progress or (now_ms, now_ms, "")
        record.state, record.progress = IN_PROGRESS, (min(first_ms, now_ms), now_ms, before if hint is None else hint)
        record.deadline_ms = record.logged_ms = self.signals_until_ms(self.plans[record.plan_id or 0], record.progress)

    def outcome(
        self, key: Key, record: Record, kind: int, now_ms: int, reason: str = "", delay_ms: int | None = None
    ) -> None:
        if kind == 1:
            record.end(ACKNOWLEDGED)
            self.partitions[key[0]].accepted += 1
        elif kind == 2:
            own = None if delay_ms is None else Said(record.count, kind, now_ms + delay_ms, delay_ms)
            self.release(key, record, now_ms, own)
        elif kind == 3:
            self.give_up(key, record, REJECTED, reason)
        elif kind == 4:
            plan = self.plans[record.plan_id or 0]
            if not plan.query:
                cap_ms = plan.held_since_ms + self.extension_ms
                record.deadline_ms = max(min(now_ms + self.lock_ms, cap_ms), record.deadline_ms or 0)
        else:
            self.archive(key, record)

    def lag(self, index: int, end: int) -> int:
        partition = self.partitions[index]
        done = sum([r.state in TERMINAL for o, r in partition.records.items() if o >= partition.start])
        return max(0, end - partition.start - done)
