"""The state of the naive model: what is known of each offset, of plans, of members and of partitions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from operator import attrgetter

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED, IN_PROGRESS = 0, 1, 2, 3, 4, 5
HELD = (ACQUIRED, IN_PROGRESS)
TERMINAL = (ACKNOWLEDGED, ARCHIVED)
REJECTED, DELIVERY_LIMIT, EXPIRED, UNDECIDED = 1, 2, 3, 4
"""Why a record was given up."""
Key = tuple[int, int]
PARTITIONS = 2
"""Of a topic."""


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
    """When the first and the last signal came that its holder works on it, and the newest hint."""
    delay_ms: int | None = None
    query_failures: int = 0
    """How many of the failures were a query's."""
    logged_ms: int | None = None
    """The deadline that the log has: a renewal is not in it, before the next snapshot."""

    def end(self, state: int) -> None:
        self.__init__(state, self.count)  # type: ignore[misc]


KNOWN = attrgetter(*(each.name for each in fields(Record) if each.name != "logged_ms"))
"""What is known of a record, in the order of a run's fields."""


@dataclass(frozen=True, slots=True)
class Said:
    """One outcome that a sink staged for a record. at_ms: when a release of its own delay ends, which is
    delay_ms long. passed_over: since the
    record was named before, or ever, an earlier attempt said nothing of it, and that was a release."""

    count: int
    outcome: int
    at_ms: int | None = None
    delay_ms: int = 0
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
    """As acquired_ms, but no later than the load, by the clock of the owner that loaded."""
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
    """Whether something of it was left out when it was reclaimed last, that the log still has."""
    said: dict[Key, list[Said]] = field(default_factory=dict)
    """All that sinks ever said of its records, in order."""
    heard: set[int] = field(default_factory=set)
    """Attempts in which a sink said anything, or that it had nothing to say, where silence is a release: how often the
    batch had been reclaimed by then."""


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
    seen_ms: int = 0
    """When it was there last."""
    plans: int = 0
    """How many it acquired."""
    breaker: Breaker = field(default_factory=Breaker)
    unheard_until_ms: int = 0
    """Until when it may come back after a load without that it held anything."""

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
    """Records by the reason that they are archived for; 0: offsets without a record."""
    without_dead_letter: Counter[int] = field(default_factory=Counter)
    """Those of them that were given up while the group had no dead letter topic."""
    accepted: int = 0
    removed: int = 0
    deleted: int = 0
    """Records that Kafka removed before they were done: below the log start, or with their topic."""
    skipped: int = 0
    repeated: int = 0
    """Offsets that resets passed over, or made available again."""
