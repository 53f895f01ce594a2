"""Opens the state of a coordinator's groups: one event loop, or several, on the store that ``share.state.store``
names."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from coordinator.config.resolved import CoordinatorConfig, GroupBounds
from coordinator.core.looks.history import Logged
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import GroupListing
from coordinator.protocol.errors import BrokerNotReachable, ShareGroupError, StateTopicMissing
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.fleet.fleet import Fleet
from coordinator.service.process.clock import Clock
from coordinator.service.runtime.event_loop import EventLoop, PartitionedRuntime, RuntimeApi
from coordinator.service.runtime.runtime import CoordinatorRuntime, Measures
from coordinator.service.runtime.transaction import Access, TransactionSteps
from coordinator.service.stores.kafka.group_list import groups_in
from coordinator.service.stores.kafka.group_placement import prepared
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.log_parts import log_parts
from coordinator.service.stores.kafka.ownership import FleetMember, NewestClaimant, Ownership
from coordinator.service.stores.kafka.pruning import Pruning
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.service.stores.kafka.state_topic_watch import StateTopicWatch
from coordinator.service.stores.store import Store
from coordinator.state_log.owner import Owner
from coordinator.state_log.placement import state_partition_of

_log = logging.getLogger(__name__)

OnChange = Callable[[set[str]], None]


TAKE_OVER_S = 5.0
"""A previous owner of the file has this many seconds to leave."""


class SqliteState:
    """All groups in one file, which this process owns.

    Raises:
        StateStoreInUse: another process owns the file. :class:`SqliteStore` names the other errors.
    """

    def __init__(
        self,
        path: str,
        config: CoordinatorConfig,
        on_change: OnChange,
        measures: Measures | None = None,
        bounds: GroupBounds | None = None,
    ) -> None:
        from coordinator.service.stores.sqlite_store import SqliteStore  # 15 ms, and no need with the state in Kafka

        store = SqliteStore(Path(path), lock_timeout_s=TAKE_OVER_S)
        try:
            clock = Clock()
            self.event_loop: RuntimeApi = EventLoop(
                _runtime(store, config, on_change, clock, measures, bounds, is_sole=True), clock
            )
        except BaseException:
            store.close()
            raise
        self._store = store

    @property
    def is_gone(self) -> bool:
        """Whether the file was deleted or replaced, so that nothing is answered from it any more."""
        return self._store.is_gone

    def stored_groups(self) -> list[GroupListing]:
        """The groups of the file, which no other process serves."""
        return [GroupListing(group_id=group_id, state="EMPTY") for group_id in self._store.group_ids()]

    def log_parts(self, group_id: str) -> Iterator[list[Logged]]:
        """The group's records, as of :class:`~coordinator.service.histories.StoredLogs`."""
        from coordinator.service.stores.sqlite_store import parts_of_file

        return parts_of_file(self._store.path, group_id)

    def close(self) -> None:
        self.event_loop.close()


class KafkaState:
    """Each group in its partition of the state topic. ``installation_id``: identifies a coordinator on demand across
    restarts, so that it takes its groups back when it starts. ``advertised``: the host:port of a coordinator in a
    fleet, empty for a coordinator on demand.

    Raises:
        StateTopicUnfit: the topic can't keep the state. :meth:`StateTopic.ensure` names the other errors.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        kafka_config: Mapping[str, str],
        config: CoordinatorConfig,
        on_change: OnChange,
        *,
        installation_id: str,
        advertised: str = "",
        measures: Measures | None = None,
        bounds: GroupBounds | None = None,
    ) -> None:
        self._measures, self._bounds = measures, bounds
        self._wanted = StateTopic(
            cluster=cluster,
            bootstrap_servers=cluster.addresses,
            kafka_config=kafka_config,
            partitions=config.share_coordinator_state_topic_num_partitions,
            write_timeout_ms=config.share_coordinator_write_timeout_ms,
            broker_timeout_ms=config.share_coordinator_broker_timeout_ms,
        )
        self._topic = prepared(self._wanted)
        self._config, self._on_change = config, on_change
        self._stores: dict[int, KafkaStore] = {}
        self._is_gone = False
        self._event_loops = PartitionedRuntime(self._topic.partitions, self._new_runtime)
        self.event_loop: RuntimeApi = self._event_loops
        me = Owner(
            installation_id=f"fleet {config.share_coordinator_fleet_group_id}" if advertised else installation_id,
            process=uuid.uuid4().hex,
            host=socket.gethostname(),
            pid=os.getpid(),
            endpoint=advertised,
        )
        self._fleet = self._join_fleet(advertised) if advertised else None
        self._ownership: Ownership = NewestClaimant(me) if self._fleet is None else FleetMember(me, self._fleet)
        self._pruning = Pruning(
            self._topic,
            lambda: list(self._stores.values()),
            interval_ms=config.share_coordinator_state_topic_prune_interval_ms,
            wake=self._wake if advertised else None,
        )
        self._guard = StateTopicWatch(self._look_at_topic, interval_ms=config.share_coordinator_metadata_refresh_ms)

    def find(self, group_id: str) -> str:
        """The host:port of the coordinator of the fleet that serves the group; empty: this coordinator."""
        if self._fleet is None:
            return ""
        return self._fleet.find(state_partition_of(group_id, self._topic.partitions))

    def stored_groups(self) -> list[GroupListing]:
        """The groups of the state topic. The state of a group that another process serves is not known here; in a fleet
        the listing names the process that knows."""
        topic = self._topic
        return [
            self._listing(group_id, owner, topic.partitions)
            for group_id, owner in groups_in(topic, list(range(topic.partitions))).items()
        ]

    def log_parts(self, group_id: str) -> Iterator[list[Logged]]:
        """The group's records, as of :class:`~coordinator.service.histories.StoredLogs`."""
        return log_parts(self._topic, group_id)

    def _listing(self, group_id: str, owner: Owner | None, partitions: int) -> GroupListing:
        endpoint = ""
        if self._fleet is not None:
            with contextlib.suppress(ShareGroupError):  # nobody serves the partition now
                endpoint = self._fleet.find(state_partition_of(group_id, partitions))
        me = self._ownership.me
        is_mine = endpoint == me.endpoint and (owner is None or owner.installation_id == me.installation_id)
        return GroupListing(
            group_id=group_id, state="EMPTY" if is_mine else "UNKNOWN", coordinator="" if is_mine else endpoint
        )

    def close(self) -> None:
        """Close all parts, so that other coordinators can take the groups over."""
        self._guard.close(self._topic.timeout_s)
        self._pruning.close()
        if self._fleet is not None:
            self._fleet.close()
        self._event_loops.close()

    # --- inside

    def _new_runtime(self, partition: int) -> CoordinatorRuntime:
        updates = self._config.share_coordinator_snapshot_update_records_per_snapshot
        store = KafkaStore(
            self._topic,
            partition,
            self._ownership,
            updates_per_snapshot=updates,
            on_missing=lambda: self._guard.look_soon(),
        )
        self._stores[partition] = store
        clock = self._event_loops.clock
        is_sole = self._fleet is not None  # a coordinator of another host may take a group from one on demand
        return _runtime(store, self._config, self._on_change, clock, self._measures, self._bounds, is_sole=is_sole)

    def _look_at_topic(self) -> None:
        """Check the state topic. If it was deleted, or made anew, serve all groups from a new topic, without state."""
        try:
            self._topic.verify()
            if not self._is_gone:
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
        self._topic, self._is_gone = fresh, False
        self._event_loops.begin_anew(fresh.partitions)
        self._stores = {p: store for p, store in list(self._stores.items()) if store.topic is fresh}

    def _give_up(self, error: ShareGroupError) -> None:
        """Refuse all requests: nothing is served from the deleted topic or written into a new topic of its name."""
        for store in list(self._stores.values()):
            store.topic_is_gone(error)
        if not self._is_gone:
            _log.error("%s", error)
        self._is_gone = True

    def _wake(self, group_id: str) -> None:
        self._event_loops.call(group_id, _only_load, Access.UPKEEP)

    def _join_fleet(self, advertised: str) -> Fleet:
        return Fleet(
            self._topic.bootstrap_servers,
            self._topic.kafka_config,
            state_topic=self._topic.name,
            group_id=self._config.share_coordinator_fleet_group_id,
            advertised=advertised,
            session_timeout_ms=self._config.share_coordinator_session_timeout_ms,
            on_lost=self._lost,
        )

    def _lost(self, partitions: frozenset[int]) -> None:
        for partition in partitions:  # before the loops end: a request that comes meanwhile makes a new store
            self._stores.pop(partition, None)
        self._event_loops.end(partitions)


def _runtime(
    store: Store,
    config: CoordinatorConfig,
    on_change: OnChange,
    clock: Clock,
    measures: Measures | None,
    bounds: GroupBounds | None,
    *,
    is_sole: bool,
) -> CoordinatorRuntime:
    """``is_sole``: no other process can take a group of the store unnoticed."""
    return CoordinatorRuntime(
        store,
        measures=measures,
        clock=clock.now_ms,
        snapshot_after=config.share_coordinator_snapshot_update_records_per_snapshot,
        cold_after_ms=config.share_coordinator_cold_partition_snapshot_interval_ms,
        on_change=on_change,
        bounds=bounds,
        keeps_measures=is_sole and measures is not None,
    )


def _only_load(group: ShareGroup) -> TransactionSteps[None]:
    yield from ()
