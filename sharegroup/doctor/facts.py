"""Asks coordinators and brokers for the facts of the doctor's rules.

Rule: nothing is started or changed. If a fact can't be read, it is left out, and its rules find nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec  # type: ignore[attr-defined]

from coordinator.admin.admin import Admin
from coordinator.client.on_demand import store_of
from coordinator.client.options import configs
from coordinator.config.resolved import CoordinatorConfig, GroupConfig
from coordinator.kafka.cluster_metadata import cluster_metadata
from coordinator.kafka.librdkafka import new_client
from coordinator.protocol.admin_messages import RunInFlight
from coordinator.protocol.errors import InvalidRequest, ShareGroupError
from coordinator.protocol.messages import GroupDescription
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from sharegroup.admin_access import described
from sharegroup.cluster_options import kafka_config
from sharegroup.doctor.dead_letters_watch import watch_dead_letters
from sharegroup.doctor.findings import ClusterFacts, GroupFacts
from sharegroup.group_line import given_up_without_dead_letter

MOST_RUNS = 20_000
"""The doctor scans up to this many runs in flight. Of a million, the first ones hold back start offsets."""
AHEAD_MS = 60_000
"""A timestamp that is further ahead of the coordinator's clock, in milliseconds, is a mistake of its producer: clocks
differ by less."""
TIMEOUT_S = 15.0
ENDPOINT = "share.coordinator.endpoint"


class Examination:
    """Gets the facts of one cluster and its groups, with the groups' admin client and one for the brokers."""

    def __init__(
        self,
        admin: Admin,
        config: Mapping[str, str],
        held_long_ms: int,
        connect_options: tuple[str, ...] = (),
        most_runs: int = MOST_RUNS,
    ) -> None:
        self._admin = admin
        self._most_runs = most_runs
        self._config = config
        self._held_long_ms = held_long_ms
        self._connect_options = connect_options
        self._servers = config["bootstrap.servers"]
        self._brokers: Any = new_client(AdminClient, {"log_level": "0", **kafka_config(config)})
        self._metadata = cluster_metadata(self._servers, kafka_config(config))

    def group(self, group_id: str) -> GroupFacts:
        """Returns the facts of one group. Raises GroupIdNotFound if there is no such group."""
        description, stand_still = watch_dead_letters(lambda: described(self._admin, group_id))
        now_ms = self._admin.in_flight(group_id, limit=1).now_ms
        return GroupFacts(
            description=description,
            runs=tuple(itertools.islice(self._admin.all_in_flight(group_id), self._most_runs)),
            plans=self._admin.plans(group_id),
            given_up=self._given_up(description),
            now_ms=now_ms,
            log_starts={at: found.offset for at, found in self._offsets(description, OffsetSpec.earliest())},  # type: ignore[no-untyped-call]
            ahead=self._ahead(description, now_ms),
            topics=frozenset(self._metadata.topics),
            held_long_ms=self._held_long_ms,
            bootstrap_server=self._servers,
            connect_options=self._connect_options,
            dead_letters_stand_still=stand_still,
        )

    def _given_up(self, description: GroupDescription) -> tuple[RunInFlight, ...]:
        if not given_up_without_dead_letter(description):
            return ()
        return tuple(self._admin.in_flight(description.group_id, only_state=("ARCHIVED",), limit=self._most_runs).runs)

    def cluster(self) -> ClusterFacts:
        """Returns the facts that belong to no single group."""
        topic = self._metadata.topics.get(STATE_TOPIC)
        in_sync = {} if topic is None else {index: len(found.isrs) for index, found in topic.partitions.items()}
        return ClusterFacts(
            stores=dict(self._stores()),
            state_topic=STATE_TOPIC,
            min_in_sync=self._min_in_sync() if in_sync else 1,
            in_sync=in_sync,
            bootstrap_server=self._servers,
            open_keys=self._open_keys(),
        )

    def _open_keys(self) -> tuple[str, ...]:
        """Returns the keys with which a standalone coordinator allows every topic. One on demand has a single token."""
        if not self._config.get(ENDPOINT):
            return ()
        try:
            return self._admin.who_am_i().open_keys
        except InvalidRequest:  # an earlier version
            return ()

    def _stores(self) -> Iterable[tuple[str, frozenset[str]]]:
        """Yields the group ids in the configured store, the state topic, and the cluster's state file on this host."""
        own = CoordinatorConfig.parse(configs({k: v for k, v in self._config.items() if k.startswith("share.")})[1])
        cluster_id = str(self._metadata.cluster_id or self._servers)
        for text in dict.fromkeys((own.share_state_store, "kafka", "sqlite")):
            store = store_of(text, cluster_id)
            if store.startswith("sqlite:") and not Path(store.removeprefix("sqlite:")).exists():
                continue
            changed = {key: value for key, value in self._config.items() if key != ENDPOINT}
            is_own = text == own.share_state_store
            try:
                with Admin(self._config if is_own else {**changed, "share.state.store": text}) as admin:
                    yield store, frozenset(each.group_id for each in admin.list_groups(only_ids=True).groups)
            except ShareGroupError:
                if is_own:
                    raise

    def _min_in_sync(self) -> int:
        resource = ConfigResource(ConfigResource.Type.TOPIC, STATE_TOPIC)
        try:
            found = self._brokers.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result(TIMEOUT_S)
        except (KafkaException, FutureTimeoutError):  # the user may not see it, or no broker answered in time
            return 1
        return int(found["min.insync.replicas"].value)

    def _ahead(self, description: GroupDescription, now_ms: int) -> dict[tuple[str, int], tuple[int, int]]:
        config = GroupConfig.parse(description.configs)
        if not config.share_delivery_delay_ms and config.share_record_ttl_ms is None:
            return {}
        found = self._offsets(description, OffsetSpec.for_timestamp(now_ms + AHEAD_MS))
        return {at: (first.offset, first.timestamp) for at, first in found if first.offset >= 0}

    def _offsets(self, description: GroupDescription, spec: Any) -> Iterable[tuple[tuple[str, int], Any]]:
        asked = {
            TopicPartition(p.topic, p.partition): spec
            for p in description.partitions
            if p.topic in self._metadata.topics and p.partition in self._metadata.topics[p.topic].partitions
        }
        for at, answer in self._brokers.list_offsets(asked, request_timeout=TIMEOUT_S).items() if asked else ():
            try:
                yield (at.topic, at.partition), answer.result(TIMEOUT_S)
            except (KafkaException, FutureTimeoutError):  # no leader, no right to read, or no answer in time
                continue
