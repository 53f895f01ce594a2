"""A topic that is deleted and created again while ShareConsumers hold its records, or are about to acquire some: no
record of the new topic is settled as one of the old, though the coordinator's cached topics are old."""

import contextlib
from concurrent.futures import wait
from types import SimpleNamespace

import pytest

from coordinator.protocol.errors import BrokerNotReachable
from coordinator.protocol.messages import Acknowledge, AcquireRecords
from coordinator.service.brokers import subscription, topic_looks
from coordinator.service.brokers.topic_looks import TopicLooks
from coordinator.service.questions import remade_topics
from coordinator.service.runtime import transactions
from tests.support.fake_cluster import FakeCluster, cluster_with_orders
from tests.support.running_service import acks as acks_of
from tests.support.running_service import begun, held, serving
from tests.support.waiting import wait_until

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(subscription, "PAUSES_S", (0.0,))
    monkeypatch.setattr(topic_looks, "FRESH_S", 0.0)
    monkeypatch.setattr(remade_topics, "ANSWER_S", 60.0)


@pytest.fixture
def cluster():
    return cluster_with_orders(end=10)


@pytest.fixture
def old(running):
    """c1 holds records 0 to 9. Returns the acknowledgements of them; the cached topics are not refreshed from now
    on."""
    running.join("c1", query=False, starting_offsets="earliest")
    running.watch.metadata_refresh_s = 3600.0
    (partition,) = running.ask(AcquireRecords, "c1", max_records=10).partitions
    return partition.topic_id


def acks(topic_id, kind=ACCEPT):
    return acks_of(topic_id, 0, 9, kind)


def make_anew(cluster, end=20):
    cluster.delete("orders")
    return cluster.add("orders", end=end)


def acquire(running, **fields):
    return running.ask(AcquireRecords, "c1", max_records=100, **fields)


def first_acquired(running):
    """The first partition of the next records. A new topic's partitions are assigned first."""
    return wait_until(lambda: acquire(running).partitions, what="records are acquired")[0]


def test_a_broker_that_answers_an_older_id_refuses_nothing(running, cluster, old):
    new = make_anew(cluster)
    running.ask(Acknowledge, "c1", partitions=acks(old))
    assert first_acquired(running).topic_id == new
    cluster.found["orders"] = cluster.found["orders"]._replace(topic_id=old)
    assert running.ask(Acknowledge, "c1", partitions=acks(new)).errors == {}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_outcomes_are_refused_when_the_new_topic_is_known(running, cluster, old, is_restarted):
    new = make_anew(cluster)
    acquire(running)  # notices it
    assert first_acquired(running).topic_id == new
    if is_restarted:
        running.watch._names.clear()
    assert running.ask(Acknowledge, "c1", partitions=acks(old)).errors == {f"{old}:0": "UNKNOWN_TOPIC_ID"}


def test_records_that_no_program_has_seen_are_released_without_a_look(running, cluster, old):
    make_anew(cluster)
    assert running.ask(Acknowledge, "c1", partitions=acks(old, RELEASE), unread=True).errors == {}


def test_outcomes_of_a_topic_that_is_only_missing_are_applied(running, cluster, old):
    cluster.delete("orders")
    assert running.ask(Acknowledge, "c1", partitions=acks(old)).errors == {}


def test_the_group_names_a_topic_that_the_coordinator_has_not_seen(running, cluster, old):
    """It asks the group for the name of the id."""
    running.watch._names.clear()
    make_anew(cluster)
    assert running.ask(Acknowledge, "c1", partitions=acks(old)).errors == {f"{old}:0": "UNKNOWN_TOPIC_ID"}


def test_a_group_without_topic_ids_knows_no_topic_made_anew():
    cluster = FakeCluster(topic_ids=False)
    cluster.add("orders", end=10)
    with serving(cluster) as running:
        running.join("c1", query=False, starting_offsets="earliest")
        (partition,) = acquire(running).partitions
        cluster.topic_ids = True
        make_anew(cluster)
        assert running.ask(Acknowledge, "c1", partitions=acks(partition.topic_id)).errors == {}


@pytest.mark.parametrize("ends", ["asked", "cached", "new"])
def test_records_of_a_topic_made_anew_are_not_handed_out_as_before(running, cluster, old, monkeypatch, ends):
    """Whether the brokers are asked for ends, or the cached ones serve."""
    running.ask(Acknowledge, "c1", partitions=acks(old, RELEASE))
    new = make_anew(cluster)
    if ends == "asked":
        running.watch._asked_at.clear()
    elif ends == "cached":
        monkeypatch.setattr(transactions, "backlog", lambda view, known: 100)
        monkeypatch.setattr(running.watch, "ask_answering_ends", None)
    reply = acquire(running, wait_ms=10 if ends == "new" else 0)
    assert reply.partitions == ()
    monkeypatch.undo()
    partition = first_acquired(running)
    assert (partition.topic_id, partition.ranges) == (new, ((0, 19, 1),))


def test_other_topics_records_come_though_one_topic_was_made_anew(running, cluster):
    cluster.add("payments", end=3)
    running.join("c1", query=False, topics=("orders", "payments"), starting_offsets="earliest")
    running.watch.metadata_refresh_s = 3600.0
    (first,) = running.ask(AcquireRecords, "c1", max_records=1).partitions  # the topics are cached
    new = make_anew(cluster)
    (payments,) = acquire(running).partitions
    assert (payments.topic, payments.ranges) == ("payments", ((0 if first.topic == "orders" else 1, 2, 1),))
    assert first_acquired(running).topic_id == new


def test_a_lost_reply_hands_out_no_record_of_an_old_topic(running, cluster, old):
    """The same records again, when the coordinator knows the new topic alone."""
    new = make_anew(cluster)
    assert acquire(running, after="").partitions == ()
    assert acquire(running, after="").partitions == ()
    assert first_acquired(running).topic_id == new


@pytest.mark.parametrize("away", ["silent", "refusing"])
def test_outcomes_wait_once_for_brokers_that_are_away(running, cluster, old, monkeypatch, away):
    monkeypatch.setattr(remade_topics, "ANSWER_S", 0.05)
    looks = []
    monkeypatch.setattr(running.watch, "look", lambda names, look=running.watch.look: looks.append(1) or look(names))
    if away == "silent":
        cluster.answers.clear()
    else:
        cluster.unreachable = True
    try:
        for _ in range(3):
            assert running.ask(Acknowledge, "c1", partitions=acks(old, RENEW)).errors == {}
        assert len(looks) == 1
    finally:
        cluster.answers.set()


def test_a_poll_that_waits_is_woken_for_a_topic_made_anew(running, cluster, old):
    running.ask(Acknowledge, "c1", partitions=acks(old))
    asked = begun(lambda: acquire(running, wait_ms=60_000))
    wait_until(lambda: running.watch._waited_for, what="the poll waits")
    new = make_anew(cluster, end=5)
    reply = asked.result(60)
    assert (reply.partitions[0].topic_id, held(reply)) == (new, {("orders", 0): [(0, 4)]})


@contextlib.contextmanager
def new_topic():
    """A service whose topic was created again; the id of the topic of which c1 holds records, and the new one."""
    cluster = cluster_with_orders(end=10)
    with serving(cluster) as running:
        running.join("c1", query=False, starting_offsets="earliest")
        (partition,) = acquire(running).partitions
        running.watch.looks._began_s = 0.0  # no look of before is fresh
        yield running, partition.topic_id, make_anew(cluster)


def test_no_outcome_of_an_old_topics_record_is_a_success():
    for kind in (ACCEPT, REJECT, RENEW):
        with new_topic() as (running, old, new):
            reply = running.ask(Acknowledge, "c1", partitions=acks(old, kind))
            assert reply.errors == {f"{old}:0": "UNKNOWN_TOPIC_ID"}
            partition = first_acquired(running)
            assert (partition.topic_id, partition.ranges) == (new, ((0, 19, 1),))


def test_no_new_record_is_handed_out_as_the_old_topics():
    for kind in (ACCEPT, RELEASE, REJECT, RENEW):
        with new_topic() as (running, old, _):
            reply = acquire(running, acknowledgements=acks(old, kind))
            assert (reply.partitions, reply.errors) == ((), {f"{old}:0": "UNKNOWN_TOPIC_ID"})


# --- looks


def test_those_who_ask_while_a_look_runs_share_the_next_one(monkeypatch):
    monkeypatch.setattr(topic_looks, "FRESH_S", 0.0)
    cluster = FakeCluster()
    cluster.add("orders"), cluster.add("payments")
    asked = []
    topics = cluster.topics
    cluster.topics = lambda names: asked.append(sorted(names)) or topics(names)
    looks = TopicLooks(cluster)
    cluster.answers.clear()
    first = looks.ask(["orders"])
    assert wait_until(lambda: looks._next is None, what="the look has begun")
    later = [looks.ask(["orders"]), looks.ask(["payments"])]
    assert later[0] is later[1] is not first
    cluster.answers.set()
    wait([first, *later])
    assert asked == [["orders"], ["orders", "payments"]]
    assert (first.result(), later[0].result()) == ({"orders": "id-1"}, {"orders": "id-1", "payments": "id-2"})
    looks.close()
    assert looks.ask(["orders"]).result() == {}


def test_a_failed_look_raises_for_those_who_asked_and_others_go_on():
    cluster = cluster_with_orders(end=1)
    looks = TopicLooks(cluster)
    cluster.unreachable = True
    with pytest.raises(BrokerNotReachable):
        looks.ask(["orders"]).result()
    cluster.unreachable = False
    assert looks.ask(["orders"]).result() == {"orders": "id-1"}
    looks.close()


def test_looks_begin_apart_from_each_other(monkeypatch):
    slept, now_s = [], [1000.0]
    time = SimpleNamespace(monotonic=lambda: now_s[0], sleep=slept.append)
    monkeypatch.setattr(topic_looks, "time", time)
    looks = TopicLooks(cluster_with_orders(end=1))
    looks.ask(["orders"]).result()
    looks.ask(["payments"]).result()
    assert slept == [0.0, pytest.approx(topic_looks.PAUSE_S)]
    looks.close()
