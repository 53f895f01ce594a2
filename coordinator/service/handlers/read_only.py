"""Answers read requests from a state store that no coordinator serves here. Takes no group, and writes nothing.

Rule: the answers name the store. They have no sessions, which only a coordinator knows."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from coordinator.config.resolved import CoordinatorConfig
from coordinator.core.looks.history import Logged
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import (
    GroupListing,
    GroupPosition,
    GroupsListed,
    HistoryRead,
    InFlightPage,
    OffsetsListed,
    PlansListed,
    WindowsListed,
)
from coordinator.protocol.errors import GroupIdNotFound
from coordinator.protocol.messages import DescribeGroup, GroupDescription, Message, Request
from coordinator.protocol.wire import LaunchSettings
from coordinator.service.brokers.cluster import LATEST, KafkaCluster
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.handlers.admin_requests import AdminService
from coordinator.service.process.clock import Clock
from coordinator.service.questions.lags import with_lag
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.transaction import Access, Round, Transaction
from coordinator.service.stores.kafka.group_list import groups_in
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.log_parts import log_parts
from coordinator.service.stores.kafka.ownership import LivingOwner, installation_id, named_elsewhere, this_process
from coordinator.service.stores.kafka.partition_count import recorded
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.service.stores.sqlite_store import SqliteReader, groups_in_file, parts_of_file
from coordinator.service.stores.store import Store

T = TypeVar("T")


def read_store(settings: LaunchSettings) -> Callable[[Request[Any]], Message]:
    """Open the state store for reading. Returns a function that answers requests. Raises ShareGroupError: a named error
    of the store or of Kafka."""
    config = CoordinatorConfig.parse(settings.configs)
    cluster = KafkaCluster(
        settings.bootstrap_servers, settings.kafka_config, config.share_coordinator_broker_timeout_ms
    )
    kind, _, path = settings.state_store.partition(":")
    stored = FileToRead(Path(path)) if kind == "sqlite" else topic_to_read(settings, config, cluster)
    looks = LooksOnly(stored)
    admin = AdminService(looks, cluster, stored, TopicDoubts())

    def answer(request: Request[Any]) -> Message:
        if isinstance(request, DescribeGroup):
            return read_from(stored.name, with_lag(looks, cluster, request))
        return read_from(stored.name, admin.handle(request))

    return answer


def read_from(name: str, reply: Message) -> Message:
    """The reply, with the name of the store that was read for it."""
    if isinstance(reply, WindowsListed):
        return WindowsListed(pages=tuple(msgspec.structs.replace(page, read_from=name) for page in reply.pages))
    if isinstance(reply, GroupDescription):
        return msgspec.structs.replace(reply, state="UNKNOWN", read_from=name)
    if isinstance(reply, GroupsListed | OffsetsListed | InFlightPage | PlansListed | HistoryRead | GroupPosition):
        return msgspec.structs.replace(reply, read_from=name)
    return reply


class FileToRead:
    """An SQLite file as a store of groups that are read only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = f"state file {path}"

    def stored_groups(self) -> list[GroupListing]:
        found = groups_in_file(self._path) if self._path.exists() else []
        return [GroupListing(group_id=group_id, state="UNKNOWN") for group_id in found]

    def store_of(self, group_id: str) -> Store | None:
        """The store in which the group lies; None: there is no file."""
        return SqliteReader(self._path) if self._path.exists() else None

    def log_end(self, group_id: str) -> int | None:
        """Returns None: a file does not store the end of a group's log, and is read fast."""
        return None

    def log_parts(self, group_id: str) -> Iterator[list[Logged]]:
        return parts_of_file(self._path, group_id)


class TopicToRead:
    """The state topic as a store of groups that are read only. ``topic`` None: the cluster has none yet.
    ``installation_id``: this host's, whose coordinator does not run. If it is empty, coordinators on demand are not
    asked, and a group that such a coordinator owns on another host is shown as its log has it."""

    def __init__(self, topic: StateTopic | None, name: str, installation_id: str) -> None:
        self.topic, self._installation_id = topic, installation_id
        missing = "" if topic else ", which the cluster does not have: check its address and share.state.store"
        self.name = f"state topic {name}{missing}"

    def stored_groups(self) -> list[GroupListing]:
        found = groups_in(self.topic, list(range(self.topic.partitions))) if self.topic is not None else {}
        return [
            GroupListing(group_id=group_id, state="UNKNOWN", coordinator=named_elsewhere(owner, self._installation_id))
            for group_id, owner in found.items()
        ]

    def store_of(self, group_id: str) -> Store | None:
        """The store of the group's partition; None: there is no state topic."""
        if self.topic is None:
            return None
        me = this_process(installation_id=self._installation_id)
        looks_only = LivingOwner(me, asks_owners=bool(self._installation_id))
        return KafkaStore(self.topic, self.topic.partition_of(group_id), looks_only, updates_per_snapshot=1)

    def log_end(self, group_id: str) -> int | None:
        """The end of the log with the group; None: there is no topic. Raises StateTopicMissing if it was deleted."""
        if self.topic is None:
            return None
        return self.topic.offset(self.topic.partition_of(group_id), LATEST, read_committed=True)

    def log_parts(self, group_id: str) -> Iterator[list[Logged]]:
        return iter(()) if self.topic is None else log_parts(self.topic, group_id)


def topic_to_read(settings: LaunchSettings, config: CoordinatorConfig, cluster: KafkaCluster) -> TopicToRead:
    """The cluster's state topic as a store of groups that are read only. Raises as :func:`read_store`."""
    topic = StateTopic.of(cluster, settings.kafka_config, config)
    info = cluster.topics([topic.name]).get(topic.name)
    if info is None or (placed := recorded(topic)) is None:
        return TopicToRead(None, topic.name, "")
    found = dataclasses.replace(topic, topic_id=info.topic_id, partitions=placed)
    here = installation_id(Path(settings.endpoint_path).parent) if settings.endpoint_path else ""
    return TopicToRead(found, topic.name, here)


class _Looking(CoordinatorRuntime):
    """A runtime for one read. ``group``: the group as its log has it; None: the read replays it."""

    def __init__(self, store: Store, group: ShareGroup | None) -> None:
        super().__init__(store)
        self.group = group

    def _peeked(self, group_id: str, round_: Round) -> ShareGroup | None:
        if self.group is None:
            self.group = super()._peeked(group_id, round_)
        return self.group


class _Read(NamedTuple):
    """A replayed group, and the end of its log before the replay; None if the store can't tell."""

    group_id: str
    log_end: int | None
    group: ShareGroup | None


class LooksOnly:
    """Runs looks at groups of a store that nobody serves here. Each look reads its group anew. If the same group was
    read last, and its log has not grown since, that copy is used: the next page needs no second replay."""

    def __init__(self, stored: FileToRead | TopicToRead) -> None:
        self.clock = Clock()
        self._stored, self._running = stored, threading.Lock()
        self._last = _Read("", None, None)

    def served_groups(self) -> dict[str, bool]:
        return {}

    def call(self, group_id: str, transaction: Transaction[T], access: Access = Access.SERVE) -> T:
        """The answer of a transaction that changes nothing; it looks, whatever its access is. Raises GroupIdNotFound if
        the store has no such group."""
        store = self._stored.store_of(group_id)
        if store is None:
            raise GroupIdNotFound(group_id=group_id)
        with self._running:
            log_end = self._stored.log_end(group_id)  # looked up before the read: the log may get longer meanwhile
            group = None
            if log_end is not None and self._last[:2] == (group_id, log_end):
                group = self._last.group
            runtime = _Looking(store, group)
            answer = runtime.submit(group_id, transaction, Access.PEEK)
            runtime.step(self.clock.now_ms())
            self._last = _Read(group_id, log_end, runtime.group)
        return answer.result()
