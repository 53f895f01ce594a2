"""The state topic: its creation, its checks, and the configuration of its clients.

Rule: a topic that would lose state is refused before anything is read or written. An error about a missing permission
names the ACL."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from tenacity import retry_if_result, wait_fixed

from coordinator.config.resolved import CoordinatorConfig
from coordinator.kafka.librdkafka import LACKING, NO_ANSWER, new_client
from coordinator.kafka.retries import retry_until
from coordinator.protocol.errors import (
    BrokerNotReachable,
    BrokerRefused,
    StateTopicMissing,
    StateTopicNotAuthorized,
    StateTopicUnfit,
)
from coordinator.service.brokers.cluster import BROKERS_TIME, KafkaCluster
from coordinator.state_log.placement import state_partition_of

T = TypeVar("T")

STATE_TOPIC = "share-group-state"
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_REPLICAS = 3
_PAUSE = wait_fixed(0.1)

_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TransactionalId",
}
_UNLIMITED = "-1"
_NOT_SO = LACKING | {KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG}
"""Errors of brokers that can't create or describe a topic as the state topic needs it: limits of a provider."""

_log = logging.getLogger(__name__)


def is_denied(error: KafkaError) -> bool:
    """Whether the error says that the principal lacks a permission."""
    return error.code() in _DENIED


def changed(topic: str, configs: Mapping[str, str]) -> ConfigResource:
    """The request that sets these configs of the topic, and leaves the others."""
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in configs.items()]
    return ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)


@dataclass(frozen=True, kw_only=True)
class StateTopic:
    """The state topic of a cluster, and the settings for reading and writing it. ``partitions``: among how many
    partitions groups are placed; before the topic is prepared, the number to create it with. ``topic_id``: empty before
    the topic is prepared; afterwards a topic with another id is another topic. ``write_timeout_ms``:
    share.coordinator.write.timeout.ms."""

    cluster: KafkaCluster
    bootstrap_servers: str
    kafka_config: Mapping[str, str] = field(repr=False)
    partitions: int
    write_timeout_ms: int
    broker_timeout_ms: int
    name: str = STATE_TOPIC
    topic_id: str = ""

    @classmethod
    def of(cls, cluster: KafkaCluster, kafka_config: Mapping[str, str], config: CoordinatorConfig) -> StateTopic:
        return cls(
            cluster=cluster,
            bootstrap_servers=cluster.addresses,
            kafka_config=kafka_config,
            partitions=config.share_coordinator_state_topic_num_partitions,
            write_timeout_ms=config.share_coordinator_write_timeout_ms,
            broker_timeout_ms=config.share_coordinator_broker_timeout_ms,
        )

    @property
    def timeout_s(self) -> float:
        return self.broker_timeout_ms / 1000

    def partition_of(self, group_id: str) -> int:
        return state_partition_of(group_id, self.partitions)

    def client_config(self, **config: Any) -> dict[str, Any]:
        """librdkafka's configuration for a client of the topic; ``config`` has underscores for dots."""
        named = {key.replace("_", "."): value for key, value in config.items()}
        # log_level: librdkafka would write to stderr; errors are raised.
        given = {key: value for key, value in self.kafka_config.items() if key != "transactional.id"}
        common = {"log_level": "0", "client.id": "sharegroup", **given}
        return {**common, "bootstrap.servers": self.bootstrap_servers, **named}

    def denied(self, what: str) -> StateTopicNotAuthorized:
        return StateTopicNotAuthorized(what=what, topic=self.name)

    def missing(self, what: str) -> StateTopicMissing:
        return StateTopicMissing(topic=self.name, what=what)

    def failed(self, what: str, error: KafkaError) -> BrokerNotReachable | BrokerRefused:
        """Returns the error of a request that no broker answered or that the brokers refused. ``what``: the request in
        words."""
        if error.retriable() or error.code() in NO_ANSWER:
            return BrokerNotReachable(
                addresses=self.bootstrap_servers, timeout_ms=self.broker_timeout_ms, reason=error.name()
            )
        return BrokerRefused(addresses=self.bootstrap_servers, what=what, reason=error.name())

    def verify(self) -> None:
        """Check that the topic exists and has the same id as before. Raises StateTopicMissing if it was deleted, or
        deleted and created again."""
        topic = self.cluster.topics([self.name]).get(self.name)
        if topic is None:
            raise self.missing("was deleted")
        if self.topic_id and topic.topic_id != self.topic_id:
            raise self.missing("was deleted and created again")

    def offset(self, partition: int, at: int, *, read_committed: bool = False) -> int:
        """Returns an offset of a partition, as :meth:`KafkaCluster.offsets` does. A broker that just came back may not
        know yet a partition that it leads, so it is asked again as long as the topic exists. Raises StateTopicMissing
        if the topic was deleted."""
        topic_partition = (self.name, partition)

        def look() -> int | None:
            offsets = self.cluster.offsets([topic_partition], at, read_committed=read_committed)
            if topic_partition not in offsets:
                self.verify()
            return offsets.get(topic_partition)

        offset = retry_until(self.timeout_s, _PAUSE, retry_if_result(lambda found: found is None))(look)
        if offset is None:
            raise self.missing(f"has no partition {partition}")
        return offset

    def ensure(self) -> int:
        """Creates the topic if it is missing, checks it, and returns its number of partitions.

        Raises:
            StateTopicUnfit: the topic's configuration would lose state, or the cluster gives no topic ids.
            StateTopicNotAuthorized: the principal lacks a permission.
            BrokerNotReachable, BrokerRefused: the brokers do not answer, or refuse."""
        return self._found(only_look=False)

    def look(self) -> int:
        """The same as :meth:`ensure`, but nothing is created. If the topic is missing, the brokers are asked whether it
        may be created, and 0 is returned."""
        return self._found(only_look=True)

    def _found(self, *, only_look: bool) -> int:
        if not self.cluster.gives_topic_ids():
            reason = "this cluster has no controller, or gives topics no ids: name another cluster's brokers (that of "
            reason += "sharegroup quickstart serves one host, and one SHAREGROUP_RUNTIME_DIR, alone)"
            raise StateTopicUnfit(topic=self.name, reason=reason)
        admin = new_client(AdminClient, self.client_config())
        found = self._call("look for it", lambda: admin.list_topics(timeout=self.timeout_s))
        if self.name not in found.topics or not found.topics[self.name].partitions:
            self._create(admin, len(found.brokers), only_ask=only_look)
            if only_look:
                return 0
        partitions = self._wait_for_leaders(admin)
        self._check_configs(admin, only_look=only_look)
        return partitions

    def _create(self, admin: AdminClient, brokers: int, *, only_ask: bool) -> None:
        config = {
            "cleanup.policy": "delete",
            "retention.ms": _UNLIMITED,
            "retention.bytes": _UNLIMITED,
            "max.message.bytes": str(MAX_MESSAGE_BYTES),
            **BROKERS_TIME,
        }
        replicas = max(1, min(MAX_REPLICAS, brokers))
        topic = NewTopic(self.name, num_partitions=self.partitions, replication_factor=replicas, config=config)
        try:
            asked = admin.create_topics([topic], request_timeout=self.timeout_s, validate_only=only_ask)
            self._call("create it", asked[self.name].result)
        except _Exists:
            return
        if only_ask:
            return
        _log.info("state topic created: %s partitions=%d replicas=%d", self.name, self.partitions, replicas)

    def _wait_for_leaders(self, admin: AdminClient) -> int:
        """The number of the topic's partitions, when each of them has a leader. Raises BrokerNotReachable if a
        partition has no leader when the broker timeout is over."""

        def look() -> list[bool]:
            found = self._call("look for it", lambda: admin.list_topics(timeout=self.timeout_s)).topics.get(self.name)
            return [] if found is None else [p.leader >= 0 for p in found.partitions.values()]

        led = retry_until(self.timeout_s, _PAUSE, retry_if_result(lambda led: not led or not all(led)))(look)
        if not led or not all(led):
            raise BrokerNotReachable(
                addresses=self.bootstrap_servers,
                timeout_ms=self.broker_timeout_ms,
                reason=f"{led.count(False) or 'all'} partitions of {self.name} have no leader",
            )
        return len(led)

    def _check_configs(self, admin: AdminClient, *, only_look: bool) -> None:
        asked = ConfigResource(ConfigResource.Type.TOPIC, self.name)
        try:
            answers = admin.describe_configs([asked], request_timeout=self.timeout_s)
            found = self._call("read its configuration", answers[asked].result)
        except StateTopicNotAuthorized:
            _log.warning("state topic's configuration can't be checked: DescribeConfigs on it is not allowed")
            return
        configs = {name: entry.value for name, entry in found.items()}
        if "compact" in configs["cleanup.policy"]:
            self._raise_unfit(
                configs, "cleanup.policy", "delete", "compaction removes records that a group still needs"
            )
        for name in ("retention.ms", "retention.bytes"):
            if configs[name] != _UNLIMITED:
                self._raise_unfit(configs, name, _UNLIMITED, "retention removes records that a group still needs")
        if int(configs["max.message.bytes"]) < MAX_MESSAGE_BYTES:
            self._raise_unfit(
                configs, "max.message.bytes", str(MAX_MESSAGE_BYTES), "large snapshots do not fit into it"
            )

        if not only_look and any(configs.get(name, value) != value for name, value in BROKERS_TIME.items()):
            self._set_brokers_time(admin)

    def _set_brokers_time(self, admin: AdminClient) -> None:
        """Set message.timestamp.type=LogAppendTime on a topic that an earlier version or an administrator created.
        Without the permission, the topic stays as it is and is used."""
        asked = changed(self.name, BROKERS_TIME)
        name, value = next(iter(BROKERS_TIME.items()))
        try:
            admin.incremental_alter_configs([asked], request_timeout=self.timeout_s)[asked].result()
            _log.info("state topic altered: %s %s=%s", self.name, name, value)
        except KafkaException as error:
            _log.warning(
                "state topic %s: a host whose clock is an hour ahead could not write to it. This process may not alter "
                "it (%s): set its %s to %s with kafka-configs.sh",
                *(self.name, error.args[0].name(), name, value),
            )

    def _raise_unfit(self, configs: Mapping[str, str], name: str, value: str, why: str) -> None:
        reason = f"its {name} is {configs[name]}, and {why}: set it to {value} (kafka-configs.sh); or, if "
        reason += "it is empty because a broker created it, delete it: the coordinator will create it correctly"
        raise StateTopicUnfit(topic=self.name, reason=reason)

    def _call(self, what: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except KafkaException as raised:
            error = raised.args[0]
            if is_denied(error):
                raise self.denied(what) from None
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise _Exists from None
            if error.code() in _NOT_SO:
                reason = f"the brokers do not {what} ({error.name()}: {error.str()})"
                raise StateTopicUnfit(topic=self.name, reason=reason) from None
            raise self.failed(f"{what} ({self.name})", error) from None


class _Exists(Exception):
    """Another process has created the topic in the meantime."""
