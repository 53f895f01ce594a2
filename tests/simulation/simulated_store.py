"""A state store that outlives its owners, and their ways in, which fail before, after or in the midst of an append.

Rule: whatever goes wrong, a load finds all of an append or nothing of it, and what was in doubt is settled by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from coordinator.core.share_group import ShareGroup
from coordinator.service.stores.kafka.kafka_store import MEMORY_ANSWER_S, NEW_OWNER_S
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.service.stores.store import (
    Append,
    SoleOwner,
    StoredRecord,
    StoreFenced,
    StoreOutcomeUnknown,
    StoreRefused,
)
from coordinator.state_log.owner_record import Owner
from tests.simulation.faults import SHORTEST_SESSION_MS
from tests.simulation.hosts_judge import HostsJudge
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
    end: int = 0
    """The number of transactions so far: the end of the state partition."""
    slow_loads_ms: int = 0
    """Each step of a load takes up to this many ms."""
    pardoned_ms: int = 0
    """The time of the owner's last load, or of the end of a time in which a coordinator heard nobody: holders have a
    session from then."""
    unheard: list[tuple[int, int]] = field(default_factory=list)
    """The times until which a coordinator heard nobody, each with its length in ms."""
    stopped_until_ms: int = 0
    """Its brokers stand still until this time."""
    before_a_step: Callable[[], None] = lambda: None
    """Called before an append arrives, and before its answer comes: injects further faults."""
    loaded_by: dict[str, OwnedStore] = field(default_factory=dict)
    """By group, who loaded it last."""
    writer: OwnedStore | None = None
    """Whose append is written, or in doubt."""
    _next: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hosts = HostsJudge(self.world, lambda: self.end)

    def next_owner(self) -> int:
        self.settle()
        self.owner += 1
        return self.owner

    def next_sequence(self, group_id: str) -> int:
        return self._next.get(group_id, 0)

    def write(self, appends: Appends) -> None:
        self.end += 1
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
        self.end += 1
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
        self._kept = False
        self._appended_ms = self.world.now_ms

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
        self._kept, self.log.loaded_by[group_id] = self.log.loaded_by.get(group_id) is self, self
        if self.owner == self.log.owner:
            away_ms = self.world.now_ms - self._appended_ms
            self.log.unheard.append((self.world.now_ms, away_ms))
            if not self._kept or away_ms >= SHORTEST_SESSION_MS:
                self.log.pardoned_ms = self.world.now_ms
        return list(self.log.logs.get(group_id, []))

    def kept(self, group_id: str) -> bool:
        return self._kept

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
        self.log.writer = self
        if fault == "doubt, late" or is_late:
            self.log.leave_in_doubt(appends)
        if fault == "die in the midst":
            self.log.write_in_part(appends)
            self._die(fault)
        if fault in ("doubt", "doubt, late") or is_late:
            raise StoreOutcomeUnknown(fault or "the brokers do not answer")
        self.log.write(appends)
        self._appended_ms = self.world.now_ms
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
    """The way in of one of several hosts' coordinators, as a Kafka store's, with its real
    :class:`~coordinator.service.stores.kafka.ownership.LivingOwner`: the group is inspected, fenced, inspected again,
    and then has a new owner record. ``tenure_now``: the tenure while the group is served; ``loads``: while it is
    loaded."""

    def __init__(self, log: StateLog, process: Process, ownership: LivingOwner) -> None:
        super().__init__(log, process)
        self.ownership = ownership
        self._claimed = self._had = False
        self.tenure_now = self.loads = ""
        self._confirmed_ms = 0

    def _take_number(self) -> int:
        return 0  # a process owns nothing before its first load

    def claim(self, group_id: str) -> None:
        self._claimed = True

    def tenure(self, group_id: str) -> str:
        return self.tenure_now

    def release(self, group_id: str) -> None:
        self.owner, self.tenure_now = 0, ""

    def give_up(self, group_id: str) -> None:
        """As the store's end: anybody may take the group from now on."""
        judge = self.log.hosts
        if self.tenure_now and self.owner == self.log.owner and judge.owner is not None:
            judge.owner = msgspec.structs.replace(judge.owner, released=True)
            self.log.end += 1
        self.release(group_id)

    def peek(self, group_id: str) -> list[StoredRecord]:
        self._reach(BROKER_TIMEOUT_MS)
        if self.log.hosts.owner is not None:
            self.ownership.check_look(group_id, self.log.hosts.owner, self.log.end)
        return list(self.log.logs.get(group_id, []))

    def load(self, group_id: str) -> list[StoredRecord]:
        claimed, self._claimed = self._claimed, False
        self.release(group_id)
        self._reach(BROKER_TIMEOUT_MS)
        judge = self.log.hosts
        if not claimed and judge.owner is None:
            return []
        self._inspect(group_id, claims=claimed)
        self._be_slow(self.log.slow_loads_ms)
        fence = self.owner = self.log.next_owner()
        try:
            self._be_slow(self.log.slow_loads_ms)
            self._inspect(group_id, claims=claimed)
            if fence != self.log.owner:
                raise StoreRefused("another process took the group just now")
            owner = self.ownership.new_owner(judge.owner, had=self._had)
            self.loads, self._confirmed_ms = owner.tenure, self.world.now_ms
            judge.claims(self.process, owner)
            self.log.end += 1
            self.world.note(self.process.name, f"takes the group as owner {fence}")
            self._be_slow(self.log.slow_loads_ms)
            records = super().load(group_id)
            self._inspect(group_id, claims=False)
        except Exception:
            self.release(group_id)
            raise
        finally:
            self.loads = ""
        self.tenure_now, self._had = owner.tenure, True
        return records

    def append(self, decided: Mapping[str, Append], now_ms: int) -> None:
        begun_ms = self.world.now_ms
        super().append(decided, now_ms)
        self._confirmed_ms = begun_ms
        if not any(each.data for each in decided.values()):
            self.log.end += 1  # the owner record again

    def must_prove(self, group_id: str) -> bool:
        return self.world.now_ms - self._confirmed_ms > MEMORY_ANSWER_S * 1000

    def _inspect(self, group_id: str, *, claims: bool) -> None:
        owner = self.log.hosts.owner
        if owner is not None:
            self.ownership.check(group_id, owner, had=self._had, claims=claims, end=self.log.end)

    def _check_owner(self, group_id: str) -> None:
        if not self.owner:
            raise StoreRefused("the group is not loaded")
        if self.owner != self.log.owner:
            until_ms = self.world.now_ms + int(NEW_OWNER_S * 1000)
            while self._newest() is None and self.world.now_ms < until_ms:
                self._wait_until(self.world.now_ms + 50)
            if (newest := self._newest()) is None:
                raise StoreOutcomeUnknown("fenced, and no owner came")
            raise StoreFenced(self.ownership.lost(group_id, newest))

    def _newest(self) -> Owner | None:
        """The owner that has fenced this process; None: none has written itself into the log."""
        owner = self.log.hosts.owner
        return None if owner is None or owner.process == self.process.name else owner
