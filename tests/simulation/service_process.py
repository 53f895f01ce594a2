"""The coordinator's process with the real service in it: its handlers, its knowledge of the brokers, its gaps.

What :mod:`tests.simulation.simulated_coordinator` retells, so that many seeds are quick, runs here as it is; every wait
for the event_loop or a broker is a point at which time passes, others come first, or the process dies or is stopped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import tenacity.nap

from coordinator.core.looks.history import Logged
from coordinator.protocol.admin_messages import GroupListing
from coordinator.protocol.allowed_topics import ALL_TOPICS
from coordinator.protocol.errors import BrokerNotReachable
from coordinator.protocol.host_records import VERSION
from coordinator.protocol.messages import NextPlan
from coordinator.protocol.values import TopicAndPartition
from coordinator.service.brokers import broker_watch, log_gaps, topic_doubts
from coordinator.service.brokers.broker_watch import BrokerWatch
from coordinator.service.brokers.cluster import EARLIEST, Seen, TopicInfo
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.handlers import coordinator_service
from coordinator.service.handlers.admin_requests import AdminService
from coordinator.service.handlers.coordinator_service import CoordinatorService
from coordinator.service.handlers.handler_table import Handlers
from coordinator.service.questions import lost_logs, plan_gaps, record_ttl
from coordinator.service.runtime.news import News
from coordinator.service.runtime.transaction import ORIGIN, Access, Transaction
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.state_log.owner_record import Owner
from tests.simulation.broker import Broker, log_of
from tests.simulation.fiber import Fiber, at_work_on, wait_for
from tests.simulation.simulated_coordinator import CoordinatorProcess
from tests.simulation.simulated_store import BROKER_TIMEOUT_MS, HostsStore, StateLog
from tests.simulation.simulated_world import Task, World

DEAD_LETTERS = "dlq"
OLD_TIMES = (broker_watch, coordinator_service, log_gaps, lost_logs, plan_gaps, record_ttl, tenacity.nap, topic_doubts)
"""Modules of the service that read the clock, and the pauses of its retries."""


@contextlib.contextmanager
def simulated_time(world: World) -> Iterator[None]:
    """In the service, time is the world's."""

    def sleep(seconds: float) -> None:
        wait_for(_pass(int(seconds * 1000)))

    time = SimpleNamespace(monotonic=lambda: world.now_ms / 1000, time=lambda: world.now_ms / 1000, sleep=sleep)
    with contextlib.ExitStack() as patched:
        for module in OLD_TIMES:
            patched.enter_context(mock.patch.object(module, "time", time))
        patched.enter_context(mock.patch.object(plan_gaps, "threading", SimpleNamespace(Lock=_Lock)))
        yield


def _pass(ms: int) -> Task:
    yield ms


class _Lock:
    """A lock whose waiting is a task of the world's; a thread that really waited would stop the world."""

    def __init__(self) -> None:
        self._held = False

    def acquire(self, timeout: float = 60.0) -> bool:
        waited_ms = 0
        while self._held and waited_ms < timeout * 1000:
            wait_for(_pass(10))
            waited_ms += 10
        taken, self._held = not self._held, True
        return taken

    def release(self) -> None:
        self._held = False

    def __enter__(self) -> None:
        assert self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class ServiceProcess(CoordinatorProcess):
    """A coordinator that answers as the product does."""

    store: HostsStore

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.watch = BrokerWatch(SimulatedCluster(self.world, self.broker))
        self.watch.looks = _Looks(self.broker)  # type: ignore[assignment]
        self.service = CoordinatorService(self._new_engine(), self.watch, News())  # type: ignore[arg-type]
        self.service._asks = self.service._asks_of_polls = self.service._asks_ahead = _AtOnce()  # type: ignore[assignment]
        self.admin = AdminService(self._new_engine(), self.watch.cluster, _NoGroups(), TopicDoubts())  # type: ignore[arg-type]
        self.handlers = Handlers({**self.service.handlers, **self.admin.handlers})

    def _new_engine(self) -> _Engine:
        return _Engine(self)

    def _open_store(self, log: StateLog) -> HostsStore:
        me = Owner(installation_id=f"host {self.host}", process=self.name, host=f"{self.host}", pid=1, answers=VERSION)
        return HostsStore(log, self, LivingOwner(me))

    def die(self, why: str) -> None:
        super().die(why)
        self.watch.close()

    def _resume(self, task: Task, answer: Any) -> None:
        """Of a process that goes on the event_loop's thread may be the first, and those that hear requests come
        later."""
        if self.alive and self.stopped:
            goes_on_ms = self.stopped_until_ms + self.world.between(0, 30)
            self.world.at(goes_on_ms, lambda: self._resume(task, answer))
        else:
            super()._resume(task, answer)

    def _answer(self, request: Any) -> Task:
        if isinstance(request, NextPlan):
            request = msgspec.structs.replace(request, wait_ms=0)
        return (yield from Fiber(lambda: self.handlers.handle(request), request).run())


class _Looks:
    """Looks at the ids of topics that the brokers answer at once."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def ask(self, names: Iterable[str]) -> Future[dict[str, str]]:
        answer: Future[dict[str, str]] = Future()
        topics = self._broker.topics
        answer.set_result({name: topics[name].topic_id for name in names if name in topics})
        return answer

    def close(self) -> None:
        """Does nothing: no thread is open."""


class _Engine:
    """The runtime as the services use it: :class:`coordinator.service.runtime.event_loop.PartitionedRuntime`."""

    def __init__(self, process: ServiceProcess) -> None:
        self.process = process
        self.clock = SimpleNamespace(now_ms=process.now_ms)

    def call(self, group_id: str, transaction: Transaction[Any], access: Access = Access.SERVE) -> Any:
        return wait_for(self.process._run(at_work_on(), transaction, access, ORIGIN.get()))


class _NoGroups:
    """The groups of a store that nobody lists."""

    def stored_groups(self) -> list[GroupListing]:
        return []

    def log_parts(self, group_id: str) -> Iterator[list[Logged]]:
        return iter(())


class _AtOnce:
    """An executor in whose caller's place the work is done."""

    def submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments, **options))
        except Exception as error:  # noqa: BLE001 - as an executor does
            done.set_exception(error)
        return done


class SimulatedCluster:
    """:class:`coordinator.service.brokers.cluster.KafkaCluster` on the simulated brokers: an answer takes its time."""

    addresses = "simulated:9092"
    allowed = ALL_TOPICS

    def __init__(self, world: World, broker: Broker) -> None:
        self.world, self.broker = world, broker

    def gives_topic_ids(self) -> bool:
        return True

    def topic_names(self) -> list[str]:
        return self._answer(lambda: sorted([*self.broker.topics, DEAD_LETTERS]))

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        wanted = list(names)
        return self._answer(lambda: {name: found for name in wanted if (found := self._topic(name)) is not None})

    def offsets(
        self, partitions: Iterable[TopicAndPartition], at: int, *, read_committed: bool = False
    ) -> dict[TopicAndPartition, int]:
        wanted = list(partitions)
        of = self.broker.starts if at == EARLIEST else self.broker.ends

        def find() -> dict[TopicAndPartition, int]:
            logs = {where: log for where in wanted if (log := self._log(where)) is not None}
            return {where: of[log] if at < 0 else self.broker.first_since(log, at) for where, log in logs.items()}

        return self._answer(find)

    def answered_offsets(
        self, partitions: Iterable[TopicAndPartition], at: int, *, read_committed: bool = False
    ) -> tuple[dict[TopicAndPartition, int], set[TopicAndPartition]]:
        return self.offsets(partitions, at, read_committed=read_committed), set()

    def existing(self, where: TopicAndPartition, first: int, last: int, *, most: int, read_committed: bool) -> Seen:
        def find() -> Seen:
            log = self._existing_log(where)
            low, end = max(first, self.broker.starts[log]), min(last + 1, self.broker.ends[log])
            found = list(islice(range(low, end), most))
            return Seen(found, low, found[-1] + 1 if len(found) == most else max(low, end))

        return self._answer(find)

    def absent(
        self, where: TopicAndPartition, offsets: Sequence[int], *, read_committed: bool, until_s: float
    ) -> tuple[list[int], int]:
        asked = offsets[: self.world.between(1, len(offsets))] if self.world.happens(0.1) else offsets

        def find() -> tuple[list[int], int]:
            self._existing_log(where)
            return [], len(asked)  # these logs have no gaps: what is gone from them was removed

        return self._answer(find)

    def may_write(self, topic: str) -> bool:
        return True

    def create_topic(self, name: str, *, only_ask: bool = False) -> None:
        """Does nothing, since every topic exists here."""

    # --- inside

    def _answer(self, find: Callable[[], Any]) -> Any:
        ms = self.world.between(0, 5) if self.world.happens(0.95) else self.world.between(0, 3_000)
        if self.world.happens(0.5):
            self._reach_the_brokers()
            found = find()
            wait_for(_pass(ms))
            self._reach_the_brokers()
            return found
        wait_for(_pass(ms))
        self._reach_the_brokers()
        return find()

    def _reach_the_brokers(self) -> None:
        """Waits while they stand still, as long as a request may take."""
        until_ms = self.world.now_ms + BROKER_TIMEOUT_MS
        while self.broker.stopped_until_ms > self.world.now_ms:
            if self.world.now_ms >= until_ms:
                self.world.note("brokers", "answer no question")
                raise BrokerNotReachable(addresses=self.addresses, timeout_ms=BROKER_TIMEOUT_MS, reason="_TIMED_OUT")
            wait_for(_pass(min(self.broker.stopped_until_ms, until_ms) - self.world.now_ms))

    def _topic(self, name: str) -> TopicInfo | None:
        topic = self.broker.topics.get(name)
        if topic is None:
            return TopicInfo(name, "D", 1) if name == DEAD_LETTERS else None
        return TopicInfo(name, topic.topic_id, topic.partitions)

    def _log(self, where: TopicAndPartition) -> int | None:
        topic = self.broker.topics.get(where[0])
        return None if topic is None or where[1] >= topic.partitions else log_of(topic.topic_id, where[1])

    def _existing_log(self, where: TopicAndPartition) -> int:
        log = self._log(where)
        if log is None:
            wait_for(_pass(3_000))
            raise BrokerNotReachable(addresses=self.addresses, timeout_ms=3_000, reason="_TIMED_OUT")
        return log
