"""Opens the state of a coordinator's groups in the store that ``share.state.store`` names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.config.group_bounds import GroupBounds
from coordinator.config.resolved import CoordinatorConfig
from coordinator.core.looks.history import Logged
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import GroupListing
from coordinator.protocol.errors import BrokerNotReachable, ShareGroupError, StateTopicMissing
from coordinator.protocol.wire import LaunchSettings
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.hosts.hosts import Hosts
from coordinator.service.hosts.owner_requests import AnswerTo
from coordinator.service.hosts.topic_clients import Transport
from coordinator.service.process.clock import Clock
from coordinator.service.process.repeated_look import RepeatedLook
from coordinator.service.runtime.event_loop import PartitionedRuntime
from coordinator.service.runtime.runtime import CoordinatorRuntime, Measures
from coordinator.service.runtime.transaction import Access, TransactionSteps
from coordinator.service.stores.kafka.group_list import groups_in
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.log_parts import log_parts
from coordinator.service.stores.kafka.ownership import LivingOwner, installation_id, named_elsewhere, this_process
from coordinator.service.stores.kafka.partition_count import prepared
from coordinator.service.stores.kafka.pruning import Pruning
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.service.stores.store import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Runtimes:
    """The settings that all runtimes of a coordinator share."""

    config: CoordinatorConfig
    on_change: Callable[[Collection[str]], None]
    clock: Clock = field(default_factory=Clock)
    measures: Measures | None = None
    bounds: GroupBounds | None = None

    def on(self, store: Store, *, is_sole: bool) -> CoordinatorRuntime:
        """Make the runtime of the store. ``is_sole``: no other process can take a group of it unnoticed."""
        return CoordinatorRuntime(
            store,
            measures=self.measures,
            clock=self.clock.now_ms,
            snapshot_after=self.config.share_coordinator_snapshot_update_records_per_snapshot,
            cold_after_ms=self.config.share_coordinator_cold_partition_snapshot_interval_ms,
            on_change=self.on_change,
            bounds=self.bounds,
            keeps_measures=is_sole and self.measures is not None,
        )


TAKE_OVER_S = 5.0
"""The previous owner of an SQLite file has this many seconds to leave."""


class SqliteState:
    """All groups in one file, which this process owns. Raises StateStoreInUse if another process owns the file.
    :class:`SqliteStore` names the other errors."""

    def __init__(self, path: str, runtimes: Runtimes) -> None:
        # The import takes 15 ms, and is useless with the state in Kafka.
        from coordinator.service.stores.sqlite_store import SqliteStore

        self._store = store = SqliteStore(Path(path), lock_timeout_s=TAKE_OVER_S)
        self.runtime = PartitionedRuntime(
            lambda group_id: 0, lambda partition: runtimes.on(store, is_sole=True), runtimes.clock
        )

    @property
    def is_gone(self) -> bool:
        return self._store.is_gone

    def stored_groups(self) -> list[GroupListing]:
        return [GroupListing(group_id=group_id, state="EMPTY") for group_id in self._store.group_ids()]

    def log_parts(self, group_id: str) -> Iterator[list[Logged]]:
        from coordinator.service.stores.sqlite_store import parts_of_file

        return parts_of_file(self._store.path, group_id)

    def hosts(self, answer: AnswerTo) -> Hosts | None:
        """Returns None: other hosts can't ask for groups in a file."""
        return None

    def close(self) -> None:
        self.runtime.close()
        self._store.close()  # an event loop closes it only if a group was asked for


class KafkaState:
    """Each group in its partition of the state topic. ``installation_id``: identifies the coordinator across restarts,
    so that it takes its groups back when it starts. ``endpoint``: the host:port of a standalone coordinator, empty for
    one on demand. Raises StateTopicUnfit if the topic can't keep the state. :meth:`StateTopic.ensure` names the other
    errors."""

    is_gone = False
    """Always false: when the state topic is deleted, the coordinator stays, and groups begin anew in a new one."""

    def __init__(
        self,
        cluster: KafkaCluster,
        kafka_config: Mapping[str, str],
        runtimes: Runtimes,
        *,
        installation_id: str,
        endpoint: str = "",
    ) -> None:
        config = runtimes.config
        self._wanted = StateTopic.of(cluster, kafka_config, config)
        self._topic = prepared(self._wanted)
        self._runtimes, self._config = runtimes, config
        self._stores: dict[int, KafkaStore] = {}
        self._topic_is_gone = False
        self.runtime = PartitionedRuntime(self._topic.partition_of, self._new_runtime, runtimes.clock)
        self._ownership = LivingOwner(this_process(installation_id, endpoint))
        self._hosts: Hosts | None = None
        self._pruning = Pruning(
            self._topic,
            lambda: [store for store in list(self._stores.values()) if store.prunes],
            interval_ms=config.share_coordinator_state_topic_prune_interval_ms,
            wake=self._wake if endpoint else None,
        )
        # Groups of a deleted topic must not be served from memory: no other coordinator could ever load them.
        interval_ms = config.share_coordinator_metadata_refresh_ms
        self._guard = RepeatedLook(self._look_at_topic, "the state topic", interval_ms=interval_ms)

    def hosts(self, answer: AnswerTo) -> Hosts:
        self._hosts = Hosts(
            Transport(lambda: self._topic),
            self.runtime,
            self._ownership,
            answer,
            self._runtimes.measures,
            idle_s=self._config.share_coordinator_idle_timeout_ms / 1000,
        )
        return self._hosts

    def stored_groups(self) -> list[GroupListing]:
        """The state topic's groups. If another process serves one, the listing names that process, which knows the
        group's state."""
        topic, me, listings = self._topic, self._ownership.me, []
        for group_id, owner in groups_in(topic, list(range(topic.partitions))).items():
            is_mine = owner is None or owner.released or owner.installation_id == me.installation_id
            state = "EMPTY" if is_mine else "UNKNOWN"
            coordinator = named_elsewhere(owner, me.installation_id)
            listings.append(GroupListing(group_id=group_id, state=state, coordinator=coordinator))
        return listings

    def log_parts(self, group_id: str) -> Iterator[list[Logged]]:
        return log_parts(self._topic, group_id)

    def close(self) -> None:
        self._guard.close(self._topic.timeout_s)
        self._pruning.close()
        self.runtime.close()

    def _new_runtime(self, partition: int) -> CoordinatorRuntime:
        updates = self._config.share_coordinator_snapshot_update_records_per_snapshot
        store = KafkaStore(
            self._topic,
            partition,
            self._ownership,
            updates_per_snapshot=updates,
            on_missing=lambda: self._guard.look_soon(),
            on_taken=self._taken,
        )
        self._stores[partition] = store
        return self._runtimes.on(store, is_sole=False)

    def _taken(self, why: str) -> None:
        if self._runtimes.measures is not None:
            self._runtimes.measures.taken(why)

    def _look_at_topic(self) -> None:
        """Check the state topic. If it was deleted or created again, serve all groups from a new one, without state."""
        try:
            self._topic.verify()
            if not self._topic_is_gone:
                return
        except BrokerNotReachable:
            return
        except StateTopicMissing as error:
            self._give_up(error)
        try:
            fresh = prepared(self._wanted)
        except ShareGroupError as error:
            self._give_up(error)
            raise
        if fresh.topic_id != self._topic.topic_id:
            _log.warning("the state topic %s was made anew: all groups start without state", fresh.name)
        self._topic, self._topic_is_gone = fresh, False
        self.runtime.begin_anew(fresh.partition_of)
        self._stores = {p: store for p, store in list(self._stores.items()) if store.topic is fresh}

    def _give_up(self, error: ShareGroupError) -> None:
        """Refuse all requests: nothing is served from the deleted topic or written into a new topic of its name."""
        for store in list(self._stores.values()):
            store.topic_is_gone(error)
        if not self._topic_is_gone:
            _log.error("%s", error)
        self._topic_is_gone = True

    def _wake(self, group_id: str) -> None:
        if self._hosts is not None:
            self._hosts.load(group_id, lambda: self.runtime.call(group_id, _only_load, Access.UPKEEP))


def _only_load(group: ShareGroup) -> TransactionSteps[None]:
    yield from ()


def open_state(
    settings: LaunchSettings, cluster: KafkaCluster, runtimes: Runtimes, *, listener: str = "", endpoint: str = ""
) -> SqliteState | KafkaState:
    """The groups' state as ``share.state.store`` says, owned by this process. ``listener``: the host:port at which a
    standalone coordinator listens; ``endpoint``: the host:port that its clients use. Both are empty for a coordinator
    on demand. Raises the named errors of the stores."""
    kind, _, path = settings.state_store.partition(":")
    if kind == "sqlite":
        return SqliteState(path, runtimes)
    here = installation_id(listener or Path(settings.endpoint_path).parent)
    return KafkaState(cluster, settings.kafka_config, runtimes, installation_id=here, endpoint=endpoint)
