"""The dead letter dispatcher on a real broker: what nobody else wrote is written, once it can be, and never lost."""

import contextlib
import threading
from functools import partial

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Producer
from confluent_kafka.admin import ResourceType

from coordinator.client.client import CoordinatorClient
from coordinator.dead_letters.record_format import Origin
from coordinator.dead_letters.source_records import SourceRecordReader
from coordinator.protocol.admin_messages import AlterGroupConfigs
from coordinator.protocol.errors import (
    DeadLetterTopicInUse,
    DeadLetterTopicMissing,
    DeadLetterTopicNotAuthorized,
    UnknownMemberId,
)
from coordinator.protocol.messages import Heartbeat
from coordinator.protocol.values import AcknowledgeType
from coordinator.service.dead_letters import dispatcher, group_backlog, group_worker
from tests.support.coordinator_process import kill_coordinators
from tests.support.guarded_broker import ALICE, grant, guarded_broker, revoke
from tests.support.rejecting import Rejecting, origins, read_all, said
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
    letters = read_all(kafka, dlq)
    assert origins(letters) == {Origin(orders, p, n, group.group, 1): 1 for p in range(3) for n in range(50)}
    for each in letters:
        named = dict(each.headers())
        source, offset = int(named["__dlq.errors.partition"]), int(named["__dlq.errors.offset"])
        assert (each.key(), each.value()) == (b"k", f"{source}-{offset}".encode())
        assert each.headers()[:2] == headers
        assert each.partition() == source % 2
        assert said(each) == ("rejected", "Offset rejected by client.")
    wait_until(group.coordinator.dispatcher.may_rest, what="nothing is left to do")  # the pass ends after its filing


def test_a_dead_letter_names_the_delivery_limit_as_its_reason(kafka, topic, rejecting, dlq):
    orders = topic()
    kafka.produce(orders, ["poison"])
    group = rejecting(orders, share_delivery_count_limit=2)

    for _ in range(2):
        assert wait_until(group.acquire) == 1
        group.acknowledge(AcknowledgeType.RELEASE)

    group.wait_filed(1)
    (letter,) = read_all(kafka, dlq)
    assert said(letter) == ("delivery_limit", "Offset delivery count exceeded the threshold.")
    assert origins([letter]) == {Origin(orders, 0, 0, group.group, 2): 1}


def test_without_copying_a_dead_letter_has_headers_only(kafka, topic, rejecting, dlq):
    orders = topic()
    kafka.produce(orders, ["a"], keys=["k"], headers=[("h", b"x")])
    group = rejecting(orders, dlq_copy_record_enable=False)

    group.reject_all(1)

    group.wait_filed(1)
    (letter,) = read_all(kafka, dlq)
    assert (letter.key(), letter.value()) == (None, None)
    assert all(name.startswith("__dlq.errors.") for name, _ in letter.headers())


def test_a_rejected_transaction_marker_gets_no_dead_letter(kafka, topic, rejecting, dlq):
    orders = topic()
    kafka.produce_transaction(orders, ["a", "b"])  # and a marker, which is acquired as an offset like any other
    group = rejecting(orders)

    group.reject_all(3)

    group.wait_filed(3)
    assert sorted(origin.offset for origin in origins(read_all(kafka, dlq))) == [0, 1]


def test_dead_letters_of_deleted_records_have_headers_only(kafka, topic, rejecting, dlq, monkeypatch):
    orders = topic()
    kafka.produce(orders, ["a", "b", "c"])
    group = rejecting(orders, dlq_topic_name=dlq)
    held = hold_workers(monkeypatch)
    group.reject_all(3)
    kafka.delete_records(orders, 2)
    held.set()

    group.wait_filed(3)
    values = {next(iter(origins([m]))).offset: m.value() for m in read_all(kafka, dlq)}
    assert values == {0: None, 1: None, 2: b"c"}


@pytest.mark.slow
def test_a_recreated_topic_gives_no_dead_letter_a_new_records_value(kafka, topic, rejecting, dlq, monkeypatch):
    orders = topic()
    kafka.produce(orders, ["old"])
    group = rejecting(orders)
    held = hold_workers(monkeypatch)
    group.reject_all(1)
    kafka.delete_topic(orders)
    kafka.create_topic(orders)
    kafka.produce(orders, ["new"])
    held.set()

    wait_until(lambda: group.archiving() == 0, what="the dead letter is filed")
    (letter,) = read_all(kafka, dlq)
    assert letter.value() is None


def hold_workers(monkeypatch):
    """No worker is worked at before the event that is returned is set."""
    go, work = threading.Event(), group_worker.GroupWorker.work

    def after_go(worker):
        assert go.wait(240)
        return work(worker)

    monkeypatch.setattr(group_worker.GroupWorker, "work", after_go)
    return go


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
    assert sorted(m.value() for m in read_all(kafka, queue)) == [b"a", b"b"]


def test_a_deleted_dead_letter_topic_is_recreated_when_configured(kafka, topic, rejecting, unique, soon):
    orders, queue = topic(), unique("dlq")
    kafka.produce(orders, ["a"])
    group = rejecting(orders, dlq_topic_name=queue, dlq_auto_create_topics_enable=True)
    kafka.delete_topic(queue)  # the join created it

    group.reject_all(1)

    group.wait_filed(1)
    (letter,) = read_all(kafka, queue)
    assert (letter.value(), letter.timestamp()[0]) == (b"a", TIMESTAMP_LOG_APPEND_TIME)


def test_on_failure_archive_archives_without_a_dead_letter(kafka, topic, rejecting, unique):
    orders, queue = topic(), kafka.create_topic(unique("dlq"))
    kafka.produce(orders, ["a", "b"])
    group = rejecting(orders, dlq_topic_name=queue, dlq_on_failure="archive")
    kafka.delete_topic(queue)

    group.reject_all(2)

    group.wait_filed(2)


def test_a_dead_letter_that_no_queue_takes_holds_up_no_other(kafka, topic, rejecting, unique):
    """A compacted topic takes no dead letter without a key, not even one that is headers only."""
    orders, compacted = topic(), topic("dlq", cleanup_policy="compact")
    kafka.produce(orders, ["no key"])
    kafka.produce(orders, ["a", "b"], keys=["1", "2"])
    group = rejecting(orders, dlq_topic_name=compacted)

    group.reject_all(3)

    wait_until(lambda: group.archiving() == 1, what="the others are filed")
    assert sorted(m.value() for m in read_all(kafka, compacted)) == [b"a", b"b"]
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
    assert [m.value() for m in read_all(kafka, dlq)] == [b"a"]


def test_waiting_records_are_archived_when_the_queue_is_switched_off(kafka, topic, rejecting, unique, soon):
    orders, queue = topic(), kafka.create_topic(unique("dlq"))
    kafka.produce(orders, ["a"])
    group = rejecting(orders, dlq_topic_name=queue)
    kafka.delete_topic(queue)
    group.reject_all(1)
    wait_until(group.coordinator.dispatcher.may_rest)

    unset = partial(AlterGroupConfigs, group_id=group.group, unset=("errors.deadletterqueue.topic.name",), execute=True)
    with pytest.raises(DeadLetterTopicInUse):
        group.coordinator.admin.handle(unset())
    group.coordinator.admin.handle(unset(force=True))

    group.wait_filed(1)


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
    assert sorted(m.value() for m in read_all(kafka, dlq)) == [b"a", b"b"]


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
    assert sorted(m.value() for m in read_all(kafka, queue)) == [b"a", b"b"]


@pytest.mark.slow
def test_an_end_before_the_filing_doubles_a_dead_letter_not_the_record(kafka, topic, rejecting, dlq, monkeypatch):
    orders = topic()
    kafka.produce(orders, ["a"])
    group = rejecting(orders)
    written, go, mark_written = threading.Event(), threading.Event(), group_backlog.mark_written

    def too_late(*given, **named):
        written.set()
        assert go.wait(240)
        return mark_written(*given, **named)

    monkeypatch.setattr(group_backlog, "mark_written", too_late)
    group.reject_all(1)
    assert written.wait(120)
    group.stop()
    go.set()
    monkeypatch.setattr(group_backlog, "mark_written", mark_written)

    group.start()

    group.wait_filed(1)
    assert origins(read_all(kafka, dlq)) == {Origin(orders, 0, 0, group.group, 1): 2}


# --- many


# --- what the principal may not do, and clusters without a controller


@pytest.mark.slow
def test_a_query_that_may_not_write_dead_letters_does_not_start(guarded, unique, tmp_path):
    orders, queue = guarded.create_topic(unique("orders")), guarded.create_topic(unique("dlq"))
    grant(guarded, ResourceType.TOPIC, orders, "READ", "DESCRIBE")

    with pytest.raises(DeadLetterTopicNotAuthorized, match=rf"describe dead letter topic {queue}"):
        as_alice(guarded, unique, tmp_path, orders, queue)
    grant(guarded, ResourceType.TOPIC, queue, "DESCRIBE")
    with pytest.raises(DeadLetterTopicNotAuthorized, match=rf"write to dead letter topic {queue}"):
        as_alice(guarded, unique, tmp_path, orders, queue)
    missing = unique("missing")
    grant(guarded, ResourceType.TOPIC, missing, "DESCRIBE")
    with pytest.raises(DeadLetterTopicNotAuthorized, match="create dead letter topic"):
        as_alice(guarded, unique, tmp_path, orders, missing, dlq_auto_create_topics_enable=True)


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
    assert [m.value() for m in read_all(guarded, queue)] == [b"a"]


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
