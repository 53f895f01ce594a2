"""The protocol (docs/trust/protocol.md) for single offsets: a dict from offset to what is known of it. No runs, no
indexes.

Written from the design, not from the core. What an acquisition may choose is checked (:mod:`tests.model.choice`);
everything else is predicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from coordinator.core.isolation import solo_backoff_ms
from tests.model.queues import give_back_after, take_along
from tests.model.state import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    DELIVERY_LIMIT,
    EXPIRED,
    HELD,
    IN_PROGRESS,
    PARTITIONS,
    TERMINAL,
    TTL,
    Backoff,
    Key,
    Member,
    Partition,
    Plan,
    Record,
    Refused,
    Said,
)

RELEASE = 2


@dataclass
class Naive:
    """The group, as plain objects by offset."""

    partitions: dict[int, Partition]
    limit: int = 5
    base: int = 100_000
    session_ms: int = 45_000
    lock_ms: int = 30_000
    extension_ms: int = 30 * 60_000
    stale_ms: int = 90_000
    signals_extend_ms: int = 30 * 60_000
    grace_ms: int = 5_000
    locks: int = 1_000_000
    dead_letters: bool = False
    explicit: bool = False
    ordered: bool = False
    waits: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By member of an ordered group that found everything held: until when it waits, and for which topic."""
    paused: bool = False
    """Whether the topic is; ``rate``, ``in_flight``: the group's limits on what is acquired."""
    rate: int | None = None
    in_flight: int | None = None
    acquisitions: list[tuple[int, int]] = field(default_factory=list)
    """The time and the number of records of each acquisition that the rate counts."""
    closed_until_ms: int = 0
    """Until this time nothing is acquired where there is a rate: the acquisitions before the load are not known."""
    backoff: Backoff = field(default_factory=Backoff)
    solo_timeout_ms: int = 600_000
    reject_ratio: float = 1.0
    breaker_ratio: float = 1.0
    decided: int = 0
    rejected: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    plans: dict[int, Plan] = field(default_factory=dict)
    last_plan_id: int = 0
    forgotten_epoch: int = 0
    assignment_epoch: int = 0
    ends_before: dict[int, int] = field(default_factory=dict)
    """By index, the end of what was handed out, of partitions whose offsets were deleted."""
    retention_ms: int = 604_800_000
    extended_until_ms: int = 0
    """Until this time each holder keeps the session's time that it was given last."""
    topic: int = 0
    """The number of the topic of this name that exists, or that existed last; ``deleted``: those whose deletion is
    known."""
    deleted: set[int] = field(default_factory=set)
    dropped: Counter[str] = field(default_factory=Counter)
    dropped_archived: Counter[int] = field(default_factory=Counter)
    """The counts of share partitions that no longer exist."""
    handed: dict[Key, int] = field(default_factory=dict)
    unreported_losses: list[Key] = field(default_factory=list)
    backing_off: dict[Key, tuple[int, int, int]] = field(default_factory=dict)
    """By record released just now, the time of the release, and the shortest and longest delay: the core chooses
    between them."""
    times_are_ahead: bool = False
    """True: the next check of deadlines bounds times that are ahead of the clock, and does nothing else."""
    pausing: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By query whose sink just released most of a batch, the time of the release, and the earliest and latest time of
    the next acquisition: the core chooses between them."""
    met: Counter[str] = field(default_factory=Counter)
    logs: Mapping[int, range] = field(default_factory=dict)
    """By index, the offsets that the log holds, as a completion that asked the brokers was told."""

    # --- small words

    def held(self, plan: Plan) -> Iterator[tuple[Key, Record]]:
        """The records that still carry the plan's number."""
        for key in plan.offsets:
            partition = self.partitions.get(key[0])
            record = None if partition is None else partition.records.get(key[1])
            if record is not None and record.plan_id == plan.plan_id and record.state in (AVAILABLE, *HELD):
                yield key, record

    def member(self, name: str, epoch: int) -> Member:
        member = self.members.get(name)
        if member is None or member.epoch != epoch or member.deadline_ms is None:
            raise Refused(name)
        return member

    def advance(self) -> None:
        """Start offsets move over what is done; below the log start stays what is held, or waits for a dead letter."""
        for partition in self.partitions.values():
            records = partition.records
            for offset in [o for o in records if o < partition.start and records[o].state not in (*HELD, ARCHIVING)]:
                del records[offset]
            while partition.start in records and records[partition.start].state in TERMINAL:
                del records[partition.start]
                partition.start += 1

    def archive(self, key: Key, record: Record, disposition: int = 0, *, removed: bool = False) -> None:
        """For good. One that waited for its dead letter keeps the reason that it was given up for. ``removed``: the log
        does not have it any more, wherever the group believes that the log begins."""
        disposition = record.disposition if record.state == ARCHIVING else disposition
        record.end(ARCHIVED)
        record.disposition = disposition
        partition = self.partitions[key[0]]
        if not disposition and (removed or key[1] < partition.log_start):
            self.count_removed(key[0])
            return
        partition.archived[disposition] += 1
        if disposition and not self.dead_letters:
            partition.without_dead_letter[disposition] += 1

    def give_up(self, key: Key, record: Record, disposition: int, reason: str = "") -> None:
        """Archived when its dead letter is filed; at once where the group wants none."""
        if not self.dead_letters:
            self.archive(key, record, disposition)
            return
        record.end(ARCHIVING)
        record.disposition, record.reason = disposition, reason
        self.met[f"given up {disposition}"] += 1

    def log_lost(self, key: Key, number: int | None) -> None:
        """The log lost what nobody reads: the query that waits for it is told, else the one that acquires next."""
        plan = self.plans.get(number or 0)
        if plan is not None and plan is self.members[plan.member].pending:
            plan.unreported_losses.append(key)
        elif any(member.query for member in self.members.values()):
            self.unreported_losses.append(key)

    def hand_out(self, key: Key, record: Record) -> None:
        """Delivery counts only grow, and none is handed out twice."""
        record.count += 1
        assert record.count > self.handed.get(key, 0), f"{key} was handed out with count {record.count} before"
        self.handed[key] = record.count

    def evidence_is_old(self) -> None:
        for member in self.members.values():
            member.evidence = False
            if member.newest is not None:
                member.newest.counts_as_evidence = False

    # --- what failing does

    def at_limit(self, record: Record) -> bool:
        return record.failures > 0 and record.failures + record.releases >= self.limit

    def quarantined(self, record: Record, delivered: int, now_ms: int) -> None:
        record.state, record.plan_id = AVAILABLE, None
        record.quarantined, record.failed_alone_ms = True, now_ms if delivered == 1 else None

    def failed_alone(self, record: Record, now_ms: int) -> bool:
        """True if it is the first time."""
        first = record.failed_alone_ms is None
        record.state, record.plan_id = AVAILABLE, None
        record.failed_alone_ms = now_ms if record.failed_alone_ms is None else record.failed_alone_ms
        record.last_tried_ms = now_ms
        record.delay_ms = solo_backoff_ms(record.failures, self.limit)
        record.not_before_ms = now_ms + record.delay_ms
        return first

    def lose_query_lock(self, plan: Plan, key: Key, record: Record, delivered: int, now_ms: int) -> tuple[bool, bool]:
        """(the group's evidence is old, a trial failed)."""
        if not plan.started:
            record.state = AVAILABLE
            return False, False
        record.failures, record.query_failures = record.failures + 1, record.query_failures + 1
        if not record.quarantined and self.at_limit(record):
            self.quarantined(record, delivered, now_ms)
            return True, False
        if record.quarantined:
            if not plan.trial:
                return self.failed_alone(record, now_ms), False
            if record.trials_lost:
                self.give_up(key, record, DELIVERY_LIMIT)
                return False, True
            record.trials_lost = 1
        record.state = AVAILABLE
        return False, False

    def lose_consumer_lock(self, key: Key, record: Record) -> None:
        record.failures, record.deadline_ms, record.progress = record.failures + 1, None, None
        if record.failures - record.query_failures + record.releases >= self.limit:
            self.give_up(key, record, EXPIRED)
        else:
            record.state = AVAILABLE

    def release(
        self,
        key: Key,
        record: Record,
        now_ms: int | None = None,
        own: Said | None = None,
        disposition: int = DELIVERY_LIMIT,
        *,
        by_query: bool = False,
        keeps_tries: bool = False,
    ) -> None:
        """Given back: at once; after the delay of its ``own``; or, with ``now_ms``, as the retry policy says. One whose
        lock was lost meanwhile had its try counted then. ``by_query``: with its batch; failures give nothing up.
        ``keeps_tries``: it is no try."""
        release, record.deadline_ms = record.releases + 1, None
        if record.state == IN_PROGRESS:  # its work had begun: a failure
            record.failures, record.progress = record.failures + 1, None
            if record.failures - record.query_failures + record.releases >= self.limit:
                self.give_up(key, record, disposition)
                return
        if record.state == ACQUIRED:
            record.releases = record.releases if keeps_tries else release
            if by_query:
                self.met["released, was quarantined"] += record.quarantined
                record.quarantined, record.failed_alone_ms, record.last_tried_ms = False, None, None
            tries = record.releases + (0 if by_query else record.failures - record.query_failures)
            if not keeps_tries and tries >= self.limit:
                reason = own.reason if own is not None and own.outcome == RELEASE else ""
                self.give_up(key, record, disposition, reason)
                return
        record.state, record.plan_id = AVAILABLE, None
        if own is not None and own.at_ms is not None and now_ms is not None:
            record.not_before_ms, record.delay_ms = min(own.at_ms, now_ms + own.delay_ms), own.delay_ms
        elif now_ms is not None and self.backoff.first_ms:
            self.backing_off[key] = (now_ms, *self.backoff.window_ms(release))
        elif now_ms is not None and by_query:
            record.not_before_ms, record.delay_ms = now_ms, 0

    # --- an administrator

    def alter_start(self, index: int, start: int, *, force: bool, now_ms: int) -> None:
        """The share partition begins anew: nothing of it is done, held or tried, and what was handed out may come
        again with counts above all before. What waits for its dead letter below the start goes on waiting."""
        if not force and any(m.deadline_ms or m.unheard_until_ms >= now_ms for m in self.members.values()):
            raise Refused("members")
        partition = self.partitions[index]
        open_before = {o for o, r in partition.records.items() if r.state not in TERMINAL}
        before = partition.end
        partition.start = max(start, partition.log_start)
        waiting = {o: r for o, r in partition.records.items() if o < partition.start and r.state == ARCHIVING}
        highest = max((count for key, count in self.handed.items() if key[0] == index), default=0)
        partition.end = max(partition.start, partition.end if highest else 0)
        again = range(partition.start, partition.end)
        partition.records = {**waiting, **{offset: Record(AVAILABLE, highest) for offset in again}}
        self.handed |= {(index, offset): highest for offset in again}
        open_after = set(partition.records)
        partition.skipped += len(open_before - open_after) + max(0, partition.start - before)
        partition.repeated += len(open_after - open_before) + (0 if highest else max(0, before - partition.start))
        for plan in self.plans.values():
            plan.said = {key: said for key, said in plan.said.items() if key[0] != index}
        self.met["offsets altered"] += 1

    # --- members

    def join(self, name: str, process: str, epoch: int | None, query: bool, now_ms: int) -> int:
        member = self.members.get(name)
        if member is None:
            if epoch and epoch <= self.forgotten_epoch:
                raise Refused("forgotten")
            member = self.members[name] = Member(name, query, self.forgotten_epoch + 1, process)
        elif process == member.process and epoch in (None, member.epoch):
            pass
        elif epoch is not None or process in member.fenced:
            raise Refused("fenced")
        else:
            member.fenced = [*member.fenced, member.process][-16:]
            member.epoch, member.process = member.epoch + 1, process
        member.deadline_ms, member.seen_ms, member.unheard_until_ms = now_ms + self.session_ms, now_ms, 0
        return member.epoch

    def heartbeat(self, name: str, epoch: int, now_ms: int) -> None:
        member = self.member(name, epoch)
        member.deadline_ms, member.seen_ms = now_ms + self.session_ms, now_ms

    def leave(self, name: str, epoch: int, now_ms: int) -> None:
        member = self.members.get(name)
        if member is None or member.epoch != epoch:
            raise Refused(name)
        self.end_session(member, now_ms, left=True)

    def end_session(self, member: Member, now_ms: int, *, left: bool) -> None:
        old = failed = False
        for plan in [p for p in self.plans.values() if p.member == member.name]:
            delivered, carried = len(plan.offsets), dict(self.held(plan))
            for key, record in [h for h in carried.items() if h[1].state in HELD]:
                if key[1] < self.partitions[key[0]].log_start:
                    if plan.query:
                        self.log_lost(key, record.plan_id)
                    self.archive(key, record)
                elif plan.query:
                    news, trial = self.lose_query_lock(plan, key, record, delivered, now_ms)
                    old, failed = old or news, failed or trial
                elif record.state == IN_PROGRESS and not self.ordered:
                    self.orphan(plan, key, record, now_ms)
                elif left:
                    self.release(key, record)
                else:
                    self.lose_consumer_lock(key, record)
            if self.ordered and plan.query:
                self.met["in order: taken along at a session's end"] += take_along(carried, plan)
        if old:
            self.evidence_is_old()
        if failed:
            member.evidence = False
        member.deadline_ms, member.unheard_until_ms = None, 0
        self.waits.pop(member.name, None)
        self.settle()

    def signals_until_ms(self, plan: Plan, progress: tuple[int, int, str]) -> int:
        """So long do these signals keep a record of the plan."""
        return min(progress[1] + self.stale_ms, plan.held_since_ms + self.signals_extend_ms)

    def orphan(self, plan: Plan, key: Key, record: Record, now_ms: int) -> None:
        """The member that works on it is gone: the record waits for the member, if it was there not long ago."""
        assert record.progress is not None
        assert record.deadline_ms is not None
        deadline_ms = min(self.signals_until_ms(plan, record.progress), record.deadline_ms)
        if deadline_ms < now_ms:
            self.lose_consumer_lock(key, record)
        else:
            record.deadline_ms = record.logged_ms = min(deadline_ms, now_ms + self.grace_ms)
            self.met["left, and works on"] += 1

    def stalled(self, ms: int, now_ms: int) -> None:
        """For ``ms`` before now nobody was heard: all deadlines move by that time; and from now on all have a session's
        time, unless they were given one less than a session ago."""
        self.extended_until_ms += ms
        is_full = now_ms >= self.extended_until_ms
        if is_full:
            self.extended_until_ms = now_ms + self.session_ms
        held = [r for partition in self.partitions.values() for r in partition.records.values() if r.state in HELD]
        for each in (*self.members.values(), *held):
            if each.deadline_ms is not None:
                each.deadline_ms = max(each.deadline_ms + ms, self.extended_until_ms if is_full else 0)
        for member in self.members.values():
            if member.unheard_until_ms:
                member.unheard_until_ms = self.extended_until_ms
        self.met[f"stall with a lock held{', a session given' if is_full else ''}"] += bool(held)

    def ahead(self, record: Record, now_ms: int) -> dict[str, int]:
        """The record's times that are ahead of the clock, bounded: a delay begins anew, what has happened has just
        happened."""
        if record.deadline_ms is not None:
            return {}
        limits = {"not_before_ms": now_ms + (record.delay_ms or 0), "failed_alone_ms": now_ms, "last_tried_ms": now_ms}
        return {name: limit for name, limit in limits.items() if (getattr(record, name) or 0) > limit}

    def is_used(self) -> bool:
        """Whether a member holds a record, or a query may come back to one."""
        return any(record.state in HELD or plan.query for plan in self.plans.values() for _, record in self.held(plan))

    def all_records(self) -> list[Record]:
        return [record for partition in self.partitions.values() for record in partition.records.values()]

    def expire(self, now_ms: int) -> None:
        if self.times_are_ahead:
            for record in self.all_records():
                for name, limit in self.ahead(record, now_ms).items():
                    setattr(record, name, limit)
            self.times_are_ahead = False
            return
        locks = [
            (partition, offset, record)
            for partition in self.partitions
            for offset, record in self.partitions[partition].records.items()
            if record.state in HELD and record.deadline_ms is not None and record.deadline_ms < now_ms
        ]
        for member in self.members.values():
            if member.deadline_ms is not None and member.deadline_ms < now_ms:
                self.end_session(member, now_ms, left=False)
        ended: set[Key] = set()
        for index, offset, record in locks:
            if record.state in HELD and record.deadline_ms is not None and record.deadline_ms < now_ms:
                self.met["lost in progress"] += record.state == IN_PROGRESS
                if offset < self.partitions[index].log_start:
                    self.archive((index, offset), record)
                else:
                    self.lose_consumer_lock((index, offset), record)
                    ended.add((index, offset))
        for index, offset in ended if self.ordered else ():
            partition = self.partitions[index]
            if partition.records[offset].state == AVAILABLE:
                self.met["in order: a lock ends later ones"] += give_back_after(partition, offset)
        self.settle()

    def settle(self) -> None:
        """Plans that nobody carries are dropped."""
        self.advance()
        for number in [n for n, plan in self.plans.items() if not any(True for _ in self.held(plan))]:
            del self.plans[number]

    # --- what the core forgets: when is its choice, what is not

    def member_forgotten(self, name: str, now_ms: int, kept: int) -> None:
        """Forgets the member; the group reports its losses."""
        resting = [member for member in self.members.values() if member.deadline_ms is None]
        member = self.members[name]
        assert member in resting and len(resting) > kept, f"{name} is forgotten among {len(resting)}"
        assert not any(plan.member == name for plan in self.plans.values()), f"{name} is forgotten, and holds records"
        assert now_ms - member.seen_ms > self.retention_ms, f"{name} is forgotten after {now_ms - member.seen_ms} ms"
        del self.members[name]
        self.forgotten_epoch = max(self.forgotten_epoch, member.epoch)
        if member.pending is not None:
            self.unreported_losses += member.pending.unreported_losses
        self.met["member forgotten"] += 1
        self.met["member forgotten, had plans"] += member.newest is not None

    def partition_forgotten(self, index: int, topic: int) -> None:
        """A deleted topic's, of which nobody has anything."""
        pending = [member.pending for member in self.members.values() if member.pending is not None]
        assert topic in self.deleted, f"partition {index} is forgotten, and its topic exists"
        assert not self.partitions[index].records, f"partition {index} is forgotten, and has records"
        needed = {key[0] for plan in (*self.plans.values(), *pending) for key in plan.offsets}
        assert index not in needed, f"partition {index} is forgotten, and a plan names it"
        self.drop(index)
        self.met["partition forgotten"] += 1

    def drop(self, index: int) -> int:
        """The share partition is no more, but its counts are; where it ended."""
        partition = self.partitions.pop(index)
        skipped = sum(record.state not in TERMINAL for record in partition.records.values())
        self.dropped += Counter(
            accepted=partition.accepted,
            removed=partition.removed,
            deleted=partition.deleted,
            skipped=partition.skipped + skipped,
            repeated=partition.repeated,
        )
        self.dropped_archived += partition.archived
        return partition.end

    # --- the log, the coordinator

    def topic_deleted(self, topic: int, ends: dict[int, int]) -> None:
        """Treats the logs as if they began where they ended."""
        if topic in self.deleted:
            return
        self.deleted.add(topic)
        for index, end in ends.items():
            self.move_log_start(index, max(end, self.partitions[index].end))
            self.partitions[index].log_start = max(end, self.partitions[index].end)

    def count_removed(self, index: int) -> None:
        """Kafka removed a record that was not done: with its topic, or below the log start."""
        partition = self.partitions[index]
        if index // PARTITIONS in self.deleted:
            partition.deleted += 1
        else:
            partition.removed += 1

    def move_log_start(self, index: int, log_start: int) -> None:
        partition = self.partitions[index]
        if log_start <= max(partition.start, partition.log_start):
            return
        partition.log_start = log_start
        for offset, record in partition.records.items():
            if partition.start <= offset < log_start and record.state == AVAILABLE:
                self.log_lost((index, offset), record.plan_id)
                self.archive((index, offset), record)
        for offset in range(partition.end, log_start):
            self.log_lost((index, offset), None)
            self.count_removed(index)
        partition.start, partition.end = max(partition.start, log_start), max(partition.end, log_start)
        self.settle()

    def archive_gap(self, index: int, first: int, last: int) -> None:
        """The log never had a record there; what somebody holds is his to decide."""
        for offset, record in self.partitions[index].records.items():
            if first <= offset <= last and offset >= self.partitions[index].start and record.state == AVAILABLE:
                self.archive((index, offset), record)
        self.settle()

    def too_old(self, index: int, end: int, read: range, gaps: set[int]) -> None:
        """What is too old is given up, unless a member holds it; an offset without a record is not too old."""
        partition = self.partitions[index]
        waiting = [o for o, r in partition.records.items() if partition.start <= o < end and r.state == AVAILABLE]
        for offset in waiting:
            self.give_up((index, offset), partition.records[offset], TTL)
        self.met["held, and too old"] += any(r.state in HELD and o < end for o, r in partition.records.items())
        if partition.end >= read.start and index // PARTITIONS not in self.deleted:
            for offset in range(partition.end, min(end, read.stop)):
                record = partition.records[offset] = Record(AVAILABLE)
                if offset in gaps:
                    self.archive((index, offset), record)
                else:
                    self.give_up((index, offset), record, TTL)
                partition.end = offset + 1
        self.settle()

    def reloaded(self, now_ms: int) -> None:
        """Every holder has one session timeout to come back, or what is left of a longer lock; the others join again.
        Renewals are forgotten, unless a snapshot has them."""
        self.extended_until_ms = now_ms + self.session_ms
        self.waits.clear()
        self.acquisitions.clear()
        self.closed_until_ms = now_ms + 1_000
        for plan in self.plans.values():
            plan.held_since_ms = plan.acquired_ms
        for member in self.members.values():
            member.deadline_ms, member.unheard_until_ms = None, now_ms + self.session_ms
        for plan in self.plans.values():
            for _, record in self.held(plan):
                if record.state in HELD:
                    self.members[plan.member].deadline_ms = now_ms + self.session_ms
                    if not plan.query:
                        lock_ms, given_ms = plan.acquired_ms + self.lock_ms, plan.acquired_ms
                        if record.progress is not None:
                            lock_ms = self.signals_until_ms(plan, record.progress)
                            given_ms = record.progress[1]
                        lock_ms = max(lock_ms, record.logged_ms or 0) - max(0, given_ms - now_ms)
                        self.met["a lock outlives a session"] += lock_ms > now_ms + self.session_ms
                        record.deadline_ms = max(now_ms + self.session_ms, lock_ms)
            plan.held_since_ms = min(plan.acquired_ms, now_ms)
        self.times_are_ahead = any(self.ahead(record, now_ms) for record in self.all_records())
        self.met["times are ahead of the clock"] += self.times_are_ahead

    def snapshotted(self) -> None:
        """The log is a snapshot now: it has the deadlines of this moment."""
        for partition in self.partitions.values():
            for record in partition.records.values():
                record.logged_ms = record.deadline_ms
