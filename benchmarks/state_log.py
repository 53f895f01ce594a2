"""Loading a state partition: the time, and that the memory depends on the group and not on its log."""

from __future__ import annotations

import multiprocessing
import resource
import time
import uuid
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import psutil

from benchmarks.report import Row
from coordinator.core.commands import AcquireForConsumer, CreateGroup, InitializePartitions, PartitionStart, TopicWithId
from coordinator.core.decide import decide
from coordinator.core.log_records import Record
from coordinator.core.looks.measures import MeasureGroup
from coordinator.core.record_codec import encode_records
from coordinator.core.replay import replay
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import AckBatch, Acknowledge, JoinGroup, PartitionAcks, PartitionBounds
from coordinator.service.brokers.cluster import EARLIEST, KafkaCluster
from coordinator.service.coordinator import set_up_python
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.transaction import Access, one
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.state_log.owner_record import Owner
from coordinator.state_log.partition_log import KeyValue
from tests.support.kafka_broker import KafkaBroker

GROUP, MEMBER = "loaded", "c1"
TOPIC_ID = "mSvrxBsrSxCKhSluKu37cQ"
HELD = 1_000
"""Each acquisition acknowledges this number of records and keeps one more: two live runs."""
LOAD_AT_MOST_S = 30
NEVER = 10**9
NOW_MS = 1_000_000
_ACCEPT = (1,)


class Loaded(NamedTuple):
    """The cost of a load in a process of its own; ``grown_mb`` is the memory that stayed, ``peak_mb`` the maximum."""

    seconds: float
    grown_mb: float
    peak_mb: float
    runs: int


def load_rows(broker: KafkaBroker, updates: int) -> list[Row]:
    """Measures how long a log of ``updates`` acknowledgements of one record each takes to load, without a snapshot."""
    name = f"state-{uuid.uuid4().hex[:8]}"
    topic = _topic(broker.bootstrap, name)
    topic.ensure()
    log_mb = _write(topic, updates) / 2**20
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        loaded = process.submit(_load, broker.bootstrap, name).result()
    how = f"{log_mb:,.0f} MB of records, {loaded.runs:,} live runs"
    return [
        Row(name=f"state: load {updates:,} updates", value=loaded.seconds, unit="s", at_most=LOAD_AT_MOST_S, how=how),
        Row(
            name="state: memory that the load leaves",
            value=loaded.grown_mb,
            unit="MB",
            how=f"the process at most {loaded.peak_mb:,.0f} MB more, its read buffers included; {how}",
        ),
    ]


# --- a log


def _write(topic: StateTopic, updates: int) -> int:
    """Write the log of a consumer that acknowledges record by record; return its bytes."""
    store = _store(topic)
    store.claim(GROUP)
    list(store.load(GROUP))
    opened = store._open[GROUP]
    log = opened.log
    group = ShareGroup(GROUP)
    written = 0
    own: list[bytes] = []
    shown: list[KeyValue] = []

    def run(command: Any) -> Any:
        decision = decide(group, command, NOW_MS)
        durable: list[Record] = [record for record in decision.records if record.durable]  # type: ignore[attr-defined,misc]
        for record in decision.records:
            replay(group, record)  # type: ignore[arg-type]
        own.extend(encode_records(durable))
        shown.extend(log.state_records(group, durable, NOW_MS))
        return decision.reply

    def append() -> None:
        nonlocal written
        written += sum(map(len, own)) + sum(len(key) + len(value) for key, value in shown)
        first = log.next_sequence or 0
        opened.writer.write([*log.keyed(own, first), *shown])
        log.next_sequence = first + len(own)
        log.written(shown)
        own.clear()
        shown.clear()

    run(CreateGroup(incarnation="i", topic_ids=True))
    starts = (PartitionStart(topic_id=TOPIC_ID, partition=0, start_offset=0),)
    run(InitializePartitions(topics=(TopicWithId(topic="t", topic_id=TOPIC_ID),), starts=starts))
    epoch = run(JoinGroup(group_id=GROUP, member_id=MEMBER, process_id="p", query=False)).member_epoch
    append()
    who: dict[str, Any] = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": epoch}
    for acquisition in range(-(-updates // HELD)):
        first = acquisition * (HELD + 1)
        bounds = (PartitionBounds(topic_id=TOPIC_ID, partition=0, log_start=0, end=first + HELD + 1),)
        run(AcquireForConsumer(**who, max_records=HELD + 1, bounds=bounds))
        for offset in range(first + 1, first + HELD + 1):  # the first one stays held
            batches = (AckBatch(first=offset, last=offset, delivery_count=1, types=_ACCEPT),)
            run(Acknowledge(**who, partitions=(PartitionAcks(topic_id=TOPIC_ID, partition=0, batches=batches),)))
        append()
    store.close()
    return written


def _topic(bootstrap: str, name: str) -> StateTopic:
    return StateTopic(
        cluster=KafkaCluster(bootstrap, {}, 30_000),
        bootstrap_servers=bootstrap,
        kafka_config={},
        partitions=1,
        write_timeout_ms=60_000,
        broker_timeout_ms=30_000,
        name=name,
    )


def _store(topic: StateTopic) -> KafkaStore:
    owner = Owner(installation_id="benchmark", process=uuid.uuid4().hex, host="here", pid=1)
    return KafkaStore(topic, 0, LivingOwner(owner), updates_per_snapshot=NEVER)


# --- its load, in a process of its own


def _load(bootstrap: str, name: str) -> Loaded:
    set_up_python()
    topic = _topic(bootstrap, name)
    topic.cluster.offsets([(name, 0)], EARLIEST)  # connected, as a coordinator is by then
    runtime = CoordinatorRuntime(_store(topic), snapshot_after=NEVER)
    before_mb = psutil.Process().memory_info().rss / 2**20
    began_s = time.perf_counter()
    answer = runtime.submit(GROUP, one(MeasureGroup(group_id=GROUP)), Access.CLAIM)
    runtime.step(NOW_MS)
    runs = sum(partition.runs for partition in answer.result(0).partitions)
    took_s = time.perf_counter() - began_s
    grown_mb = psutil.Process().memory_info().rss / 2**20 - before_mb
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10 - before_mb
    runtime.store.close()
    return Loaded(took_s, grown_mb, peak_mb, runs)
