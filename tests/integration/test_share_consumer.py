"""The ShareConsumer on a real broker: what confluent's class has not, and what a crash costs."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.kafka import cluster_metadata
from coordinator.protocol.messages import AcquireRecords, DescribeGroup
from share_consumer.pace import BACKLOG_RECORDS
from sharegroup import AcknowledgeType, Admin, AsyncShareConsumer, IllegalStateException, ShareConsumer
from tests.support.consumer_process import ConsumerProgram
from tests.support.coordinator_process import kill_coordinators
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_log import messages_of
from tests.support.rejecting import said
from tests.support.standalone import StandaloneProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

Factory = Callable[..., Any]


@pytest.fixture
def make(kafka: KafkaBroker, unique: Callable[[str], str]) -> Iterator[Factory]:
    """Makes consumers of one group, which begins at the earliest record; they are closed after the test."""
    group, made = unique("group"), []

    def consumer(*topics: str, **settings: object) -> ShareConsumer:
        made.append(ShareConsumer(config(kafka, group, **settings)))
        made[-1].subscribe(list(topics))
        return made[-1]

    consumer.group = group  # type: ignore[attr-defined]
    yield consumer
    for each in made:
        each.close()


def config(kafka: KafkaBroker, group: str, **settings: object) -> dict[str, Any]:
    base = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "share.auto.offset.reset": "earliest"}
    return {**base, **{key.replace("_", "."): value for key, value in settings.items()}}


def polled(consumer: ShareConsumer, count: int = 1) -> list[Any]:
    """Polls until there are ``count`` records, and returns them."""
    found: list[Any] = []

    def came() -> bool:
        found.extend(consumer.poll(1.0))
        return len(found) >= count

    wait_until(came, what=f"{count} records come")
    return found


def offsets(messages: list[Any]) -> list[int]:
    """In order. A request that slow brokers kept from reading gives records back, so that a delivery count may be 2."""
    return sorted(message.offset() for message in messages)


def in_explicit_mode(make: Factory, *topics: str, **settings: object) -> Any:
    return make(*topics, share_acknowledgement_mode="explicit", **settings)


def in_flight(kafka: KafkaBroker, group: str, *states: str) -> Any:
    """The group's runs in these states, or all that are not done, at a time of the coordinator's clock."""
    with Admin({"bootstrap.servers": kafka.bootstrap}) as admin:
        return admin.in_flight(group, only_state=states)


# --- more than confluent's class


def test_records_that_arrive_after_their_poll_wait_for_the_next_poll(kafka, topic, make):
    orders = topic()
    consumer, other = make(orders), make(orders)
    assert other.poll(1.0).count() == consumer.poll(1.0).count() == 0
    other.unsubscribe()
    assert consumer.poll(0.0).count() == 0  # asks, and does not wait
    kafka.produce(orders, ["a"])
    (record,) = polled(consumer)
    (run,) = in_flight(kafka, make.group).runs
    # Its delivery count is 2 where a request took it and gave it back unread: the one that ``other`` had under way, or
    # one of slow brokers. That is no try.
    assert (record.offset(), run.failures, run.releases) == (0, 0, 0), "a poll that was given up uses up no try"


def test_gaps_are_acknowledged_beside_the_records(kafka, topic, make):
    orders = topic()
    for number in range(3):
        kafka.produce_transaction(orders, [f"{number}"])
    consumer = make(orders, share_isolation_level="read_committed")
    assert [message.offset() for message in polled(consumer, 3)] == [0, 2, 4]
    consumer.commit_sync()
    consumer.poll(0.5)
    assert described(kafka, make.group) == {0: (6, 0)}


def test_an_unreachable_cluster_raises_a_kafka_exception(unique, monkeypatch):
    monkeypatch.setattr(cluster_metadata, "BROKER_TIMEOUT_S", 1.0)
    consumer = ShareConsumer({"bootstrap.servers": "127.0.0.1:9", "group.id": unique("group"), "log_level": 0})
    consumer.subscribe(["orders"])
    with pytest.raises(KafkaException) as raised:
        consumer.poll()
    assert raised.value.args[0].name() == "NETWORK_EXCEPTION"
    consumer.close()


def test_a_standalone_coordinator_serves_share_consumers(kafka, topic, make, tmp_path):
    orders = topic()
    kafka.produce(orders, ["a"])
    running = StandaloneProcess(
        tmp_path, {"bootstrap.servers": kafka.bootstrap, "share.state.store": f"sqlite:{tmp_path}/state"}
    ).wait_ready()
    try:
        endpoint = {"share.coordinator.endpoint": running.endpoint}
        consumer = make(orders, **endpoint, **{"share.coordinator.token.file": str(running.token_file)})
        assert offsets(polled(consumer)) == [0]
        consumer.close()
    finally:
        running.close()


# --- metrics


@pytest.mark.parametrize("native", [True, False])
def test_metrics_count_what_the_program_got_and_acknowledged(kafka, topic, make, monkeypatch, native):
    monkeypatch.setattr("share_consumer.fetching.is_native", lambda: native)
    orders = topic()
    kafka.produce(orders, [b"five!"] * 30, keys=["key"] * 30)
    consumer = make(orders, share_heartbeat_interval_ms=100)
    polled(consumer, 30)
    consumer.commit_sync()
    wait_until(lambda: consumer.metrics()["heartbeat-total"] > 0, what="a heartbeat is answered")
    values = consumer.metrics()
    totals = {name: value for name, value in values.items() if name.endswith("-total")}
    assert (totals["records-consumed-total"], totals["acknowledgements-send-total"]) == (30, 30)
    assert (totals["bytes-consumed-total"], totals["acknowledgements-error-total"]) == (30 * 8, 0)
    assert totals["fetch-total"] >= 1 and 0 < values["fetch-latency-avg"] <= values["fetch-latency-max"]
    assert 0 < values["records-consumed-rate"] <= 1.0 and values["last-heartbeat-seconds-ago"] >= 0


# --- asyncio


def test_async_for_accepts_the_records_that_its_body_received(kafka, topic, make):
    orders = topic()
    kafka.produce(orders, [f"{number}" for number in range(6)])

    async def work() -> list[int]:
        seen = []
        async with AsyncShareConsumer(config(kafka, make.group)) as consumer:
            await consumer.subscribe([orders])
            async for message in consumer:
                seen.append(message.offset())
                if len(seen) == 4:
                    break
            await consumer.commit_sync()  # what the loop has returned, not the rest of its poll
        return seen

    assert asyncio.run(work()) == [0, 1, 2, 3]
    assert offsets(polled(make(orders), 2)) == [4, 5]


# --- a topic that was created again


def made_anew(kafka: KafkaBroker, name: str, count: int) -> None:
    kafka.recreate_topic(name)
    kafka.produce(name, ["new"] * count)


def test_a_topic_made_anew_is_not_delivered_as_its_predecessor(kafka, topic, make):
    """The release goes with the next acquisition, which would get the old record again, and read the new one."""
    orders = topic()
    kafka.produce(orders, ["old"])
    consumer = make(orders, share_acknowledgement_mode="explicit")
    (message,) = polled(consumer)
    made_anew(kafka, orders, 2)
    consumer.acknowledge(message, AcknowledgeType.RELEASE)

    anew = polled(consumer, 2)
    assert (offsets(anew), {message.value() for message in anew}) == ([0, 1], {b"new"})


def test_an_async_consumer_is_told_of_a_topic_made_anew(kafka, topic, make):
    orders = topic()
    kafka.produce(orders, ["old"])

    async def work() -> tuple[list[Any], list[Any]]:
        async with AsyncShareConsumer(config(kafka, make.group)) as consumer:
            await consumer.subscribe([orders])
            await consumer.poll(60.0)
            await asyncio.to_thread(made_anew, kafka, orders, 1)
            answers = list((await consumer.commit_sync()).values())
            return answers, [message.value() for message in await consumer.poll(60.0)]

    (error,), anew = asyncio.run(work())
    assert (error and error.args[0].code(), anew) == (KafkaError.UNKNOWN_TOPIC_ID, [b"new"])


# --- crashes


def described(kafka: KafkaBroker, group: str) -> dict[int, tuple[int, int]]:
    """By partition: the start offset, and how many records are archived that the log holds."""
    client = CoordinatorClient.connect(kafka.bootstrap, {"bootstrap.servers": kafka.bootstrap})
    partitions = client.call(DescribeGroup(group_id=group)).partitions
    client.close()
    return {p.partition: (p.start_offset, p.archived_total - p.archived.get("none", 0)) for p in partitions}


def test_the_records_of_a_lost_answer_come_again(kafka, topic, make):
    orders = topic()
    kafka.produce(orders, ["a", "b"])
    client = CoordinatorClient.connect(kafka.bootstrap, {"bootstrap.servers": kafka.bootstrap})
    session = MemberSession(
        client, make.group, "m", query=False, topics=(orders,), configs={"share.auto.offset.reset": "earliest"}
    )
    lost = session.call(lambda who: AcquireRecords(**who, max_records=2, after="", wait_ms=5000))
    kill_coordinators()  # the answer was durable, and never arrived
    again = session.call(lambda who: AcquireRecords(**who, max_records=2, after="", wait_ms=5000))
    assert (again.plan_id, again.partitions) == (lost.plan_id, lost.partitions)
    assert not session.call(lambda who: AcquireRecords(**who, max_records=2, after=again.plan_id)).partitions
    session.close(leave=True)
    client.close()


def signalled_ms(kafka: KafkaBroker, group: str) -> int:
    """The time between the first and the last signal of the record in progress; 0: no record is."""
    return sum(run.last_signal_ms - run.first_signal_ms for run in in_flight(kafka, group, "in_progress").runs)


@pytest.mark.slow
def test_a_worker_with_signals_keeps_its_record_until_it_is_stopped(kafka, topic, make, tmp_path):
    """It keeps the record beyond its lock; stopped, it loses the record after the staleness threshold."""
    orders = topic()
    kafka.produce(orders, ["a"])
    settings = {"share_record_lock_duration_ms": 9000, "group_share_in_progress_staleness_threshold_ms": 12_000}
    arguments = {"config": config(kafka, make.group, **settings), "topic": orders, "works": True}
    worker = ConsumerProgram(tmp_path, "worker", arguments)
    try:
        wait_until(lambda: worker.lines("got"), what="the worker has the record")
        wait_until(lambda: signalled_ms(kafka, make.group) > 9500, what="it works for longer than its lock")
        other = in_explicit_mode(make, orders, share_background_renew_enable=True)
        assert other.poll(0.5).count() == 0
        worker.process.send_signal(signal.SIGSTOP)
        (record,) = polled(other)
        assert record.offset() == 0
        worker.process.send_signal(signal.SIGCONT)
        worker.go_on()
        wait_until(lambda: worker.lines("refused"), what="its late outcome is refused")
        other.acknowledge(record)
        assert list(other.commit_sync().values()) == [None]
    finally:
        worker.kill()


RECORDS = 60


def kill_a_holder(
    kafka: KafkaBroker, topic: str, tmp_path: Path, conf: dict[str, Any], work: Callable[[Any], None], **holds: int
) -> None:
    """A consumer holds records; in ``work`` others begin. Then it is killed with the coordinator, and the others accept
    all records, each once."""
    arguments = {"config": conf, "topic": topic}
    processes = [ConsumerProgram(tmp_path, "holds", {**arguments, **holds})]

    def begin(name: str) -> ConsumerProgram:
        processes.append(ConsumerProgram(tmp_path, name, arguments))
        return processes[-1]

    try:
        wait_until(lambda: processes[0].lines("holds"), timeout_s=200, what="a consumer holds records")
        work(begin)
        processes[0].kill()
        assert kill_coordinators()
        done = all_accepted(kafka, topic)
        wait_until(lambda: described(kafka, conf["group.id"]) == done, timeout_s=300, what="all are accepted")
    finally:
        for process in processes:
            process.kill()
    deliveries = [line for process in processes for line in process.lines("got")]
    assert len(deliveries) == len(set(deliveries)), "a delivery has one holder"
    accepted = [line.rpartition(" ")[0] for process in processes for line in process.lines("accepted")]
    assert len(accepted) == len(set(accepted)), "a record is accepted once"


def test_consumers_and_coordinators_that_are_killed_lose_and_double_nothing(kafka, topic, make, tmp_path):
    orders = topic(partitions=2)
    kafka.produce(orders, [f"{number}" for number in range(RECORDS)])
    times = {"share_record_lock_duration_ms": 2000, "share_session_timeout_ms": 3000}
    settings = {**times, "max_poll_records": 5, "share_delivery_count_limit": 10}  # on a busy machine locks end by time

    def work(begin):
        others = [begin(name) for name in ("one", "other")]
        wait_until(lambda: any(each.lines("got") for each in others), what="the others are at work")

    kill_a_holder(kafka, orders, tmp_path, config(kafka, make.group, **settings), work, hold=3)


HOLD = BACKLOG_RECORDS + 10
"""The consumer accepts all records before this one, and so acquires ahead: it has read the backlog that it needs for
that."""
MANY = HOLD + 390


def acquired(kafka: KafkaBroker, group: str) -> int:
    """How many records members hold."""
    return sum(run.last - run.first + 1 for run in in_flight(kafka, group, "acquired").runs)


@pytest.mark.slow
def test_records_ahead_of_a_killed_consumer_and_coordinator_have_one_holder(kafka, topic, make, tmp_path):
    """The consumer is killed with records that no poll has returned; so is the coordinator, and partitions move."""
    orders = topic(partitions=2)
    kafka.produce(orders, [f"{number}" for number in range(MANY)])
    settings = {"max_poll_records": 50, "share_record_lock_duration_ms": 60_000, "share_session_timeout_ms": 4000}

    def work(begin):
        wait_until(lambda: acquired(kafka, make.group) > 50, what="it has acquired more, ahead")
        others = [begin(name) for name in ("one", "other")]
        wait_until(lambda: any(len(each.lines("accepted")) > 20 for each in others), what="others work")

    conf = config(kafka, make.group, **settings)
    kill_a_holder(kafka, orders, tmp_path, conf, work, hold=HOLD, together=HOLD - 200)


def all_accepted(kafka: KafkaBroker, topic: str) -> dict[int, tuple[int, int]]:
    """A group that has accepted all records of the two partitions is described so."""
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(2)}
    return {at.partition: (answer.result().offset, 0) for at, answer in kafka.admin.list_offsets(asked).items()}


def test_a_release_in_order_brings_all_later_records_again(kafka, topic, make) -> None:
    orders = topic("orders")
    kafka.produce(orders, [str(number) for number in range(8)])
    settings = {"share_order": "partition", "share_acknowledgement_mode": "explicit", "max_poll_records": 4}
    consumer, done, released = make(orders, **settings), [], []

    def decided() -> bool:
        messages = consumer.poll(1.0)
        for message in messages:
            if message.offset() == 2 and not released:
                released.append(message)
                consumer.acknowledge(message, AcknowledgeType.RELEASE)
            elif released and message.offset() == 3 and message.delivery_count() == released[0].delivery_count():
                with pytest.raises(IllegalStateException):
                    consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            else:
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                done.append(message.offset())
        return len(done) >= 8

    wait_until(decided, what="all records are accepted")
    assert done == list(range(8))
    assert set(consumer.commit_sync().values()) <= {None}


# --- reasons, delays, and a broker that dies


def test_a_dead_letter_has_the_reason_and_a_delay_is_waited_for(kafka, topic, make) -> None:
    orders, letters = topic(), topic()
    kafka.produce(orders, ["a", "b"])
    consumer = in_explicit_mode(make, orders, errors_deadletterqueue_topic_name=letters)
    rejected, released = polled(consumer, 2)
    consumer.acknowledge(rejected, AcknowledgeType.REJECT, reason="no amount")
    consumer.acknowledge(released, AcknowledgeType.RELEASE, delay_ms=2_000)
    began_s = time.monotonic()
    assert list(consumer.commit_sync().values()) == [None]
    (again,) = polled(consumer)
    assert again.offset() == 1
    assert time.monotonic() - began_s >= 2
    consumer.acknowledge(again)
    consumer.close()
    wait_until(lambda: [said(each) for each in messages_of(kafka.bootstrap, letters)] == [("rejected", "no amount")])


def test_a_record_released_until_a_point_in_time_comes_back_then(kafka, topic, make) -> None:
    orders = topic()
    kafka.produce(orders, ["later", "now"])

    async def work() -> list[int | None]:
        async with AsyncShareConsumer(config(kafka, make.group, share_acknowledgement_mode="explicit")) as consumer:
            await consumer.subscribe([orders])
            later, now = [await anext(consumer) for _ in range(2)]
            at = datetime.now(timezone.utc) + timedelta(seconds=5)
            await consumer.acknowledge(later, AcknowledgeType.RELEASE, release_at=at)
            over = datetime.now(timezone(timedelta(hours=9))) - timedelta(days=1)
            await consumer.acknowledge_offset(orders, 0, now.offset(), AcknowledgeType.RELEASE, release_at=over)
            assert list((await consumer.commit_sync()).values()) == [None]
            again = [await anext(consumer)]
            await consumer.acknowledge(again[0])
            again.append(await anext(consumer))
            assert datetime.now(timezone.utc) >= at
            await consumer.acknowledge(again[1])
            return [each.offset() for each in again]

    assert asyncio.run(work()) == [1, 0]


@pytest.mark.slow
def test_error_cb_is_told_of_a_killed_broker_and_close_ends(unique) -> None:
    told: set[tuple[str, int]] = set()
    with KafkaBroker() as broker:
        orders = broker.create_topic()
        broker.produce(orders, ["a", "b"])
        settings = config(broker, unique("group"), share_acknowledgement_mode="explicit")
        settings |= {"socket.timeout.ms": 15_000}  # `close` waits that long
        settings |= {"error_cb": lambda error: told.add((error.name(), threading.get_ident()))}
        consumer = ShareConsumer(settings)
        consumer.subscribe([orders])
        for message in polled(consumer, 2):
            consumer.acknowledge(message)
        broker.kill()
        here = threading.get_ident()
        wanted = {(name, here) for name in ("_TRANSPORT", "_ALL_BROKERS_DOWN")}
        wait_until(lambda: consumer.poll(0.2) is not None and wanted <= told, what="polls call error_cb")
        assert {thread for _, thread in told} == {here}
        consumer.close()
