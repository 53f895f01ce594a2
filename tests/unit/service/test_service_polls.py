"""Acknowledgements that ride on a ShareConsumer's poll: they do not wait for brokers, and do not fail with them."""

from functools import partial

import pytest

from coordinator.protocol.errors import BrokerNotReachable, CoordinatorNotAvailable, TopicIdsMissing
from coordinator.protocol.messages import Acknowledge, AcquireRecords, NextPlan
from coordinator.service.handlers import coordinator_service
from tests.support.fake_cluster import cluster_with_orders
from tests.support.running_service import acks, begun, held
from tests.support.waiting import wait_until

ACCEPT, RELEASE = 1, 2


@pytest.fixture
def cluster():
    return cluster_with_orders(end=100)


@pytest.fixture
def accepts(running):
    """c1 holds the first ten records; the acknowledgements of them."""
    running.join("c1", query=False, starting_offsets="earliest")
    (partition,) = running.ask(AcquireRecords, "c1", max_records=10).partitions
    return acks(partition.topic_id, 0, 9, ACCEPT)


def start_offset(running):
    """The group's start offset in the coordinator's memory, which has what is durable and nothing else."""

    def look(group):
        yield from ()
        return [partition.start_offset for partition in group.partitions.values()]

    (offset,) = running.runtime.call("billing", look)
    return offset


def poll(running, acknowledgements, **fields):
    return running.ask(AcquireRecords, "c1", max_records=10, acknowledgements=acknowledgements, **fields)


def test_a_poll_acknowledges_and_acquires_in_one_append(running, accepts, monkeypatch):
    monkeypatch.setattr(coordinator_service, "ACKNOWLEDGE_ALONE_AFTER_S", 60)
    before = running.store.appends
    reply = poll(running, accepts)
    assert (reply.errors, held(reply)) == ({}, {("orders", 0): [(10, 19)]})
    assert running.store.appends == before + 1


@pytest.mark.parametrize("wait_ms", [0, 30_000])
def test_acknowledgements_do_not_wait_for_brokers_that_do_not_answer(running, cluster, accepts, wait_ms):
    cluster.answers.clear()
    try:
        reply = begun(lambda: poll(running, accepts, wait_ms=wait_ms)).result(60)
        assert (reply.errors, reply.plan_id, start_offset(running)) == ({}, "", 10)
    finally:
        cluster.answers.set()
    assert held(running.ask(AcquireRecords, "c1", max_records=10)) == {("orders", 0): [(10, 19)]}


def test_many_polls_are_answered_while_brokers_do_not_answer(running, cluster, accepts):
    """More than there are threads that ask: those behind them need no thread for their answer."""
    cluster.answers.clear()
    one_by_one = [acks(accepts[0].topic_id, offset, offset, ACCEPT) for offset in range(10)]
    try:
        answers = begun(lambda: [poll(running, each) for each in one_by_one]).result(60)
        assert ([reply.errors for reply in answers], start_offset(running)) == ([{}] * 10, 10)
    finally:
        cluster.answers.set()


@pytest.mark.parametrize("error", [BrokerNotReachable, TopicIdsMissing])
def test_acknowledgements_are_applied_where_brokers_refuse_the_question(running, cluster, accepts, error, monkeypatch):
    fields = {"addresses": "fake:9092", "timeout_ms": 1, "reason": "x"} if error is BrokerNotReachable else {}

    def refuse():
        raise error(**(fields or {"group_id": "billing", "topic": "orders"}))

    monkeypatch.setattr(cluster, "_answer", refuse)
    reply = poll(running, accepts)
    assert (reply.errors, reply.plan_id, start_offset(running)) == ({}, "", 10)
    with pytest.raises(error):  # the question without acknowledgements says what is wrong
        running.ask(AcquireRecords, "c1", max_records=10)


@pytest.mark.parametrize("fault", ["doubt, not written", "doubt, written"])
def test_a_crash_around_their_append_loses_no_acknowledgement(running, cluster, accepts, fault):
    """The member comes back and sends them again, as its client does."""
    cluster.unreachable = True
    running.store.fault = fault
    with pytest.raises(CoordinatorNotAvailable):
        poll(running, accepts)
    running.join("c1", query=False, member_epoch=1)
    assert (poll(running, accepts).errors, start_offset(running)) == ({}, 10)


# --- records that are due later


@pytest.mark.parametrize("who", ["the ShareConsumer", "a query"])
def test_a_waiting_request_gets_a_released_record_when_it_is_due(running, cluster, monkeypatch, who):
    """Nothing else ends the wait: there is no news, and the request's minute is not over."""
    monkeypatch.setattr(coordinator_service, "LOOK_AGAIN_S", 60.0)
    cluster.move("orders", 10)
    configs = {"share.release.backoff.ms": "500"}
    running.join("c1", query=False, starting_offsets="earliest", configs=configs)
    running.join("q1")
    (part,) = running.ask(AcquireRecords, "c1", max_records=10).partitions
    running.ask(Acknowledge, "c1", partitions=acks(part.topic_id, 4, 4, RELEASE))
    if who == "a query":
        plan = running.next(member="q1", wait_ms=60_000)
    else:
        plan = running.ask(AcquireRecords, "c1", max_records=10, wait_ms=60_000)
    assert held(plan) == {("orders", 0): [(4, 4)]}


def test_a_waiting_request_gets_more_when_the_groups_rate_allows_it(running, monkeypatch):
    monkeypatch.setattr(coordinator_service, "LOOK_AGAIN_S", 60.0)
    running.join("c1", query=False, starting_offsets="earliest", configs={"share.max.records.per.second": "3"})
    plans = [running.ask(AcquireRecords, "c1", max_records=3, wait_ms=60_000) for _ in range(2)]
    assert [held(plan) for plan in plans] == [{("orders", 0): [(0, 2)]}, {("orders", 0): [(3, 5)]}]


@pytest.mark.parametrize("is_query", [True, False])
def test_records_before_one_that_is_too_young_are_delivered(running, cluster, is_query):
    cluster.timestamps["orders", 0] = {0: 0, 10**15: 5}
    for member in ("m1", "m2"):
        running.join(member, query=is_query, starting_offsets="earliest", configs={"share.delivery.delay.ms": "1000"})
    ask = partial(running.ask, NextPlan if is_query else AcquireRecords, max_records=10)
    first, then = ask("m1"), ask("m2")
    assert held(first.plan if is_query else first) == {("orders", 0): [(0, 4)]}
    assert (held(then.plan if is_query else then), then.limited_by) == ({}, "share.delivery.delay.ms")


# --- a leader that is away


@pytest.fixture
def two(running, cluster):
    """c1 is a ShareConsumer that may acquire from two partitions."""
    cluster.add("orders", 2, end=100)
    running.join("c1", query=False, starting_offsets="earliest")
    return running


def ask_all(running, **fields):
    return held(running.ask(AcquireRecords, "c1", max_records=500, **fields))


def test_a_leader_that_is_away_holds_up_no_other_partition(two, cluster):
    cluster.silent.add(("orders", 1))
    assert ask_all(two) == {("orders", 0): [(0, 99)]}
    cluster.move("orders", 120)
    assert ask_all(two) == {("orders", 0): [(100, 119)]}
    cluster.silent.clear()
    wait_until(lambda: ask_all(two) == {("orders", 1): [(0, 99)]}, what="the leader's records are acquired")


def test_a_member_that_waits_gets_the_records_of_other_leaders(two, cluster):
    assert ask_all(two)
    cluster.silent.add(("orders", 1))
    asked = begun(lambda: ask_all(two, wait_ms=30_000))
    cluster.move("orders", 120)
    assert asked.result(60) == {("orders", 0): [(100, 119)]}


def test_topics_are_refreshed_although_a_leader_is_away(two, cluster):
    assert ask_all(two)
    cluster.silent.add(("orders", 1))
    two.service._watch.metadata_refresh_s = 0.0
    cluster.move("orders", 120, start=5)
    assert ask_all(two) == {("orders", 0): [(100, 119)]}


def test_the_leader_of_a_left_out_partition_is_asked(two, cluster):
    """Before anything else asks it, so that no record is acquired in vain again."""
    (topic_id,) = {part.topic_id for part in two.ask(AcquireRecords, "c1", max_records=1).partitions}
    cluster.silent.add(("orders", 0))
    assert ask_all(two, without=((topic_id, 0),)) == {("orders", 1): [(0, 99)]}
    assert ask_all(two) == {}
    cluster.silent.clear()
    wait_until(lambda: ask_all(two) == {("orders", 0): [(1, 99)]}, what="the leader is back")


def test_where_no_leader_answers_a_poll_fails_by_name(two, cluster):
    cluster.silent |= {("orders", 0), ("orders", 1)}
    with pytest.raises(BrokerNotReachable):
        ask_all(two)


def test_a_query_waits_for_all_leaders(two, cluster):
    two.join("q1")
    cluster.silent.add(("orders", 1))
    with pytest.raises(BrokerNotReachable):
        two.ask(NextPlan, "q1", max_records=500, wait_ms=0)


def test_records_that_retention_takes_from_a_share_consumer_are_logged_and_shown(running, cluster, caplog):
    cluster.move("orders", 50)
    running.join("c1", query=False, starting_offsets="earliest")
    cluster.move("orders", 60, start=40)
    running.ask(AcquireRecords, "c1", max_records=10)
    assert "records removed before they were done: group=billing count=40 orders-0 offsets 0 to 39" in caplog.text
    partition = running.partitions()["orders", 0]
    assert (partition.removed, partition.archived_total, partition.archived) == (40, 40, {})
