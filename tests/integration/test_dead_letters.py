"""The dead letter dispatcher on a real broker: what nobody else wrote is written, once it can be, and never lost."""

import contextlib

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Producer
from confluent_kafka.admin import ResourceType

from coordinator.client.client import CoordinatorClient
from coordinator.dead_letters.record_format import Origin
from coordinator.dead_letters.source_records import SourceRecordReader
from coordinator.protocol.errors import DeadLetterTopicMissing, UnknownMemberId
from coordinator.protocol.messages import Heartbeat
from coordinator.service.dead_letters import dispatcher
from tests.support.coordinator_process import kill_coordinators
from tests.support.guarded_broker import ALICE, grant, guarded_broker, revoke
from tests.support.kafka_log import messages_of
from tests.support.rejecting import Rejecting, origins, said
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def dlq(topic):
    return topic("dlq", partitions=2)


@pytest.fixture
def rejecting(kafka, unique, tmp_path, dlq):
    """`rejecting(topic, dlq_copy_record_enable=False)`: a coordinator and a member of a new group."""
    opened = []

    def new(*topics, group=None, bootstrap=None, **configs):
        configs.setdefault("dlq_topic_name", dlq)
        name = group or unique("group")
        opened.append(Rejecting(bootstrap or kafka.bootstrap, tmp_path / f"{name}.db", name, *topics, **configs))
        return opened[-1]

    yield new
    for each in opened:
        each.stop()


@pytest.fixture
def soon(monkeypatch):
    """Shortens the pauses between the attempts at a dead letter."""
    monkeypatch.setattr(dispatcher, "LONGEST_BACKOFF_S", 0.5)


# --- what is written


def test_dead_letters_equal_the_rejected_records(kafka, topic, rejecting, dlq):
    orders = topic(partitions=3)
    headers = [("trace", b"1"), ("empty", None)]
    for partition in range(3):
        kafka.produce(
            orders, [f"{partition}-{n}" for n in range(50)], keys=["k"] * 50, partition=partition, headers=headers
        )
    group = rejecting(orders)

    group.reject_all(150)

    group.wait_filed(150)
    letters = messages_of(kafka.bootstrap, dlq)
    assert origins(letters) == {Origin(orders, p, n, group.group, 1): 1 for p in range(3) for n in range(50)}
    for each in letters:
        named = dict(each.headers())
        source, offset = int(named["__dlq.errors.partition"]), int(named["__dlq.errors.offset"])
        assert (each.key(), each.value()) == (b"k", f"{source}-{offset}".encode())
        assert each.headers()[:2] == headers
        assert each.partition() == source % 2
        assert said(each) == ("rejected", "Offset rejected by client.")
    wait_until(group.coordinator.dispatcher.may_rest, what="nothing is left to do")  # the pass ends after its filing


def test_without_copying_a_dead_letter_has_headers_only(kafka, topic, rejecting, dlq):
    orders = topic()
    kafka.produce(orders, ["a"], keys=["k"], headers=[("h", b"x")])
    group = rejecting(orders, dlq_copy_record_enable=False)

    group.reject_all(1)

    group.wait_filed(1)
    (letter,) = messages_of(kafka.bootstrap, dlq)
    assert (letter.key(), letter.value()) == (None, None)
    assert all(name.startswith("__dlq.errors.") for name, _ in letter.headers())


def test_a_rejected_transaction_marker_gets_no_dead_letter(kafka, topic, rejecting, dlq):
    orders = topic()
    kafka.produce_transaction(orders, ["a", "b"])  # and a marker, which is acquired as an offset like any other
    group = rejecting(orders)

    group.reject_all(3)

    group.wait_filed(3)
    assert sorted(origin.offset for origin in origins(messages_of(kafka.bootstrap, dlq))) == [0, 1]


# --- what can't be written


def test_dead_letters_wait_for_a_missing_topic_until_its_recreation(kafka, topic, rejecting, unique, soon):
    orders, queue = topic(), kafka.create_topic(unique("dlq"))
    kafka.produce(orders, ["a", "b"])
    group = rejecting(orders, dlq_topic_name=queue)
    kafka.delete_topic(queue)

    group.reject_all(2)

    # A person has to act: the coordinator may leave meanwhile, and the records stay.
    wait_until(group.coordinator.dispatcher.may_rest, what="the group is known to be blocked")
    assert (group.archiving(), group.archived()) == (2, 0)
    kafka.produce(orders, ["c"])
    assert wait_until(group.acquire) == 1  # the partition goes on

    kafka.create_topic(queue)
    wait_until(lambda: group.archiving() == 0, what="the dead letters are written")
    assert sorted(m.value() for m in messages_of(kafka.bootstrap, queue)) == [b"a", b"b"]


def test_a_deleted_dead_letter_topic_is_recreated_when_configured(kafka, topic, rejecting, unique, soon):
    orders, queue = topic(), unique("dlq")
    kafka.produce(orders, ["a"])
    group = rejecting(orders, dlq_topic_name=queue, dlq_auto_create_topics_enable=True)
    kafka.delete_topic(queue)  # the join created it

    group.reject_all(1)

    group.wait_filed(1)
    (letter,) = messages_of(kafka.bootstrap, queue)
    assert (letter.value(), letter.timestamp()[0]) == (b"a", TIMESTAMP_LOG_APPEND_TIME)


def test_a_dead_letter_that_no_queue_takes_holds_up_no_other(kafka, topic, rejecting, unique):
    """A compacted topic takes no dead letter without a key, not even one that is headers only."""
    orders, compacted = topic(), topic("dlq", cleanup_policy="compact")
    kafka.produce(orders, ["no key"])
    kafka.produce(orders, ["a", "b"], keys=["1", "2"])
    group = rejecting(orders, dlq_topic_name=compacted)

    group.reject_all(3)

    wait_until(lambda: group.archiving() == 1, what="the others are filed")
    assert sorted(m.value() for m in messages_of(kafka.bootstrap, compacted)) == [b"a", b"b"]
    wait_until(group.coordinator.dispatcher.may_rest, what="the group is known to be blocked")


def test_waiting_dead_letters_go_to_another_queue_after_a_config_change(kafka, topic, rejecting, unique, dlq, soon):
    orders, queue = topic(), kafka.create_topic(unique("dlq"))
    kafka.produce(orders, ["a"])
    group = rejecting(orders, dlq_topic_name=queue)
    kafka.delete_topic(queue)
    group.reject_all(1)
    wait_until(group.coordinator.dispatcher.may_rest)

    group.start(dlq_topic_name=dlq)

    group.wait_filed(1)
    assert [m.value() for m in messages_of(kafka.bootstrap, dlq)] == [b"a"]


@pytest.mark.slow
def test_while_the_brokers_are_away_nothing_is_lost_and_the_coordinator_stays(kafka, topic, rejecting, dlq, soon):
    orders = topic()
    kafka.produce(orders, ["a", "b"])
    group = rejecting(orders, bootstrap=kafka.proxied_bootstrap)
    assert wait_until(group.acquire) == 2
    kafka.proxy.cut()
    try:
        group.acknowledge()
        wait_until(lambda: any(p.worker.attempts for p in list(group.coordinator.dispatcher._slots.values())))
        assert not group.coordinator.dispatcher.may_rest()
    finally:
        kafka.proxy.heal()

    group.wait_filed(2)
    assert sorted(m.value() for m in messages_of(kafka.bootstrap, dlq)) == [b"a", b"b"]


# --- the coordinator's end


def test_after_a_kill_the_next_coordinator_writes_the_waiting_dead_letters(kafka, topic, unique, tmp_path):
    """Nobody joins anew: the member's next heartbeat starts the next coordinator, which finds what waits."""
    orders, queue = topic(), kafka.create_topic(unique("dlq"))
    kafka.produce(orders, ["a", "b"])
    state = f"sqlite:{tmp_path / 'state.db'}"
    with contextlib.closing(CoordinatorClient.connect(kafka.bootstrap, state_store=state)) as client:
        group = Rejecting(kafka.bootstrap, "", unique("group"), orders, client=client, dlq_topic_name=queue)
        kafka.delete_topic(queue)
        group.reject_all(2)
        assert group.archiving() == 2
        assert kill_coordinators()
        kafka.create_topic(queue)

        with pytest.raises(UnknownMemberId):  # a member that holds nothing has no session any more
            group.ask(Heartbeat, member_epoch=group.epoch)

        group.wait_filed(2)
    assert sorted(m.value() for m in messages_of(kafka.bootstrap, queue)) == [b"a", b"b"]


# --- what the principal may not do, and clusters without a controller


@pytest.mark.slow
def test_dead_letters_that_the_principal_may_not_write_any_more_are_held(guarded, unique, tmp_path, soon):
    orders, queue = guarded.create_topic(unique("orders")), guarded.create_topic(unique("dlq"))
    guarded.produce(orders, ["a"])
    grant(guarded, ResourceType.TOPIC, orders, "READ", "DESCRIBE")
    acls = grant(guarded, ResourceType.TOPIC, queue, "DESCRIBE", "WRITE")
    group = as_alice(guarded, unique, tmp_path, orders, queue)
    try:
        assert wait_until(group.acquire) == 1
        revoke(guarded, acls)
        group.acknowledge()
        wait_until(group.coordinator.dispatcher.may_rest, what="the group is known to be blocked")
        assert group.archiving() == 1

        grant(guarded, ResourceType.TOPIC, queue, "DESCRIBE", "WRITE")
        group.wait_filed(1)
    finally:
        group.stop()
    assert [m.value() for m in messages_of(guarded.bootstrap, queue)] == [b"a"]


@pytest.fixture(scope="module")
def guarded():
    with guarded_broker(heap="512m") as broker:
        yield broker


def as_alice(guarded, unique, tmp_path, orders, queue, **configs):
    return Rejecting(
        guarded.proxied_bootstrap,
        tmp_path / f"{unique('state')}.db",
        unique("group"),
        orders,
        kafka_config=ALICE,
        dlq_topic_name=queue,
        **configs,
    )


def test_a_cluster_without_topic_ids_has_dead_letters_too(embedded, unique, tmp_path):
    orders, queue = unique("orders"), unique("dlq")
    embedded.create_topic(orders)
    producer = Producer({"bootstrap.servers": embedded.bootstrap_servers, "log_level": 0})
    for number in range(10):
        producer.produce(orders, str(number).encode(), partition=3)
    assert producer.flush(30) == 0

    def joined(**configs):
        return Rejecting(
            embedded.bootstrap_servers, tmp_path / "state.db", unique("group"), orders, dlq_topic_name=queue, **configs
        )

    with pytest.raises(DeadLetterTopicMissing):
        joined()
    group = joined(dlq_auto_create_topics_enable=True)
    try:
        group.reject_all(10)
        group.wait_filed(10)
    finally:
        group.stop()
    with contextlib.closing(SourceRecordReader(embedded.bootstrap_servers, {})) as letters:
        assert [letter.value for letter in letters.read(queue, 3, list(range(10)))] == [b"%d" % n for n in range(10)]
