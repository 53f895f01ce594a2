"""The state of the naive model: what is known of each offset, of plans, of members and of partitions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from operator import attrgetter

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED, IN_PROGRESS = 0, 1, 2, 3, 4, 5
HELD = (ACQUIRED, IN_PROGRESS)
TERMINAL = (ACKNOWLEDGED, ARCHIVED)
REJECTED, DELIVERY_LIMIT, EXPIRED, UNDECIDED, TTL = 1, 2, 3, 4, 5
"""Why a record was given up."""
Key = tuple[int, int]
PARTITIONS = 2
"""The number of partitions of a topic."""


class Refused(Exception):
    """The command is refused, and nothing changes."""


@dataclass(slots=True)
class Record:
    """The state of one offset."""

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
    progress: tuple[int, int, str] | None = None
    """The times of the first and the last signal that the holder works on the record, and the newest hint."""
    delay_ms: int | None = None
    query_failures: int = 0
    """The number of failures that were a query's."""
    logged_ms: int | None = None
    """The deadline in the log: a renewal is not in it before the next snapshot."""

    def end(self, state: int) -> None:
        self.__init__(state, self.count)  # type: ignore[misc]


KNOWN = attrgetter(*(each.name for each in fields(Record) if each.name != "logged_ms"))
"""Returns the known fields of a record, in the order of a run's fields."""


@dataclass(frozen=True, slots=True)
class Said:
    """One outcome that a sink staged for a record. at_ms: when a release of its own delay ends, which is
    delay_ms long. passed_over: since the
    record was named before, or ever, an earlier attempt said nothing of it, and that was a release. unreadable: the
    driver said so, and no sink."""

    count: int
    outcome: int
    at_ms: int | None = None
    delay_ms: int = 0
    dead_letter: bool = False
    reason: str = ""
    passed_over: bool = False
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Backoff:
    """The group's retry policy; first_ms 0: none."""

    first_ms: int = 0
    multiplier: float = 2.0
    max_ms: int = 300_000
    jitter: float = 0.0

    def window_ms(self, release: int) -> tuple[int, int]:
        """Returns the shortest and the longest delay of a record after its release number ``release``, in ms."""
        grown_ms = self.first_ms * self.multiplier ** (release - 1)
        low, high = (int(min(grown_ms * (1 + sign * self.jitter), self.max_ms)) for sign in (-1, 1))
        return low, high


@dataclass(slots=True)
class Breaker:
    """A query's breaker: it counts what sinks released in the last plans on end that were mostly released. It is closed
    while there was no pause."""

    released: int = 0
    records: int = 0
    pauses: int = 0
    since_ms: int = 0
    until_ms: int = 0
    paused_ms: int = 0


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
    held_since_ms: int = 0
    """As acquired_ms, but no earlier than the load, by the clock of the owner that loaded."""
    unreported_losses: list[Key] = field(default_factory=list)
    lost_if_completed: list[Key] = field(default_factory=list)
    """The unreported losses that are in no output if the batch completes before it starts again."""
    told: list[Key] = field(default_factory=list)
    superseded_plans: list[int] = field(default_factory=list)
    """Plans that this one superseded, and that nobody used."""
    explicit: bool = False
    """Whether records that no sink decided are released: by the query's own mode or the group's when the attempt
    began."""
    too_many: bool = False
    """Whether its sinks rejected too many records."""
    targets: set[bool] = field(default_factory=set)
    """The answers of this attempt's sinks: whether the target replaces what it holds of the batch."""
    reclaims: int = 0
    """The number of times that a later process reclaimed the plan: each raised all counts by one."""
    goes_without: bool = False
    """Whether the last reclaim left something out that the log still has."""
    said: dict[Key, list[Said]] = field(default_factory=dict)
    """By record, all outcomes that sinks ever sent, in order."""
    fails: bool = True
    """Whether a task of this attempt fails if a record is gone when it reads (failOnDataLoss)."""
    heard: set[int] = field(default_factory=set)
    """The attempts, by the number of reclaims before them, in which a sink sent outcomes, or that it had none, in a
    mode that releases undecided records."""


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
    """Spark's id of the query, as the sink that staged its rows last sent it."""
    seen_ms: int = 0
    """The time of its last request."""
    plans: int = 0
    """The number of plans that it acquired."""
    breaker: Breaker = field(default_factory=Breaker)
    unheard_until_ms: int = 0
    """Until this time it may come back after a load, though it held nothing."""

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
    """The number of records by the reason for which they are archived; 0: offsets without a record."""
    without_dead_letter: Counter[int] = field(default_factory=Counter)
    """The number of them that were given up while the group had no dead letter topic."""
    accepted: int = 0
    removed: int = 0
    deleted: int = 0
    """The number of records that Kafka removed before they were done: below the log start, or with their topic."""
    skipped: int = 0
    repeated: int = 0
    """The number of offsets that resets passed over, or made available again."""
