"""share.record.ttl.ms at the service: what is expired is archived before anything is acquired, and where nobody is."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest

from coordinator.core.commands import partitions
from coordinator.protocol.errors import BrokerNotReachable
from coordinator.protocol.messages import AcquireRecords, DescribeGroup, NextPlan
from coordinator.service.questions import record_ttl
from tests.support.fake_cluster import cluster_with_orders
from tests.support.running_service import acks, held

NEVER = 10**15
RELEASE = 2
ORDERS = "orders", 0


@pytest.fixture
def cluster():
    """Of 100 records in orders-0 those from 30 on are young."""
    cluster = cluster_with_orders(end=100)
    cluster.timestamps[ORDERS] = {0: 0, NEVER: 30}
    return cluster


def join(running, member="m1", *, query=True, **configs):
    configs = {"share.record.ttl.ms": "60000", "share.release.backoff.ms": "0", **configs}
    running.join(member, query=query, starting_offsets="earliest", configs=configs)


def archived(running):
    return {kind: number for kind, number in running.partitions()[ORDERS].archived.items() if number}


@pytest.mark.parametrize("is_query", [True, False])
def test_expired_records_are_archived_before_anything_is_acquired(running, is_query):
    join(running, query=is_query)
    reply = running.ask(NextPlan if is_query else AcquireRecords, max_records=5)
    assert held(reply.plan if is_query else reply) == {ORDERS: [(30, 34)]}
    assert archived(running) == {"ttl": 30}


def test_offsets_without_a_record_count_as_such(running, cluster):
    cluster.gaps = {3, 4, 29}
    join(running)
    running.next(max_records=5)
    assert archived(running) == {"ttl": 27, "none": 3}


def test_many_expired_records_are_read_in_parts_and_none_is_delivered(running, cluster, monkeypatch):
    monkeypatch.setattr(record_ttl, "AT_ONCE", 12)
    join(running)
    ask = partial(running.ask, NextPlan, until={"orders": {"0": 100}})
    told = [(reply.plan.plan_id, reply.limited_by, reply.retry_ms) for reply in (ask(), ask())]
    assert told == [("", "share.record.ttl.ms", 1)] * 2, "so that an AvailableNow run asks again"
    assert held(ask().plan) == {ORDERS: [(30, 99)]}
    assert cluster.read == [(ORDERS, 0, 11), (ORDERS, 12, 23), (ORDERS, 24, 29)]


def test_a_log_that_cannot_be_read_does_not_hold_up_its_partition(running, cluster):
    """A damaged batch would hold it up for ever."""
    cluster.unreadable.add(ORDERS)
    join(running)
    assert held(running.next(max_records=5)) == {ORDERS: [(0, 4)]}
    assert archived(running) == {}


def test_a_partition_whose_log_start_is_unknown_fails_no_look(running, cluster, monkeypatch):
    """Its end may be known from before: the brokers' answers do not come together."""
    join(running)
    watch = running.service._watch
    monkeypatch.setattr(watch, "log_starts", lambda wanted: {})
    monkeypatch.setattr(watch, "ask_log_starts", lambda wanted: {})
    running.service._record_ttl.look_at_groups()
    assert archived(running) == {}


def test_nothing_is_delivered_while_it_is_unknown_what_is_expired(running, cluster, monkeypatch):
    join(running)

    def away(partitions, at, *, read_committed=False):
        if at >= 0:
            raise BrokerNotReachable(addresses="fake:9092", timeout_ms=1, reason="_TIMED_OUT")
        return cluster.offsets(partitions, at, read_committed=read_committed), set()

    monkeypatch.setattr(cluster, "answered_offsets", away)
    with pytest.raises(BrokerNotReachable):
        running.next()
    monkeypatch.setattr(cluster, "answered_offsets", lambda partitions, at, *, read_committed=False: ({}, {ORDERS}))
    assert held(running.next()) == {}
    monkeypatch.undo()
    assert held(running.next()) == {ORDERS: [(30, 99)]}


def test_a_waiting_queue_empties_though_nobody_acquires(running, cluster):
    join(running)
    running.next(max_records=5)
    cluster.timestamps[ORDERS] = {0: 0, NEVER: 60}
    running.service.look_at_groups()
    assert archived(running) == {"ttl": 55}, "30 to 34 are held"
    appends = running.store.appends
    running.service.look_at_groups()
    assert running.store.appends == appends, "nothing more is expired"


def test_a_released_record_that_is_expired_is_not_delivered_again(running, cluster):
    join(running, "c1", query=False)
    (part,) = running.ask(AcquireRecords, "c1", max_records=5).partitions
    cluster.timestamps[ORDERS] = {0: 0, NEVER: 33}
    released = acks(part.topic_id, 30, 34, RELEASE)
    running.ask(AcquireRecords, "c1", max_records=2, acknowledgements=released)
    again = running.ask(AcquireRecords, "c1", max_records=2)
    assert archived(running)["ttl"] == 33
    assert min(run.first for run in running.runs() if run.state == "ACQUIRED") == 33, again


def test_a_record_that_comes_during_the_look_is_not_archived(running, cluster, monkeypatch):
    """The brokers find no young record, and then say where the log ends: it ends behind a newer record by now."""
    cluster.timestamps[ORDERS] = {0: 0}
    join(running)
    before = cluster.answered_offsets

    def grows(partitions, at, *, read_committed=False):
        if at >= 0:
            cluster.move("orders", 101)
        return before(partitions, at, read_committed=read_committed)

    monkeypatch.setattr(cluster, "answered_offsets", grows)
    running.service.look_at_groups()
    assert archived(running) == {"ttl": 100}


def test_what_the_log_has_removed_meanwhile_is_not_too_old(running, cluster):
    """It was young, and the log begins behind it now; the first record that is young enough lies there as well."""
    join(running)
    running.next(max_records=5)
    cluster.move("orders", 100, start=60)
    cluster.timestamps[ORDERS] = {0: 0, NEVER: 60}
    running.service.look_at_groups()
    running.next(max_records=5)
    assert (archived(running), running.partitions()[ORDERS].removed) == ({"ttl": 30}, 25)


def test_a_clock_that_begins_at_1970_gives_up_nothing(running, cluster, monkeypatch):
    cluster.timestamps[ORDERS] = {5: 0}
    monkeypatch.setattr(record_ttl, "time", SimpleNamespace(time=lambda: 59.999))
    join(running)
    assert held(running.next()) == {ORDERS: [(0, 99)]}


def test_what_may_not_be_given_up_yet_is_read_once(running, cluster, monkeypatch):
    """Too many records wait for their dead letters: each poll would read the log again."""
    monkeypatch.setattr(partitions, "held_back", lambda _: 1)
    join(running)
    for _ in range(3):
        running.service.look_at_groups()
    assert (archived(running), cluster.read) == ({}, [(ORDERS, 0, 29)])


def test_paused_topics_age_as_well_and_a_look_changes_nothing(running):
    join(running, **{"share.paused.topics": "*"})
    running.service.handle(DescribeGroup(group_id="billing"))
    assert archived(running) == {}
    assert held(running.next()) == {}
    assert archived(running) == {"ttl": 30}


def test_without_a_ttl_nothing_is_asked(running, cluster):
    running.join(starting_offsets="earliest")
    running.service.look_at_groups()
    asked = cluster.asked
    running.service.look_at_groups()
    assert (cluster.asked, cluster.read) == (asked, [])
    assert held(running.next(max_records=1)) == {ORDERS: [(0, 0)]}
