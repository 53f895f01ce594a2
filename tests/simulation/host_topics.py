"""The topics between hosts in the simulation: records are lost, late, doubled and reordered, and hosts are cut off.

:class:`SimulatedTransport` stands for :class:`coordinator.service.hosts.topic_clients.Transport`. Its threads are
fibers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, NamedTuple, Protocol

from coordinator.protocol.host_records import Headers, Reply, Request, read_reply, read_request
from coordinator.protocol.values import TopicAndPartition
from coordinator.service.hosts.topic_clients import WAITS_MS
from tests.simulation.fiber import Fiber, wait_for
from tests.simulation.simulated_world import Pending, Process, Task, World

FETCH_MS = (1, 40)
"""A reader has a record this many ms after a broker has it."""
LATE_MS = (50, 8_000)
"""A late record is in its partition after this many ms: others that were written later are there before it."""


class SimulatedRecord(NamedTuple):
    """A record as a consumer gets it: :class:`confluent_kafka.Message`."""

    where: TopicAndPartition
    at: int
    of_key: str
    has_headers: Headers
    body: bytes
    appended_ms: int

    def topic(self) -> str:
        return self.where[0]

    def partition(self) -> int:
        return self.where[1]

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return self.of_key.encode()

    def headers(self) -> Headers:
        return self.has_headers

    def value(self) -> bytes:
        return self.body


class Observer(Protocol):
    """The interface of a judge that sees the records between hosts."""

    def taken(self, by: Process, request: Request) -> None:
        """A broker has taken the request, and has said so."""

    def sent(self, by: Process, message: Request | Reply, headers: Headers, body: bytes) -> None:
        """The process writes the message."""

    def appended(self, message: Request | Reply, headers: Headers) -> None:
        """The message is in its topic."""

    def read(self, by: Process, reply: Reply, headers: Headers, body: bytes, appended_ms: int) -> None:
        """The process reads the reply."""


class HostTopics:
    """``lost``, ``doubled``, ``late``: how often that happens to a record. ``deaf``, ``mute``: by process, the time
    until which it reads nothing, and until which no broker takes what it writes."""

    def __init__(self, world: World, observer: Observer, *, lost: float, doubled: float, late: float) -> None:
        self.world, self.observer = world, observer
        self.lost, self.doubled, self.late = lost, doubled, late
        self.deaf: dict[str, int] = {}
        self.mute: dict[str, int] = {}
        self.records: dict[TopicAndPartition, list[SimulatedRecord]] = {}
        self.readers: list[SimulatedReader] = []

    def heal(self) -> None:
        self.lost = self.doubled = self.late = 0.0
        self.deaf.clear()
        self.mute.clear()

    def append(self, where: TopicAndPartition, key: str, headers: Headers, body: bytes) -> None:
        log = self.records.setdefault(where, [])
        log.append(SimulatedRecord(where, len(log), key, headers, body, self.world.now_ms))
        message = read_request(headers) or read_reply(headers)
        assert message is not None
        self.observer.appended(message, headers)
        self.readers = [reader for reader in self.readers if reader.process.alive and not reader.is_closed]
        for reader in self.readers:
            reader.fetch(where)


class SimulatedWriter:
    """Writes as :class:`coordinator.service.hosts.topic_clients.Writer` does."""

    def __init__(self, process: Process, topics: HostTopics) -> None:
        self.process, self.topics, self.world = process, topics, topics.world

    def write(
        self,
        topic: str,
        partition: int,
        key: str,
        headers: Headers,
        body: bytes = b"",
        written: Callable[[bool], None] = lambda ok: None,
    ) -> None:
        topics, where = self.topics, (topic, partition)
        message = read_request(headers) or read_reply(headers)
        assert message is not None
        topics.observer.sent(self.process, message, headers, body)
        if topics.mute.get(self.process.name, 0) > self.world.now_ms or self.world.happens(topics.lost):
            self._say(WAITS_MS, written, ok=False)
            return
        is_acked_only = self.world.happens(topics.lost / 10)  # its leader dies before another broker has it
        for copy in range(0 if is_acked_only else 2 if self.world.happens(topics.doubled) else 1):
            is_late = self.world.happens(max(topics.late, 0.3) if copy else topics.late)
            ms = self.world.between(*LATE_MS) if is_late else self.world.between(1, 10)
            self.world.after(ms, lambda: topics.append(where, key, headers, body))
        if self.world.happens(topics.lost / 2):  # the acknowledgement is lost
            self._say(WAITS_MS, written, ok=False)
        else:
            self._say(self.world.between(10, 30), lambda ok: self._taken(written, message), ok=True)

    def _taken(self, written: Callable[[bool], None], message: Any) -> None:
        self.topics.observer.taken(self.process, message)
        written(True)

    def _say(self, ms: int, written: Callable[[bool], None], *, ok: bool) -> None:
        self.world.after(ms, lambda: _when_running(self.process, lambda: written(ok)))

    def close(self) -> None:
        """Does nothing: what is written is on its way."""


class SimulatedReader:
    """Reads as :class:`coordinator.service.hosts.topic_clients.Reader` does. ``is_outdated``: its client ignores what
    comes, until it begins anew."""

    def __init__(self, process: Process, topics: HostTopics, on_record: Callable[[Any], None]) -> None:
        self.process, self.topics, self._on_record = process, topics, on_record
        self.is_closed = self.is_outdated = False
        self._positions: dict[TopicAndPartition, int] = {}
        topics.readers.append(self)

    def add(self, from_offsets: Mapping[TopicAndPartition, int]) -> None:
        self._positions = {**from_offsets, **self._positions}
        for where in from_offsets:
            self.fetch(where)

    def remove(self, partitions: set[TopicAndPartition]) -> None:
        self._positions = {where: at for where, at in self._positions.items() if where not in partitions}

    def begin_anew(self) -> None:
        self.is_outdated = False
        for where in self._positions:
            self.fetch(where)

    def close(self) -> None:
        self.is_closed = True

    def fetch(self, where: TopicAndPartition) -> None:
        if where in self._positions:
            world = self.topics.world
            world.after(world.between(*FETCH_MS), lambda: self._read(where))

    def _read(self, where: TopicAndPartition) -> None:
        world, deaf_until_ms = self.topics.world, self.topics.deaf.get(self.process.name, 0)
        if deaf_until_ms > world.now_ms:
            world.at(deaf_until_ms, lambda: self._read(where))
            return
        _when_running(self.process, lambda: self._read_all(where))

    def _read_all(self, where: TopicAndPartition) -> None:
        log = self.topics.records.get(where, [])
        while not (self.is_closed or self.is_outdated) and self._positions.get(where, len(log)) < len(log):
            record = log[self._positions[where]]
            self._positions[where] += 1
            reply = read_reply(record.headers())
            if reply is not None and record.of_key == self.process.name:
                self.topics.observer.read(self.process, reply, record.headers(), record.value(), record.appended_ms)
            self._on_record(record)


class SimulatedEvent:
    """As :class:`threading.Event`, for fibers of a process."""

    def __init__(self, world: World) -> None:
        self._world, self._is_set = world, False
        self._waiting: list[Pending] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._world.after(0, lambda each=each: each.set(True))  # type: ignore[misc]

    def wait(self, timeout: float) -> bool:
        if not self._is_set:
            wait_for(self._wait(timeout))
        return self._is_set

    def _wait(self, timeout: float) -> Task:
        pending = Pending()
        self._waiting.append(pending)
        self._world.after(int(timeout * 1000) + 1, lambda: pending.set(False))
        yield pending


class SimulatedTransport:
    """As :class:`coordinator.service.hosts.topic_clients.Transport`, in a process of the simulation. ``now_ms``: the
    process's clock. ``log_end``: returns the end of the state partition."""

    def __init__(
        self, process: Process, topics: HostTopics, now_ms: Callable[[], int], log_end: Callable[[], int]
    ) -> None:
        self._process, self._topics, self._now_ms, self._log_end = process, topics, now_ms, log_end

    def now_s(self) -> float:
        return self._now_ms() / 1000 - 500.0  # another beginning than that of the clock of stored times

    def event(self) -> SimulatedEvent:
        return SimulatedEvent(self._topics.world)

    def any_below(self, end: int) -> int:
        return self._topics.world.chance.randrange(end)

    def ensure(self, needed: Mapping[str, str]) -> None:
        """Does nothing: the topics are there."""

    def check_configs(self) -> None:
        """Does nothing: the topics are fit."""

    def lacking(self, needed: Mapping[str, str]) -> list[str]:
        return []

    def has_requests(self) -> bool:
        return True

    def ends(self, partitions: Iterable[TopicAndPartition], timeout_s: float = inf) -> dict[TopicAndPartition, int]:
        return {where: len(self._topics.records.get(where, ())) for where in partitions}

    def log_end(self, group_id: str) -> int:
        return self._log_end()

    def writer(self) -> SimulatedWriter:
        return SimulatedWriter(self._process, self._topics)

    def reader(self, on_record: Callable[[Any], None], name: str) -> SimulatedReader:
        return SimulatedReader(self._process, self._topics, on_record)

    def start(self, run: Callable[[], None], name: str) -> SimulatedThread:
        self._process.spawn(Fiber(run).run())
        return SimulatedThread()

    def pool(self, most: int, name: str) -> SimulatedPool:
        return SimulatedPool(self._process)


class SimulatedThread:
    """A fiber as a thread."""

    def join(self, timeout: float) -> None:
        """Does nothing: it ends by itself, or with its process."""


class SimulatedPool:
    """As an executor, with a fiber for each call."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def submit(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._process.spawn(Fiber(lambda: function(*arguments)).run())

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        """Does nothing: fibers end with their process."""


def _when_running(process: Process, act: Callable[[], None]) -> None:
    """``act`` now, or when the process goes on; never if it is dead."""
    if process.when_running(lambda: _when_running(process, act)):
        act()
