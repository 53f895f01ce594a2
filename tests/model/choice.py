"""The records that an acquisition may choose (docs/trust/protocol.md; docs/learn/concepts.md, "Isolation"): checked
record by record, then applied."""

from __future__ import annotations

from coordinator.core.assignor import Assignment
from coordinator.protocol.values import SharePartitionKey
from tests.model.breaker import PROBE
from tests.model.plans import isolation_try, most_together
from tests.model.queues import WAITS_MS, check_delivery, due_in_line, has_work, in_line, is_held, without_plans
from tests.model.sinks import SinksModel
from tests.model.state import ACQUIRED, AVAILABLE, HELD, PARTITIONS, Key, Member, Partition, Plan, Record


class ChoiceModel(SinksModel):
    """SinksModel, with acquisitions and assignments that the core chose."""

    def may_acquire(self, now_ms: int) -> int | None:
        """How many records the rate and the limit of records in flight leave; None: any number. Acquisitions within the
        same 10 ms count until the last of them is a second old."""
        limits = []
        if self.in_flight is not None:
            held = sum(r.state in HELD for p in self.partitions.values() for r in p.records.values())
            limits.append(max(0, self.in_flight - held))
        if self.rate is not None:
            steps = {at_ms // 10: at_ms for at_ms, _ in self.acquisitions}
            recent = sum(n for at_ms, n in self.acquisitions if steps[at_ms // 10] > now_ms - 1_000)
            limits.append(0 if now_ms < self.closed_until_ms else max(0, self.rate - recent))
        return min(limits, default=None)

    def check_limits(
        self, chosen: list[Key], flow: int | None, ends: dict[int, int], now_ms: int, told: str | None
    ) -> bool:
        """Whether the group's limits let nothing be acquired. ``told``: which limit the member is told, as it must be
        if there is something to acquire; None: its plan tells losses alone."""
        if not self.paused and flow != 0:
            assert not told, f"told of {told}"
            assert flow is None or len(chosen) <= flow, f"{len(chosen)} are acquired, {flow} are left"
            self.met["acquired up to a limit"] += len(chosen) == flow
            return False
        assert not chosen, f"{len(chosen)} are acquired, though nothing may be: {flow}, {self.paused}"
        kinds = (self.due(ends, now_ms, alone=alone) for alone in (False, True))
        if told or (told is not None and (self.fresh(ends, now_ms) or any(kinds))):
            assert told.startswith("share.max." if flow == 0 else "share.paused"), f"told of {told!r}: {flow}"
        self.met[f"limited by {told}"] += 1
        return True

    def room(self, partition: Partition) -> int:
        return self.locks - sum(r.state in HELD for r in partition.records.values())

    def open_partitions(self, ends: dict[int, int]) -> dict[int, Partition]:
        return {
            index: p
            for index, p in self.partitions.items()
            if self.room(p) > 0 and index in ends and not (self.ordered and is_held(p))
        }

    def due(self, ends: dict[int, int], now_ms: int, *, alone: bool) -> list[tuple[Key, Record]]:
        """AVAILABLE records that may be acquired now, those that were quarantined or the others."""
        return [
            ((index, offset), record)
            for index, partition in self.open_partitions(ends).items()
            for offset, record in sorted(partition.records.items())
            if record.state == AVAILABLE
            and partition.start <= offset < ends[index]
            and (record.quarantined) == alone
            and (record.not_before_ms or 0) <= now_ms
            and self.is_in_turn(partition, offset, now_ms, alone=alone)
        ]

    def is_in_turn(self, partition: Partition, offset: int, now_ms: int, *, alone: bool) -> bool:
        """Whether order lets the record be delivered now: alone, it is the first one; else no earlier one waits."""
        line = [o for o, _ in in_line(partition)][:1] if alone else due_in_line(partition, now_ms)
        return not self.ordered or offset in line

    def check_assignment(self, assignment: Assignment, epoch: int, current: set[SharePartitionKey]) -> None:
        """Each partition of a topic that exists has a ShareConsumer with a session, if there is one, and each of these
        has as many as the others, up to one; the assignment's epoch never falls."""
        assert epoch >= self.assignment_epoch, f"the assignment epoch fell from {self.assignment_epoch} to {epoch}"
        self.assignment_epoch = epoch
        live = [name for name, m in self.members.items() if not m.query and m.deadline_ms is not None]
        if not live:
            return
        parts = [assignment.get(name, frozenset()) for name in live]
        assert frozenset().union(*parts) == current, f"{current} among {live}: {assignment}"
        assert max(map(len, parts)) - min(map(len, parts)) <= 1, assignment

    def long_alone(self, record: Record, now_ms: int) -> bool:
        """It has failed alone for so long that it goes on trial without evidence, where a dead letter keeps it."""
        return (
            self.dead_letters
            and record.failed_alone_ms is not None
            and now_ms - record.failed_alone_ms >= self.solo_timeout_ms
        )

    def on_trial(self, ends: dict[int, int]) -> list[Key]:
        """The records that a member with evidence has to try first: those that failed alone, whatever their backoff."""
        return [
            (index, offset)
            for index, partition in self.open_partitions(ends).items()
            for offset, r in partition.records.items()
            if r.state == AVAILABLE and r.failed_alone_ms is not None and partition.start <= offset < ends[index]
            if self.is_in_turn(partition, offset, 0, alone=True)
        ]

    def fresh(self, ends: dict[int, int], now_ms: int) -> int:
        """How many fresh records there are; in order, of partitions of which nothing has to wait."""
        return sum(
            max(0, ends[i] - p.end)
            for i, p in self.open_partitions(ends).items()
            if not self.ordered or len(due_in_line(p, now_ms)) == len(in_line(p))
        )

    def check_part(
        self, member: Member, chosen: list[Key], ends: dict[int, int], now_ms: int, assigned: dict[str, set[int]]
    ) -> dict[int, int]:
        """``ends`` without the partitions that the member has left to those that wait in an ordered group: no more than
        their part, and not those with the larger backlogs. Returns all if the member acquired nothing."""
        if not self.ordered or not chosen:
            return ends
        work = {index for index, end in ends.items() if has_work(self.partitions[index], end, now_ms)}
        wanted = [self.wanted(name, work, now_ms, assigned) for name in self.waits if name != member.name]
        shared, waiting = set[int]().union(*wanted), sum(map(bool, wanted))
        taken = {index for index, _ in chosen}
        assert len(taken & shared) <= -(-len(shared) // (1 + waiting)), "members that wait get their part"
        left = shared - taken if waiting else set()
        backlogs = {index: end - self.partitions[index].start for index, end in ends.items()}
        assert all(backlogs[i] <= backlogs[t] for i in left for t in taken & shared), "the smaller backlogs are left"
        self.met["in order: left to a member that waits"] += bool(left)
        return {index: end for index, end in ends.items() if index not in left}

    def wanted(self, name: str, work: set[int], now_ms: int, assigned: dict[str, set[int]]) -> set[int]:
        """Which of these partitions the member waits for."""
        until_ms, topic = self.waits[name]
        of_topic = {index for index in work if index // PARTITIONS == topic and until_ms > now_ms}
        return of_topic if self.members[name].query else of_topic & assigned[name]

    def found_nothing(self, member: Member, indexes: list[int], now_ms: int) -> None:
        """In an ordered group, a member that holds nothing waits for partitions that others hold."""
        holds = any(r.state in HELD for p in self.plans.values() if p.member == member.name for _, r in self.held(p))
        topics = {index // PARTITIONS for index in indexes if is_held(self.partitions[index])}
        known_ms, _ = self.waits.get(member.name, (0, 0))
        if self.ordered and topics and not holds and known_ms <= now_ms + WAITS_MS // 2:
            self.waits[member.name] = now_ms + WAITS_MS, topics.pop()
            self.met["in order: waits"] += 1

    def check_plan(
        self, member: Member, chosen: list[Key], trial: bool, most: int, mode: str, ends: dict[int, int], now_ms: int
    ) -> None:
        """A query's new plan. With an open breaker: none before its time, then few records, of which few came back."""
        if self.is_paused(member, now_ms):
            assert not chosen and not trial, "nothing before the pause is over"
            self.met["paused"] += 1
            return
        back_most: int | None = None
        if self.is_open(member):
            most = min(most, PROBE)
            back_most = self.back_together(most)
            self.met["probed"] += bool(chosen)
        returned, alone = self.due(ends, now_ms, alone=False), self.due(ends, now_ms, alone=True)
        must_try = self.on_trial(ends) if member.evidence else []
        after_trial = member.newest is not None and member.newest.trial
        if after_trial and (returned or self.fresh(ends, now_ms)):
            must_try = []
        aside = [k for k in chosen if k[1] in self.partitions[k[0]].records and self.at(k).quarantined]
        long_alone = len(aside) == 1 and self.long_alone(self.at(aside[0]), now_ms)
        assert trial == bool(must_try or long_alone), "on trial with evidence, and then first of all, or after a while"
        self.met["on trial without evidence"] += trial and not must_try
        if must_try:
            assert len(chosen) == 1 and chosen[0] in must_try, "a record on trial is alone"
        elif aside:
            assert len(chosen) == 1 and chosen[0] in [k for k, _ in alone], "a record that was quarantined is alone"
            its_turn = member.evidence and member.plans % 2 and not after_trial
            assert its_turn or (not returned and not self.fresh(ends, now_ms)), (
                "and waits until nothing else is available"
            )
            least = min(r.last_tried_ms or 0 for _, r in alone)
            assert (self.at(chosen[0]).last_tried_ms or 0) == least, "the least recently tried first"
        else:
            if not chosen:
                assert not returned and not self.fresh(ends, now_ms) and not alone, (
                    "nothing acquired, though there is something"
                )
            self.check_batch(chosen, dict(returned), most, mode if back_most is None else "record_limit")
            self.check_size(chosen, dict(returned), most, ends, back_most)

    def at(self, key: Key) -> Record:
        return self.partitions[key[0]].records[key[1]]

    def check_batch(self, chosen: list[Key], returned: dict[Key, Record], most: int, mode: str) -> None:
        back = [k for k in chosen if k in returned]
        fresh = [k for k in chosen if k not in returned]
        if returned and most > 0:
            assert back, "what came back is acquired before what is fresh"
        if back:
            kinds = {isolation_try(returned[k], self.limit) for k in back}
            assert len(kinds) == 1, "only records on the same try together"
            kind = kinds.pop()
            slice_size = most_together(returned[back[0]], self.limit, self.base)
            assert slice_size is None or len(chosen) <= slice_size, "slices shrink to one"
            assert not (kind and fresh), "no fresh record in an isolated slice"
            for index in {k[0] for k in back}:
                alike = [k for k, r in returned.items() if k[0] == index and isolation_try(r, self.limit) == kind]
                taken = sum(k[0] == index for k in back)
                assert sorted(alike)[:taken] == sorted(k for k in back if k[0] == index), "in offset order"
        if mode == "record_limit":
            assert len(chosen) <= most, "record_limit is never exceeded"
        assert not fresh or len(chosen) <= max(most, len(back)), "fresh records never exceed the limit"
        self.check_fresh(fresh)

    def check_size(
        self,
        chosen: list[Key],
        returned: dict[Key, Record],
        most: int,
        ends: dict[int, int],
        back_most: int | None = None,
    ) -> None:
        """No fewer than there are, and may be together."""
        first = next((returned[k] for k in chosen if k in returned), None)
        kind = isolation_try(first, self.limit) if first is not None else 0
        slice_size = most_together(first, self.limit, self.base) if first is not None else None
        possible, back = 0, sum(k in returned for k in chosen)
        assert back_most is None or back <= back_most, "few that came back"
        for index, partition in self.open_partitions(ends).items():
            mine = [isolation_try(r, self.limit) == kind for k, r in returned.items() if k[0] == index]
            alike = mine.index(False) if self.ordered and False in mine else sum(mine)
            if back_most is not None and back == back_most:
                alike = sum(k[0] == index and k in returned for k in chosen)
            fresh = 0 if kind else max(0, ends[index] - partition.end)
            if self.ordered and alike < len(in_line(partition)):
                fresh = 0
            possible += min(self.room(partition), alike + fresh)
        assert len(chosen) >= min(possible, most if slice_size is None else min(most, slice_size)), "too few"

    def check_fresh(self, fresh: list[Key]) -> None:
        for index in {k[0] for k in fresh}:
            offsets = sorted(o for i, o in fresh if i == index)
            end = self.partitions[index].end
            assert offsets == list(range(end, end + len(offsets))), "fresh records follow on each other"

    def check_fetched(
        self, member: Member, chosen: list[Key], ends: dict[int, int], now_ms: int, assigned: dict[str, set[int]]
    ) -> None:
        """In an ordered group a ShareConsumer gets something if a queue has work for it, and leaves others their
        part."""
        self.check_part(member, chosen, ends, now_ms, assigned)
        work = [i for i, end in ends.items() if has_work(self.partitions[i], end, now_ms)]
        assert chosen or not self.ordered or not work, f"nothing is delivered, and {work} have work"

    def check_fetch(self, index: int, chosen: list[int], most: int, mode: str, now_ms: int) -> None:
        """A ShareConsumer's, of one partition: Kafka's rule for records that keep failing."""
        records = self.partitions[index].records
        back = [records[o] for o in chosen if o in records]
        assert all((r.not_before_ms or 0) <= now_ms for r in back), "not before its time"
        tries = max((r.failures - r.query_failures + r.releases for r in back), default=0)
        if self.limit > 2 and tries >= self.limit - 1:
            assert len(chosen) == 1, "a record on its last attempt is alone"
        if mode == "record_limit":
            assert len(chosen) <= most
        self.check_fresh([(index, o) for o in chosen if o not in records])

    def acquired(self, member: Member, number: int, chosen: list[Key], trial: bool, now_ms: int) -> Plan:
        """Applies an acquisition to the model, and returns its plan."""
        assert number == self.last_plan_id + 1, "numbers never fall, and are group-wide"
        self.last_plan_id = number
        plan = Plan(number, member.name, member.epoch, member.query, chosen, trial=trial, acquired_ms=now_ms)
        plan.held_since_ms = now_ms
        plan.explicit = self.explicit
        by_partition = {index: [o for i, o in chosen if i == index] for index, _ in chosen} if self.ordered else {}
        for index, offsets in by_partition.items():
            check_delivery(self.partitions[index], offsets)
            self.met["in order: earlier plans ended"] += without_plans(self.partitions[index], offsets)
        if chosen:
            self.waits.pop(member.name, None)
            if self.rate is not None:
                self.acquisitions.append((now_ms, len(chosen)))
        for key in chosen:
            partition = self.partitions[key[0]]
            record = partition.records.setdefault(key[1], Record())
            assert record.state == AVAILABLE, f"{key} has a holder"
            assert key[1] >= partition.start, f"{key} is below the start offset"
            partition.end = max(partition.end, key[1] + 1)
            record.state, record.plan_id, record.reason = ACQUIRED, number, ""
            record.not_before_ms = record.delay_ms = None
            record.last_tried_ms = now_ms if record.quarantined else None
            record.deadline_ms = record.logged_ms = None if member.query else now_ms + self.lock_ms
            self.hand_out(key, record)
        for index in {key[0] for key in chosen}:  # a batch that a query comes back to may go beyond it
            acquired = sum(r.state in HELD for r in self.partitions[index].records.values())
            assert acquired <= self.locks, "the lock limit"
        self.plans[number] = plan
        member.seen_ms = now_ms
        member.plans += 1
        if member.query:
            given_up = member.pending
            before = [] if given_up is None else [*given_up.unreported_losses, *given_up.told]
            plan.unreported_losses = [*before, *self.unreported_losses]
            plan.superseded_plans = [] if given_up is None else [*given_up.superseded_plans, given_up.plan_id][-100:]
            self.unreported_losses = []
            member.newest = plan
        self.settle()
        return plan
