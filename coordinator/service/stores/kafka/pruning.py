"""Deletes what no group needs any more from the front of the state partitions that this process serves groups of.

A group needs its log from its newest snapshot on. Rule: what is deleted lies below what every group of the partition
needs, also those of other processes, as far as their records are committed; nothing else ever deletes from the topic.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from coordinator.service.brokers.cluster import EARLIEST, LATEST
from coordinator.service.stores.kafka.group_placement import record as record_placement
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.log_reader import LogReader
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.state_log.retention import Retention

FAR_BACK = 1_000
"""Records behind a group's old snapshot that make it worth a new one."""

_log = logging.getLogger(__name__)


class Pruning:
    """A thread of its own; :meth:`prune` is one look at all partitions. ``wake`` loads a group that nobody has asked
    for since the partition came here, so that it gets a new snapshot: a fleet's owner has all groups of its partitions,
    a coordinator on demand only those that it was asked for."""

    def __init__(
        self,
        topic: StateTopic,
        stores: Callable[[], list[KafkaStore]],
        *,
        interval_ms: int,
        wake: Callable[[str], object] | None = None,
    ) -> None:
        self._topic, self._stores, self._wake = topic, stores, wake
        self._interval_s = interval_ms / 1000
        self._seen: dict[tuple[str, int], Retention] = {}
        self._admin: AdminClient | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="share-pruning", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Pruning {self._topic.name}>"

    def close(self) -> None:
        self._closed.set()
        self._thread.join(self._topic.timeout_s)

    def prune(self) -> None:
        """Look at what was added, delete what is not needed, and say which groups hold it up."""
        for store in self._stores():
            try:
                self._prune(store)
            except Exception as error:  # noqa: BLE001 - the others, and the next time, have nothing to do with it
                _log.warning("not pruned: %s %r", store.name, error)

    # --- inside

    def _run(self) -> None:
        while not self._closed.wait(self._interval_s):
            self.prune()

    def _prune(self, store: KafkaStore) -> None:
        topic = store.topic
        topic.verify()
        needed = self._seen.setdefault((topic.topic_id, store.partition), Retention())
        committed = topic.offset(store.partition, LATEST, read_committed=True)
        if committed < needed.read_to:  # the topic is not the one that it was
            needed = self._seen[topic.topic_id, store.partition] = Retention()
        with LogReader(topic, store.partition, start=needed.read_to) as reader:
            for messages in reader.read_to(committed):
                for message in messages:
                    needed.add(message.key(), message.value(), message.offset())
        needed.read_to = max(needed.read_to, reader.position)
        store.passed_over(needed.strays)
        lowest = needed.lowest()
        if lowest > topic.offset(store.partition, EARLIEST):
            topic.verify()  # the reading took its time
            if needed.placement is not None and needed.placement < lowest:
                record_placement(topic, topic.partitions)
            self._delete_below(store.partition, lowest)
        if needed.read_to - lowest > FAR_BACK:
            store.hold_back(needed.first_groups(lowest + FAR_BACK), lowest + FAR_BACK)
            for group_id in store.holding_back - store.served:
                if self._wake is not None:
                    self._wake(group_id)

    def _delete_below(self, partition: int, offset: int) -> None:
        if self._admin is None:
            self._admin = AdminClient(self._topic.client_config())
        asked = TopicPartition(self._topic.name, partition, offset)
        self._admin.delete_records([asked], request_timeout=self._topic.timeout_s)[asked].result(self._topic.timeout_s)
        _log.info("pruned: %s-%d below %d", self._topic.name, partition, offset)
