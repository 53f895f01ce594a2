"""A coordinator's service in this process, on a cluster in memory: its groups' work without Spark, network and disk.

The state goes the way of the state topic: each append is encoded as there, in sharegroup's records and in Kafka's, and
is then forgotten; ``appended_bytes`` counts it."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import Heartbeat, JoinGroup, NextPlan, Plan, StartPlan
from coordinator.service.brokers.broker_watch import BrokerWatch
from coordinator.service.handlers.coordinator_service import CoordinatorService
from coordinator.service.runtime.event_loop import PartitionedRuntime
from coordinator.service.runtime.news import News
from coordinator.service.runtime.runtime import SNAPSHOT_AFTER, CoordinatorRuntime
from coordinator.service.stores.store import Append, SoleOwner, StoredRecord
from coordinator.state_log.group_log import GroupLog
from coordinator.state_log.partition_log import KeyValue
from coordinator.state_log.placement import state_partition_of
from tests.support.fake_cluster import FakeCluster

STATE_PARTITIONS = 50
"""The number of partitions of a new state topic; each has an event loop."""
NEVER_MS = 10**9


def _partition_of(group_id: str) -> int:
    return state_partition_of(group_id, STATE_PARTITIONS)


class CountedLog(SoleOwner):
    """A store that encodes each append as the state topic has it, and keeps none."""

    name = "memory"

    def __init__(self) -> None:
        self._logs: dict[str, GroupLog] = {}
        self.appended_bytes = 0
        self.appends = 0

    def load(self, group_id: str) -> Iterable[StoredRecord]:
        """Yields nothing: each group is new."""
        self._logs[group_id] = GroupLog(group_id, updates_per_snapshot=SNAPSHOT_AFTER)
        return iter(())

    def must_prove(self, group_id: str) -> bool:
        """Returns false: the last append was less than five seconds ago."""
        return False

    def append(self, appends: Mapping[str, Append], now_ms: int) -> None:
        for group_id, each in appends.items():
            log = self._logs[group_id]
            shown, first = log.state_records(each.group, each.records, now_ms), log.next_sequence or 0
            self._count([*log.keyed(each.data, first), *shown])
            log.next_sequence = first + len(each.data)
            log.written(shown)

    def replace_with_snapshot(self, group: ShareGroup, data: Sequence[bytes], now_ms: int) -> None:
        log = self._logs[group.group_id]
        shown, first = log.snapshot_records(group, now_ms), log.next_sequence or 0
        self._count([log.snapshot_mark(first), *log.keyed(data, first), *shown])
        log.next_sequence = first + len(data)
        log.written(shown)

    def close(self) -> None:
        """Does nothing: nothing is kept."""

    def _count(self, entries: Sequence[KeyValue]) -> None:
        self.appends += 1
        self.appended_bytes += sum(len(key) + len(value or b"") for key, value in entries)


class Cluster(FakeCluster):
    """A cluster in memory whose topic ids have Kafka's form."""

    def __init__(self) -> None:
        super().__init__()
        self._ids = (base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode() for _ in count())


class ServedGroups:
    """The service, with topics that get records by `produce` alone."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self._stores: list[CountedLog] = []
        self._watch = BrokerWatch(self.cluster, metadata_refresh_ms=NEVER_MS)
        self._news = News()
        self._event_loops = PartitionedRuntime(_partition_of, self._runtime)
        self.service = CoordinatorService(self._event_loops, self._watch, self._news)

    def __enter__(self) -> ServedGroups:
        return self

    def __exit__(self, *_: object) -> None:
        self._event_loops.close()
        self._watch.close()

    @property
    def appended_bytes(self) -> int:
        """Bytes of keys and values that all groups have appended."""
        return sum(store.appended_bytes for store in self._stores)

    def produce(self, topic: str, partitions: int, records: int) -> None:
        """Gives each partition of the topic ``records`` more records. Creates the topic if it is missing."""
        if topic not in self.cluster.found:
            self.cluster.add(topic, partitions)
        for partition in range(partitions):
            self.cluster.move(topic, self.cluster.logs[topic, partition][1] + records, partition)

    def _runtime(self, partition: int) -> CoordinatorRuntime:
        store = CountedLog()
        self._stores.append(store)
        clock = self._event_loops.clock
        return CoordinatorRuntime(store, clock=clock.now_ms, on_change=self._news.notify)


class Query:
    """A query of a group: it joins, and then has a batch at each ``batch``."""

    def __init__(self, served: ServedGroups, group_id: str, topic: str) -> None:
        self._handle, self._plan_id = served.service.handle, ""
        member_id = uuid.uuid4().hex
        join = JoinGroup(
            group_id=group_id,
            member_id=member_id,
            process_id=uuid.uuid4().hex,
            topics=(topic,),
            starting_offsets="earliest",
            configs={"share.session.timeout.ms": "3600000"},
        )
        epoch = self._handle(join).member_epoch
        self._who: dict[str, Any] = {"group_id": group_id, "member_id": member_id, "member_epoch": epoch}

    def batch(self, records: int) -> Plan:
        """Completes the plan, acquires the next one, of ``records`` records, and starts it."""
        request = NextPlan(**self._who, start=self._plan_id, max_records=records, wait_ms=0)
        plan: Plan = self._handle(request).plan
        assert plan.plan_id, "the topic has too few records"
        self._plan_id = plan.plan_id
        self._handle(StartPlan(**self._who, plan_id=plan.plan_id, logged=plan.partitions, acquired_here=True))
        return plan

    def beat(self) -> None:
        self._handle(Heartbeat(**self._who))
