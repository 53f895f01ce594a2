"""A state store that outlives its owners, and their ways in, which fail before, after or in the midst of an append.

Rule: whatever goes wrong, a load finds all of an append or nothing of it, and what was in doubt is settled by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import GroupTakenOver, NotCoordinator, ShareGroupError
from coordinator.service.stores.store import (
    Append,
    SoleOwner,
    StoredRecord,
    StoreFenced,
    StoreOutcomeUnknown,
    StoreRefused,
)
from tests.simulation.simulated_world import Process, World

Appends = Mapping[str, Sequence[bytes]]
WRITE_TIMEOUT_MS = 5_000
"""An append is in doubt after this many ms (share.coordinator.write.timeout.ms)."""
BROKER_TIMEOUT_MS = 15_000
"""A load or a question is refused after this many ms (share.coordinator.broker.timeout.ms)."""
FAULTS = ("refuse", "doubt", "doubt, written", "doubt, late", "die before", "die in the midst", "die after", "slow")


class Died(BaseException):
    """The owner is gone in the middle of a call: nothing catches it, nothing is answered."""


class Reader(Protocol):
    """The interface of an observer of durable records."""

    def appended(self, group_id: str, data: Sequence[bytes]) -> None:
        """These records, in this order, are the log's newest."""

    def replaced(self, group_id: str, old: Sequence[StoredRecord], new: Sequence[bytes]) -> None:
        """A snapshot took the log's place."""


@dataclass
class StateLog:
    """The records on disk. ``fence``: how a replaced owner is kept out: by its ``owner`` number, as by Kafka's
    transactions, or by ``sequence``: another process's records are noticed at the next append, as by SQLite."""

    world: World
    reader: Reader
    fence: str = "owner"
    fault_rate: float = 0.0
    slow_ms: int = 10_000
    owner: int = 0
    logs: dict[str, list[StoredRecord]] = field(default_factory=dict)
    in_doubt: Appends | None = None
    host: int = 0
    """The host of the newest owner."""
    pardoned_ms: int = 0
    """The time of the owner's last load, or of the end of a time in which a coordinator heard nobody: holders have a
    session from then."""
    unheard: list[tuple[int, int]] = field(default_factory=list)
    """The times until which a coordinator heard nobody, each with its length in ms."""
    stopped_until_ms: int = 0
    """Its brokers stand still until this time."""
    before_a_step: Callable[[], None] = lambda: None
    """Called before an append arrives, and before its answer comes: injects further faults."""
    taken: int = 0
    """The number of times that the group moved to another host."""
    _next: dict[str, int] = field(default_factory=dict)

    def next_owner(self) -> int:
        self.settle()
        self.owner += 1
        return self.owner

    def next_sequence(self, group_id: str) -> int:
        return self._next.get(group_id, 0)

    def write(self, appends: Appends) -> None:
        for group_id, data in appends.items():
            log = self.logs.setdefault(group_id, [])
            log += [StoredRecord(at, each) for at, each in enumerate(data, self.next_sequence(group_id))]
            self._next[group_id] = self.next_sequence(group_id) + len(data)
            self.reader.appended(group_id, data)

    def heard_nobody(self, until_ms: int, ms: int) -> None:
        """A coordinator hears nobody for that time."""
        self.unheard.append((until_ms, ms))
        self.pardoned_ms = max(self.pardoned_ms, until_ms)

    def write_in_part(self, appends: Appends) -> None:
        """The writer dies during the append, and none of the records is in the log."""

    def replace(self, group_id: str, data: Sequence[bytes]) -> None:
        old, self.logs[group_id] = self.logs.get(group_id, []), []
        first = self.next_sequence(group_id)
        self.logs[group_id] = [StoredRecord(at, each) for at, each in enumerate(data, first)]
        self._next[group_id] = first + len(data)
        self.reader.replaced(group_id, old, data)

    def leave_in_doubt(self, appends: Appends) -> None:
        """It arrives later, when the brokers answer, unless a load settles it before."""
        self.in_doubt = appends
        at_ms = max(self.world.now_ms, self.stopped_until_ms) + self.world.between(1, 3_000)
        self.world.at(at_ms, lambda: self._arrive(appends))

    def settle(self) -> None:
        """Decides whether the append in doubt was written."""
        if (appends := self.in_doubt) is not None:
            self.in_doubt = None
            if self.world.happens(0.5):
                self.write(appends)

    def _arrive(self, appends: Appends) -> None:
        if self.in_doubt is appends:
            self.in_doubt = None
            self.write(appends)


class OwnedStore(SoleOwner):
    """One owner's way to the log. See :class:`coordinator.service.stores.store.Store`."""

    def __init__(self, log: StateLog, process: Process) -> None:
        self.log, self.process, self.world = log, process, log.world
        self.owner = self._take_number()
        self._known: dict[str, int] = {}

    def _take_number(self) -> int:
        return self.log.next_owner()

    @property
    def name(self) -> str:
        return f"simulated store of {self.process.name}"

    @property
    def knows_the_log(self) -> bool:
        """Nobody else has written since this owner last did."""
        return all(known == self.log.next_sequence(group_id) for group_id, known in self._known.items())

    def load(self, group_id: str) -> list[StoredRecord]:
        self._be_slow()
        self._reach(BROKER_TIMEOUT_MS)
        if self.world.happens(self.log.fault_rate / 2):
            raise StoreRefused("the load was refused")
        self.log.settle()
        self._known[group_id] = self.log.next_sequence(group_id)
        if self.owner == self.log.owner:
            self.log.pardoned_ms = self.world.now_ms
        return list(self.log.logs.get(group_id, []))

    def append(self, decided: Mapping[str, Append], now_ms: int) -> None:
        appends = {group_id: each.data for group_id, each in decided.items()}
        if not any(appends.values()):
            self._reach(BROKER_TIMEOUT_MS)
            for group_id in appends:
                self._check_owner(group_id)
            return
        fault = self._fault(*FAULTS)
        self._begin(fault)
        is_late = not self._reaches_the_brokers(WRITE_TIMEOUT_MS)
        for group_id in appends:
            self._check_owner(group_id)
        if fault == "doubt, late" or is_late:
            self.log.leave_in_doubt(appends)
        if fault == "die in the midst":
            self.log.write_in_part(appends)
            self._die(fault)
        if fault in ("doubt", "doubt, late") or is_late:
            raise StoreOutcomeUnknown(fault or "the brokers do not answer")
        self.log.write(appends)
        for group_id in appends:
            self._known[group_id] = self.log.next_sequence(group_id)
        self._end(fault if self._reaches_the_brokers(WRITE_TIMEOUT_MS) else fault or "doubt, written")

    def replace_with_snapshot(self, group: ShareGroup, data: Sequence[bytes], now_ms: int) -> None:
        group_id = group.group_id
        fault = self._fault("refuse", "doubt", "doubt, written", "die before", "die after", "slow")
        self._begin(fault)
        is_late = not self._reaches_the_brokers(WRITE_TIMEOUT_MS)
        self._check_owner(group_id)
        if fault == "doubt" or is_late:
            raise StoreOutcomeUnknown(fault or "the brokers do not answer")
        self.log.replace(group_id, data)
        self._known[group_id] = self.log.next_sequence(group_id)
        self._end(fault)

    def close(self) -> None:
        """Nothing: owners of this store die."""

    # --- what goes wrong

    def _fault(self, *faults: str) -> str:
        if not self.world.happens(self.log.fault_rate):
            return ""
        fault = self.world.chance.choice(faults)
        self.world.note(self.process.name, f"append: {fault}")
        return fault

    def _begin(self, fault: str) -> None:
        if fault == "slow":
            self._be_slow(self.log.slow_ms)
        if fault == "die before":
            self._die(fault)
        if fault == "refuse":
            raise StoreRefused(fault)

    def _end(self, fault: str) -> None:
        if fault == "die after":
            self._die(fault)
        if fault == "doubt, written":
            raise StoreOutcomeUnknown(fault)

    def _be_slow(self, most_ms: int = 0) -> None:
        """The world goes on meanwhile; it may be that this owner is dead afterwards, or stopped until later."""
        if not most_ms and self.log.fault_rate == 0:
            return
        self._wait_until(self.world.now_ms + self.world.between(0, most_ms or 50))

    def _wait_until(self, at_ms: int) -> None:
        self.world.run_until(at_ms)
        while self.process.alive and self.process.stopped:
            self.world.run_until(self.process.stopped_until_ms)
        if not self.process.alive:
            raise Died

    def _reaches_the_brokers(self, timeout_ms: int) -> bool:
        """Whether they answer within that time, in which the world goes on."""
        self.log.before_a_step()
        until_ms = self.world.now_ms + timeout_ms
        while self.log.stopped_until_ms > self.world.now_ms:
            if self.world.now_ms >= until_ms:
                self.world.note(self.process.name, "gets no answer from the state topic")
                return False
            self._wait_until(min(self.log.stopped_until_ms, until_ms))
        return True

    def _reach(self, timeout_ms: int) -> None:
        if not self._reaches_the_brokers(timeout_ms):
            raise StoreRefused("the brokers do not answer")

    def _check_owner(self, group_id: str) -> None:
        """The fence. SQLite's next writer waits for a transaction that is in doubt, and then sees what became of it."""
        if self.log.fence == "sequence":
            self.log.settle()
        if self.log.fence == "owner" and self.owner != self.log.owner:
            raise StoreRefused(f"fenced by owner {self.log.owner}")
        if self.log.fence == "sequence" and self._known.get(group_id) != self.log.next_sequence(group_id):
            raise StoreRefused("somebody else has written to it")

    def _die(self, fault: str) -> None:
        self.process.die(fault)
        raise Died


class HostsStore(OwnedStore):
    """The way in of one of several hosts' coordinators, as a Kafka store's with
    :class:`~coordinator.service.stores.kafka.ownership.LivingOwner`: a group is taken by a load, from another host
    only for whoever claims it, which nobody may but a query that starts (``starting``: how many do just now)."""

    def __init__(self, log: StateLog, process: Process, host: int) -> None:
        super().__init__(log, process)
        self.host = host
        self._claimed = self._had = False
        self.starting = 0

    def _take_number(self) -> int:
        return 0  # a process owns nothing before its first load

    def claim(self, group_id: str) -> None:
        self._claimed = True

    def peek(self, group_id: str) -> list[StoredRecord]:
        self._reach(BROKER_TIMEOUT_MS)
        return list(self.log.logs.get(group_id, []))

    def load(self, group_id: str) -> list[StoredRecord]:
        claimed, self._claimed = self._claimed, False
        self._reach(BROKER_TIMEOUT_MS)
        if not claimed and not self.log.logs.get(group_id):
            return []
        is_anothers = bool(self.log.owner) and self.log.owner != self.owner
        if is_anothers and not claimed and (self._had or self.log.host != self.host):
            raise self._lost(group_id)
        if is_anothers and self.log.host != self.host and not self.starting:
            self.world.fail(f"{self.process.name} takes the group from host {self.log.host}, and no query starts")
        if not self.owner or self.log.owner != self.owner:
            self.log.taken += self.log.host != self.host
            self.owner, self.log.host, self._had = self.log.next_owner(), self.host, True
            self.world.note(self.process.name, f"takes the group as owner {self.owner}")
        return super().load(group_id)

    def _check_owner(self, group_id: str) -> None:
        if not self.owner:
            raise StoreRefused("the group is not loaded")
        if self.owner != self.log.owner:
            raise StoreFenced(self._lost(group_id))

    def _lost(self, group_id: str) -> ShareGroupError:
        if self.log.host == self.host:
            return NotCoordinator(what=f"share group {group_id}")
        return GroupTakenOver(group_id=group_id, owner=f"the coordinator of host {self.log.host}")
