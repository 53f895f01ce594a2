"""The data topic on bad days: lost replicas, an unclean election, a consume quota, a full disk under its broker.
Records that Kafka still has are delivered once each; records that Kafka has lost are named, with their count."""

import contextlib
import logging
import resource
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator.protocol.errors import ShareGroupError
from coordinator.service.brokers.cluster import LATEST, KafkaCluster
from share_source.errors import RecordsGone
from share_source.executor import consumers
from tests.support.kafka_broker import BrokerError, KafkaBroker
from tests.support.reader_query import Query, read
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def start(tmp_path, unique):
    """Queries of one group: `start(broker, "orders", **options)`."""
    group, started = unique("group"), []

    def new(broker, topic, **options):
        given = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "kafka.group.id": group,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "share.state.store": f"sqlite:{tmp_path / 'state.db'}",
            **options,
        }
        started.append(Query(**given))
        return started[-1]

    yield new
    for query in started:
        query.reader.stop()
    consumers.cache().close()


@pytest.fixture
def first_broker():
    """The controller, and what Kafka keeps of transactions; other brokers join it."""
    with KafkaBroker(heap="320m") as one:
        one.produce_transaction(one.create_topic(), [b"x"])  # so that __transaction_state is there, and stays
        yield one


def logged(runtime_dir, *words):
    """Lines of the coordinators' logs that have all of these words."""
    lines = [line for log in runtime_dir.rglob("coordinator-*.log") for line in log.read_text().splitlines()]
    return [line for line in lines if all(word in line for word in words)]


def numbered(rows):
    return [(row["offset"], row["value"].decode()) for row in rows]


@pytest.mark.soak
@pytest.mark.parametrize("fails", [True, False], ids=["failOnDataLoss", "without-failOnDataLoss"])
def test_an_unclean_election_during_a_plan_reports_the_loss_and_doubles_nothing(
    first_broker, start, runtime_dir, caplog, fails
):
    with contextlib.ExitStack() as stack:
        two, three = (stack.enter_context(KafkaBroker(heap="320m", joins=first_broker, node=n)) for n in (2, 3))
        orders = first_broker.create_topic(
            None, replicas=[2, 3], min_insync_replicas=1, unclean_leader_election_enable="true"
        )
        first_broker.produce(orders, [f"both {n}" for n in range(100)])
        three.kill()
        first_broker.produce(orders, [f"two alone {n}" for n in range(50)])
        patience = {"kafkaConsumer.pollTimeoutMs": "10000"}
        query = start(first_broker, orders, failOnDataLoss=str(fails).lower(), **patience)
        (task,) = query.wait_batch()
        two.kill()
        three.start()  # a replica that lacks the last 50 records becomes the leader
        wait_until(lambda: end_of(first_broker, orders) == 100, what="the log is shorter")
        if fails:
            with pytest.raises(RecordsGone, match=r"50 record\(s\) of .* offsets 100 to 149"):
                read(task)
            return
        with caplog.at_level(logging.WARNING):
            rows = read(task)
        assert numbered(rows) == [(n, f"both {n}") for n in range(100)]
        told = [record.getMessage() for record in caplog.records]
        assert len([text for text in told if text.startswith("50 record(s)") and "100 to 149" in text]) == 1, told
        query.commit(rows)

        assert query.next_batch() == []
        group = query.committed["group"]
        assert wait_until(lambda: logged(runtime_dir, "log shrunk", group, "150"), what="the coordinator names it")
        first_broker.produce(orders, [f"at old offsets {n}" for n in range(50)])
        first_broker.produce(orders, [f"new {n}" for n in range(30)])
        assert numbered(query.run()) == [(150 + n, f"new {n}") for n in range(30)], "the plan after it goes on"
        two.start()
        first_broker.produce(orders, ["newest"])
        assert numbered(query.run()) == [(180, "newest")]
        assert set(query.delivered.values()) == {1}
        assert len(logged(runtime_dir, "log shrunk", group)) == 1


def end_of(broker, topic):
    """The end of the log as its leader has it now; -1 while there is none."""
    with contextlib.suppress(ShareGroupError, KeyError):
        return KafkaCluster(broker.bootstrap, {}, 5_000).offsets([(topic, 0)], LATEST)[topic, 0]
    return -1


@pytest.mark.soak
def test_lost_replicas_stop_writers_and_cost_readers_nothing(first_broker, start):
    """Three replicas, min.insync.replicas=2: one and then two are lost in mid-plan. Readers need one replica."""
    with contextlib.ExitStack() as stack:
        two, three = (stack.enter_context(KafkaBroker(heap="320m", joins=first_broker, node=n)) for n in (2, 3))
        orders = first_broker.create_topic(None, replicas=[2, 3, 1], min_insync_replicas=2)
        first_broker.produce(orders, [f"all {n}" for n in range(100)], acks="all")
        query = start(first_broker, orders)
        query.run(most=40)
        tasks = query.wait_batch(most=40)
        two.kill()  # the leader
        query.commit([row for task in tasks for row in read(task)])
        first_broker.produce(orders, [f"one is lost {n}" for n in range(40)], acks="all")
        query.run(most=40)
        tasks = query.wait_batch(most=10)
        three.kill()
        wait_until(lambda: in_sync(first_broker, orders) == [1], what="the others are not in sync")
        with pytest.raises(BrokerError, match="NOT_ENOUGH_REPLICAS"):
            first_broker.produce(orders, ["refused"], acks="all", retries=0)
        query.commit([row for task in tasks for row in read(task)])
        while sum(query.delivered.values()) < 140:
            query.run(most=100)
        first_broker.produce(orders, [f"alone {n}" for n in range(10)], acks="1")
        assert query.next_batch() == [], "Kafka shows no record that too few replicas have"
        two.start()
        while sum(query.delivered.values()) < 150:
            query.run()
        assert query.delivered == Counter((0, n) for n in range(150))
        three.start()
        first_broker.produce(orders, ["newest"], acks="all")
        assert numbered(query.run()) == [(150, "newest")]


def in_sync(broker, topic):
    """The nodes whose replicas of partition 0 are in sync."""
    return sorted(broker.admin.list_topics(topic, 15).topics[topic].partitions[0].isrs)


RATE = 250_000
"""A quota lets readers have this number of bytes a second, on an average of some seconds."""


@pytest.mark.slow
def test_under_a_consume_quota_batches_are_slow_and_complete(kafka, topic, start):
    """The quota holds for the client id that all readers and coordinators have unless a query names another."""
    orders, sizes = topic("orders", 2), 4_000_000
    for partition in (0, 1):
        kafka.produce(orders, [b"%d" % n + b"x" * 996 for n in range(sizes // 2_000)], partition=partition)
    who = ["--bootstrap-server", kafka.bootstrap, "--alter", "--entity-type", "clients", "--entity-name", "sharegroup"]
    kafka.run_tool("kafka.admin.ConfigCommand", *who, "--add-config", f"consumer_byte_rate={RATE}")
    try:
        query, began_s = start(kafka, orders), time.monotonic()
        while sum(query.delivered.values()) < sizes // 1_000:
            query.run(most=1_500)
        took_s = time.monotonic() - began_s
    finally:
        kafka.run_tool("kafka.admin.ConfigCommand", *who, "--delete-config", "consumer_byte_rate")
    assert query.delivered == Counter((partition, n) for partition in (0, 1) for n in range(sizes // 2_000))
    assert took_s > sizes / RATE / 2, "or nothing was slow"
    assert query.next_batch() == []


def fill_disk(broker):
    """Lets each write of the broker fail with an IOException, as on a full disk, until its next start."""
    _, hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (1, hard))


@pytest.mark.soak
def test_a_full_disk_under_the_broker_stops_answers_and_loses_nothing(first_broker, start):
    """Records and state lie on one broker. Kafka stops a broker that can't write to its only disk."""
    with KafkaBroker(heap="320m", joins=first_broker) as second, ThreadPoolExecutor(1) as pool:
        first_broker.create_topic("share-group-state", node=2, retention_ms=-1, max_message_bytes=16 * 1024 * 1024)
        orders = first_broker.create_topic(node=2)
        first_broker.produce(orders, [str(n) for n in range(300)])
        query = start(first_broker, orders, **{"share.state.store": "kafka"})
        counts = {row["deliveryCount"] for row in query.run(most=100)}
        (task,) = query.wait_batch(most=100)
        fill_disk(second)
        rows = read(task)  # what is on the disk can be read
        query.commit(rows)
        completed = pool.submit(query.run, 100)
        wait_until(lambda: second.has_ended(), what="the broker can't append and stops")
        assert not completed.done()
        second.kill()
        second.start()
        rows += completed.result()
        assert counts | {row["deliveryCount"] for row in rows} == {1}
        assert query.delivered == Counter((0, n) for n in range(300))
        first_broker.produce(orders, ["more"])
        assert numbered(query.run()) == [(300, "more")]
