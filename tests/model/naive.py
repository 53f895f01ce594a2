"""The protocol (docs/protocol.md) for single offsets: a dict from offset to what is known of it. No runs, no indexes.

Written from the design, not from the core. What an acquisition may choose is checked (:mod:`tests.model.choice`);
everything else is predicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from coordinator.core.isolation import solo_backoff_ms

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = 0, 1, 2, 3, 4
TERMINAL = (ACKNOWLEDGED, ARCHIVED)
REJECTED, DELIVERY_LIMIT, EXPIRED, UNDECIDED = 1, 2, 3, 4
"""Why a record was given up."""
Key = tuple[int, int]


class Refused(Exception):
    """The command is refused, and nothing changes."""


@dataclass(slots=True)
class Record:
    """One offset."""

    state: int = AVAILABLE
    count: int = 0
    failures: int = 0
    releases: int = 0
    plan_id: int | None = None
    deadline_ms: int | None = None
    not_before_ms: int | None = None
    quarantined: bool = False
    failed_alone_ms: int | None = None
    last_tried_ms: int | None = None
    trials_lost: int = 0
    disposition: int = 0
    reason: str = ""

    def end(self, state: int) -> None:
        self.__init__(state, self.count)  # type: ignore[misc]


KNOWN = attrgetter(
    "state",
    "count",
    "failures",
    "releases",
    "plan_id",
    "deadline_ms",
    "not_before_ms",
    "quarantined",
    "failed_alone_ms",
    "last_tried_ms",
    "trials_lost",
    "disposition",
    "reason",
)
"""What is known of a record, in the order of a run's fields."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a sink said of a record once. at_ms: when a release of its own delay ends. passed_over: since the record was
    named before, or ever, an earlier attempt said nothing of it, and that was a release."""

    count: int
    outcome: int
    at_ms: int | None = None
    dead_letter: bool = False
    reason: str = ""
    passed_over: bool = False


@dataclass(frozen=True, slots=True)
class Backoff:
    """The group's retry policy; first_ms 0: none."""

    first_ms: int = 0
    multiplier: float = 2.0
    max_ms: int = 300_000
    jitter: float = 0.0

    def window_ms(self, release: int) -> tuple[int, int]:
        """Between what a record waits after so many releases."""
        grown_ms = self.first_ms * self.multiplier ** (release - 1)
        low, high = (int(min(grown_ms * (1 + sign * self.jitter), self.max_ms)) for sign in (-1, 1))
        return low, high


@dataclass(slots=True)
class Plan:
    plan_id: int
    member: str
    epoch: int
    query: bool
    offsets: list[Key]
    trial: bool = False
    started: bool = False
    counts_as_evidence: bool = False
    acquired_ms: int = 0
    unreported_losses: list[Key] = field(default_factory=list)
    told: list[Key] = field(default_factory=list)
    superseded_plans: list[int] = field(default_factory=list)
    """Plans that it took the place of, and that nobody used."""
    explicit: bool = False
    """Silence of this attempt is a release: as the group, or the query itself, had it when the attempt began, or as its
    sink said."""
    targets: set[bool] = field(default_factory=set)
    """Whether the targets of this attempt's sinks replace what they hold of the batch, as far as they said anything."""
    reclaims: int = 0
    """How often a later process came back to it: each time with all counts raised by one."""
    goes_without: bool = False
    """Whether something of it was left out when it was taken up last, that the log still has."""
    said: dict[Key, list[Said]] = field(default_factory=dict)
    """All that sinks ever said of its records, in order."""
    heard: set[int] = field(default_factory=set)
    """Attempts in which a sink said anything, or that it had nothing to say, where silence is a release: how often the
    batch had been taken up by then."""


@dataclass(slots=True)
class Member:
    name: str
    query: bool
    epoch: int = 0
    process: str = ""
    fenced: list[str] = field(default_factory=list)
    deadline_ms: int | None = None
    newest: Plan | None = None
    completed: int = 0
    evidence: bool = False
    decides: bool = False
    query_id: str = ""
    """Spark's, as the sink that staged its rows last named it."""

    @property
    def pending(self) -> Plan | None:
        return self.newest if self.newest is not None and self.newest.plan_id != self.completed else None

    def superseded_plans(self, number: int) -> bool:
        """Whether nobody used this plan, nor the one that is there instead."""
        plan = self.pending
        return plan is not None and not plan.started and not plan.told and number in plan.superseded_plans


@dataclass(slots=True)
class Partition:
    records: dict[int, Record] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    log_start: int = 0
    archived: Counter[int] = field(default_factory=Counter)
    """Records by the reason that they are archived for; 0: the log does not hold them."""


@dataclass
class Naive:
    """The group."""

    partitions: dict[int, Partition]
    limit: int = 5
    base: int = 100_000
    session_ms: int = 45_000
    lock_ms: int = 30_000
    extension_ms: int = 30 * 60_000
    locks: int = 1_000_000
    dead_letters: bool = False
    explicit: bool = False
    backoff: Backoff = field(default_factory=Backoff)
    solo_timeout_ms: int = 600_000
    reject_ratio: float = 1.0
    decided: int = 0
    rejected: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    plans: dict[int, Plan] = field(default_factory=dict)
    last_plan_id: int = 0
    handed: dict[Key, int] = field(default_factory=dict)
    unreported_losses: list[Key] = field(default_factory=list)
    backing_off: dict[Key, tuple[int, int]] = field(default_factory=dict)
    """Records that were just released, and between what times they may come back: which is the core's choice."""
    met: Counter[str] = field(default_factory=Counter)

    # --- small words

    def held(self, plan: Plan) -> Iterator[tuple[Key, Record]]:
        """What still carries the plan's number."""
        for key in plan.offsets:
            record = self.partitions[key[0]].records.get(key[1])
            if record is not None and record.plan_id == plan.plan_id and record.state in (AVAILABLE, ACQUIRED):
                yield key, record

    def member(self, name: str, epoch: int) -> Member:
        member = self.members.get(name)
        if member is None or member.epoch != epoch or member.deadline_ms is None:
            raise Refused(name)
        return member

    def advance(self) -> None:
        """Start offsets move over what is done; below the log start stays what is held, or waits for a letter."""
        for partition in self.partitions.values():
            records = partition.records
            for offset in [o for o in records if o < partition.start and records[o].state not in (ACQUIRED, ARCHIVING)]:
                del records[offset]
            while partition.start in records and records[partition.start].state in TERMINAL:
                del records[partition.start]
                partition.start += 1

    def archive(self, key: Key, record: Record, disposition: int = 0) -> None:
        """For good. One that waited for its letter keeps the reason that it was given up for."""
        disposition = record.disposition if record.state == ARCHIVING else disposition
        record.end(ARCHIVED)
        record.disposition = disposition
        self.partitions[key[0]].archived[disposition] += 1

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
        record.not_before_ms = now_ms + solo_backoff_ms(record.failures, self.limit)
        return first

    def lose_query_lock(self, plan: Plan, key: Key, record: Record, delivered: int, now_ms: int) -> tuple[bool, bool]:
        """(the group's evidence is old, a trial failed)."""
        record.failures += plan.started
        if not record.quarantined and self.at_limit(record):
            self.quarantined(record, delivered, now_ms)
            return True, False
        if record.quarantined and plan.started:
            if not plan.trial:
                return self.failed_alone(record, now_ms), False
            if record.trials_lost:
                self.give_up(key, record, DELIVERY_LIMIT)
                return False, True
            record.trials_lost = 1
        record.state = AVAILABLE
        return False, False

    def lose_consumer_lock(self, key: Key, record: Record) -> None:
        record.failures, record.deadline_ms = record.failures + 1, None
        if record.failures + record.releases >= self.limit:
            self.give_up(key, record, EXPIRED)
        else:
            record.state = AVAILABLE

    def release(
        self,
        key: Key,
        record: Record,
        now_ms: int | None = None,
        at_ms: int | None = None,
        disposition: int = DELIVERY_LIMIT,
        *,
        by_query: bool = False,
    ) -> None:
        """Given back: at once; at ``at_ms``, its own delay; or, with ``now_ms``, as the retry policy says. One whose
        lock was lost meanwhile had its try counted then. ``by_query``: with its batch; failures give nothing up."""
        release, record.deadline_ms = record.releases + 1, None
        if record.state == ACQUIRED:
            record.releases = release
            if by_query:
                self.met["released, was set aside"] += record.quarantined
                record.quarantined, record.failed_alone_ms, record.last_tried_ms = False, None, None
            if record.releases + (0 if by_query else record.failures) >= self.limit:
                self.give_up(key, record, disposition)
                return
        record.state, record.plan_id = AVAILABLE, None
        if at_ms is not None:
            record.not_before_ms = at_ms
        elif now_ms is not None and self.backoff.first_ms:
            low, high = self.backoff.window_ms(release)
            self.backing_off[key] = (now_ms + low, now_ms + high)

    # --- members

    def join(self, name: str, process: str, epoch: int | None, query: bool, now_ms: int) -> int:
        member = self.members.get(name)
        if member is None:
            member = self.members[name] = Member(name, query)
        if member.epoch and process == member.process and epoch in (None, member.epoch):
            pass
        elif member.epoch and (epoch is not None or process in member.fenced):
            raise Refused("fenced")
        else:
            if member.epoch:
                member.fenced = [*member.fenced, member.process][-16:]
            member.epoch, member.process = member.epoch + 1, process
        member.deadline_ms = now_ms + self.session_ms
        return member.epoch

    def heartbeat(self, name: str, epoch: int, now_ms: int) -> None:
        self.member(name, epoch).deadline_ms = now_ms + self.session_ms

    def leave(self, name: str, epoch: int, now_ms: int) -> None:
        member = self.members.get(name)
        if member is None or member.epoch != epoch:
            raise Refused(name)
        self.end_session(member, now_ms, left=True)

    def end_session(self, member: Member, now_ms: int, *, left: bool) -> None:
        old = failed = False
        for plan in [p for p in self.plans.values() if p.member == member.name]:
            delivered = len(plan.offsets)
            for key, record in [h for h in self.held(plan) if h[1].state == ACQUIRED]:
                if key[1] < self.partitions[key[0]].log_start:
                    if plan.query:
                        self.log_lost(key, record.plan_id)
                    self.archive(key, record)
                elif plan.query:
                    news, trial = self.lose_query_lock(plan, key, record, delivered, now_ms)
                    old, failed = old or news, failed or trial
                elif left:
                    self.release(key, record)
                else:
                    self.lose_consumer_lock(key, record)
        if old:
            self.evidence_is_old()
        if failed:
            member.evidence = False
        member.deadline_ms = None
        self.settle()

    def expire(self, now_ms: int) -> None:
        locks = [
            (partition, offset, record)
            for partition in self.partitions
            for offset, record in self.partitions[partition].records.items()
            if record.state == ACQUIRED and record.deadline_ms is not None and record.deadline_ms < now_ms
        ]
        for member in self.members.values():
            if member.deadline_ms is not None and member.deadline_ms < now_ms:
                self.end_session(member, now_ms, left=False)
        for index, offset, record in locks:
            if record.state == ACQUIRED:
                if offset < self.partitions[index].log_start:
                    self.archive((index, offset), record)
                else:
                    self.lose_consumer_lock((index, offset), record)
        self.settle()

    def settle(self) -> None:
        """Plans that nobody carries are dropped."""
        self.advance()
        for number in [n for n, plan in self.plans.items() if not any(True for _ in self.held(plan))]:
            del self.plans[number]

    # --- the log, the coordinator

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
        partition.start, partition.end = max(partition.start, log_start), max(partition.end, log_start)
        self.settle()

    def archive_gap(self, index: int, first: int, last: int) -> None:
        """The log never had a record there; what somebody holds is his to decide."""
        for offset, record in self.partitions[index].records.items():
            if first <= offset <= last and offset >= self.partitions[index].start and record.state == AVAILABLE:
                self.archive((index, offset), record)
        self.settle()

    def reloaded(self, now_ms: int) -> None:
        """Every holder has one session timeout to come back; the others join again."""
        for member in self.members.values():
            member.deadline_ms = None
        for plan in self.plans.values():
            for _, record in self.held(plan):
                if record.state == ACQUIRED:
                    self.members[plan.member].deadline_ms = now_ms + self.session_ms
                    if not plan.query:
                        record.deadline_ms = now_ms + self.session_ms
