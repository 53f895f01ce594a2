"""Pruning: deletes records that no group needs from the front of the state partitions whose groups this process serves.

A group needs its log from its newest snapshot on. Rule: only records below everything that any group of the partition
needs are deleted, other processes' groups included. No other part of sharegroup deletes from the topic.

Groups get new snapshots only if more records could be deleted than all groups need, so a partition at rest is not
touched. Without this condition each pass would write a hundred dormant groups again, only because of what the previous
pass wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from coordinator.kafka.librdkafka import LACKING, new_client
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.service.brokers.cluster import EARLIEST, LATEST
from coordinator.service.process.repeated_look import RepeatedLook
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.log_reader import LogReader
from coordinator.service.stores.kafka.partition_count import record as record_placement
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.state_log.retention import Retention

FAR_BACK = 1_000
"""Groups get new snapshots if more records than this, and more than all groups need, lie between the needed ones.
Groups whose snapshots lie within this many records of the partition's start come first."""
WOKEN_AT_ONCE = 20
"""Pruning loads no further groups in a pass while this many groups that it loaded are still served. A group is unloaded
after its snapshot, except one whose absent members hold records: these have a session's time to come back."""

_NO_DELETE_RECORDS = (
    "%s is not pruned: these brokers have no delete-records (%s). The topic grows, and a takeover reads longer; "
    "share.state.store=sqlite:PATH needs no such topic"
)

_log = logging.getLogger(__name__)


class Pruning:
    """A thread that prunes every ``interval_ms``. ``wake`` loads a group without a living owner, so that the group gets
    a new snapshot, and is unloaded again. None: such groups are left alone, because a coordinator on demand takes only
    groups that it was asked for."""

    def __init__(
        self,
        topic: StateTopic,
        stores: Callable[[], list[KafkaStore]],
        *,
        interval_ms: int,
        wake: Callable[[str], object] | None = None,
    ) -> None:
        self._topic, self._stores, self._wake = topic, stores, wake
        self._retentions: dict[tuple[str, int], Retention] = {}
        self._woken: set[str] = set()
        self._admin: AdminClient | None = None
        self._once = LogOnce(_log)
        self._look = RepeatedLook(self.prune, "what to prune", interval_ms=interval_ms)

    def close(self) -> None:
        self._look.close(self._topic.timeout_s)

    def prune(self) -> None:
        """Delete the records that no group needs. Tell each store which groups hold the deletion back."""
        for store in self._stores():
            try:
                self._prune(store)
            except Exception as error:  # noqa: BLE001 - the other partitions, and the next pass, do not depend on it
                _log.warning("the state topic could not be pruned: %s %r", store.name, error)

    def _prune(self, store: KafkaStore) -> None:
        topic = store.topic
        topic.verify()
        retention = self._retentions.setdefault((topic.topic_id, store.partition), Retention())
        committed = topic.offset(store.partition, LATEST, read_committed=True)
        if committed < retention.read_to:  # the topic was deleted and created again
            retention = self._retentions[topic.topic_id, store.partition] = Retention()
        with LogReader(topic, store.partition, start=retention.read_to) as reader:
            for message in reader.read_to(committed):
                retention.add(message.key(), message.value(), message.offset())
        retention.read_to = max(retention.read_to, reader.position)
        store.passed_over(retention.foreign)
        lowest = retention.lowest()
        if lowest > topic.offset(store.partition, EARLIEST):
            topic.verify()  # the read took time: the topic may have been deleted since
            if retention.placement is not None and retention.placement < lowest:
                record_placement(topic, topic.partitions)
            self._delete_below(store.partition, lowest)
        if retention.not_needed() > max(FAR_BACK, retention.needed_count()):
            store.hold_back(retention.first_groups(lowest + FAR_BACK), lowest + FAR_BACK)
            self._wake_groups(store)

    def _wake_groups(self, store: KafkaStore) -> None:
        if self._wake is None:
            return
        for group_id in sorted(store.holding_back - store.served):
            if len(self._woken & store.served) >= WOKEN_AT_ONCE:
                return
            self._woken.add(group_id)
            self._wake(group_id)
        self._woken &= store.served

    def _delete_below(self, partition: int, offset: int) -> None:
        if self._admin is None:
            self._admin = new_client(AdminClient, self._topic.client_config())
        partition_offset = TopicPartition(self._topic.name, partition, offset)
        asked = self._admin.delete_records([partition_offset], request_timeout=self._topic.timeout_s)
        try:
            asked[partition_offset].result()
        except KafkaException as raised:
            if raised.args[0].code() not in LACKING:
                raise
            if self._once.changes("delete-records", True):
                _log.warning(_NO_DELETE_RECORDS, self._topic.name, raised.args[0].str())
            return
        _log.info("state topic pruned: %s-%d below offset %d", self._topic.name, partition, offset)
