"""How large the small world is, and how much may go wrong in one run of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

SESSION_MS = 45_000
LOCK_MS = 30_000
STALE_MS = 60_000
EXTENSION_MS = 80_000
GRACE_MS = 5_000
TTL_MS = 60_000
NOW_MS = 1_000_000_000
"""Every request is served at this time. When time passes, the stored times move back instead, so that two worlds that
differ only in their clocks are one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """The settings of a walk, which do not change on the way. ``most``: each query's maxOffsetsPerTrigger. ``fetches``:
    how often the ShareConsumer asks for a record; with ``releases`` it may also give one back. ``signals``: how often
    it says that it works on its record; it may then leave the group once, and come back to its record. ``sink``: what a
    query's sink may say of a record, in any attempt anything; empty: there is none; with "nothing" among it the group
    is in explicit mode. ``replaces``: it says that its query has no other output than one that replaces. ``rejects``,
    ``gives_back``: offsets, as bits, of which it says the same each time."""

    records: int = 2
    most: tuple[int, ...] = (2, 1)
    limit: int = 5
    base: int = 100_000
    fail_on_data_loss: bool = True
    fetches: int = 0
    releases: bool = False
    signals: int = 0
    sink: tuple[str, ...] = ()
    replaces: bool = False
    rejects: int = 0
    gives_back: int = 0
    own_mode: bool = False
    """Each query names its acknowledgement mode itself, whatever the group's is."""
    without_start: bool = False
    """Spark is 4.0 or 4.1: ``latestOffset()`` has no arguments."""
    implicit: bool = False
    """The group begins in implicit mode also with a sink that may say "nothing", which accepts then."""
    ordered: bool = False
    """The group is in order by partition."""
    in_flight: int = 0
    """share.max.in.flight.records; 0: no limit. The rate is left out: its window is no part of a snapshot."""
    ttl: bool = False
    """The group gives up what is too old."""
    partitions: int = 1
    """The topic's partitions at first, each with ``records`` records."""
    hosts: str = ""
    """Each of two queries is on a host with a coordinator of its own: "asked": owners can be asked over Kafka;
    "not asked": they can't, and the newest claimant wins."""

    def may_say(self, offset: int) -> tuple[str, ...]:
        """The outcomes that the sink may have for the record at this offset, in any topic."""
        if self.rejects >> offset & 1:
            return ("reject",)
        return ("release",) if self.gives_back >> offset & 1 else self.sink

    @property
    def may_release(self) -> bool:
        """Whether a record may be released: by a word, by silence, by attempts that disagree, or by a ShareConsumer
        that leaves."""
        says_so = {"release", "nothing"}.intersection(self.sink) or self.gives_back or self.releases or self.signals
        return bool(says_so) or (len(self.sink) > 1 and not self.replaces)

    @property
    def acknowledgement_mode(self) -> str:
        return "explicit" if "nothing" in self.sink and not self.implicit else "implicit"

    def may_accept(self, offset: int) -> bool:
        """Whether any sink may ever accept the record at this offset. Without a sink each record is accepted."""
        said = self.may_say(offset)
        return not said or "accept" in said or ("nothing" in said and self.implicit)

    def __str__(self) -> str:
        queries = ", ".join(f"{name} takes up to {most}" for name, most in zip("abcdef", self.most, strict=False))
        told = [f"{self.records} records", f"queries: {queries}", f"delivery limit {self.limit}"]
        if self.base != 100_000:
            told.append(f"isolation base {self.base}")
        if self.fetches:
            told.append(f"a ShareConsumer that fetches {self.fetches} times" + (", or releases" * self.releases))
        if self.signals:
            told.append(f"it signals {self.signals} times, or leaves and comes back")
        if self.sink:
            told.append(f"a sink that says {' or '.join(self.sink)}" + ", into a target that replaces" * self.replaces)
        if self.without_start:
            told.append("latestOffset() has no start")
        if self.partitions > 1:
            told.append(f"{self.partitions} partitions")
        if self.ordered:
            told.append("in order")
        if self.in_flight:
            told.append(f"{self.in_flight} records in flight at most")
        if self.ttl:
            told.append("a ttl")
        if self.hosts:
            told.append(f"two hosts whose owners can be {self.hosts}".replace("be not", "not be"))
        if self.rejects or self.gives_back:
            told.append(f"it rejects {self.rejects:b} and releases {self.gives_back:b}")
        return "; ".join(told)


class Budget(NamedTuple):
    """How often each thing may still go wrong; ``total`` bounds all of them together. Everything else is free."""

    total: int
    crashes: int = 0
    """a process of a query or of the ShareConsumer dies"""
    restarts: int = 0
    """the coordinator dies: when idle, before an append, after it, or its store refuses an append or is in doubt"""
    takeovers: int = 0
    """another coordinator takes the group, and the one before lives on"""
    expiries: int = 0
    """a session timeout passes without a word of one member, or a lock duration"""
    pauses: int = 0
    """that member is one whose process is alive"""
    lost: int = 0
    """an answer is lost, and the request is sent again"""
    delays: int = 0
    """a request is sent again, and its first copy arrives at any time later, or never"""
    retention: int = 0
    """the log loses its oldest record"""
    stops: int = 0
    """a driver is stopped before it writes offsets/N, and goes on at any time later, or never"""
    stalls: int = 0
    """the coordinator stands still for a session timeout, and goes on"""
    configs: int = 0
    """a sink is opened with another group config, or a query is started again with another acknowledgement mode"""
    topics: int = 0
    """the topic is deleted and created again, with the same number of records"""
    departures: int = 0
    """a query's process dies, and the query is never started again; the last query stays"""
    partitions: int = 0
    """the topic gets a partition, with the same number of records as the first one"""
    silences: int = 0
    """a host's coordinator stands still, or does not hear the other host, and goes on at any time later, or never"""
    releases: int = 0
    """a host's coordinator leaves in order"""
    deferrals: int = 0
    """a sink defers records of its batch"""
    stoppages: int = 0
    """all topics are paused, or resumed"""
    too_old: int = 0
    """the coordinator gives up the records up to some offset, where there is a ttl"""

    def spend(self, *kinds: str) -> Budget | None:
        """The budget after one step that is of all these kinds; None if the budget does not allow it."""
        if self.total <= 0 or any(getattr(self, kind) <= 0 for kind in kinds):
            return None
        left = {kind: getattr(self, kind) - 1 for kind in kinds}
        return self._replace(total=self.total - 1, **left)

    def covers(self, other: Budget) -> bool:
        """Whether nothing can be done with the other that can't be done with this one."""
        return all(mine >= its for mine, its in zip(self, other, strict=True))

    def __str__(self) -> str:
        kinds = [f"{name} {value}" for name, value in zip(self._fields[1:], self[1:], strict=True) if value]
        return f"at most {self.total} of: {', '.join(kinds) or 'nothing'}"
