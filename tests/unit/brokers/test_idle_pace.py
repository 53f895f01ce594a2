"""How often an idle query asks its coordinator, and the coordinator its brokers."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from coordinator.protocol.errors import BrokerRefused
from coordinator.protocol.messages import LatestOffsets, NextPlan
from coordinator.service.brokers import broker_watch
from coordinator.service.brokers.broker_watch import QUIET_AFTER_S, QUIET_S, SLOWEST_S, BrokerWatch
from share_source.driver import reader
from share_source.driver.idle_pace import LONGEST_MS, SHORTEST_MS, SOON_S, IdlePace
from tests.support.fake_cluster import FakeCluster
from tests.support.group_driver import GroupDriver
from tests.support.source_driver import DriverClient, reading
from tests.support.waiting import wait_until


class Clock:
    """A clock in seconds that a test moves."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@contextmanager
def idle_reader(clock):
    """A reader whose query has asked five times, soon after each other, and found nothing."""
    client = DriverClient(GroupDriver(records=0))
    with reading(client) as source:
        source._pace = IdlePace(clock)
        start = source.initialOffset()
        for _ in range(5):
            assert source.latestOffset(start, source.getDefaultReadLimit()) == start
        yield client, source, start


def waits(client):
    return [request.wait_ms for request in client.of(NextPlan)]


def asked_once_more(client, source, start):
    source.latestOffset(start, source.getDefaultReadLimit())
    return waits(client)[-1]


# --- the query


def test_an_idle_querys_requests_wait_longer_and_longer():
    with idle_reader(Clock()) as (client, _, _):
        assert waits(client) == [SHORTEST_MS, 200, 400, LONGEST_MS, LONGEST_MS]


def test_records_end_the_long_waits():
    with idle_reader(Clock()) as (client, source, start):
        client.group.ends[0] = 10
        end = source.latestOffset(start, source.getDefaultReadLimit())
        source.partitions(start, end)
        assert asked_once_more(client, source, end) == SHORTEST_MS


def test_a_batch_of_another_source_ends_the_long_waits():
    """Spark commits our offset, too, though it did not move."""
    with idle_reader(Clock()) as (client, source, start):
        source.commit(start)
        assert asked_once_more(client, source, start) == SHORTEST_MS


def test_a_query_that_comes_back_late_was_not_idle():
    clock = Clock()
    with idle_reader(clock) as (client, source, start):
        clock.now_s += 2 * SOON_S
        assert asked_once_more(client, source, start) == SHORTEST_MS


@pytest.mark.parametrize(("idle", "after_s", "asked"), [(True, 2.0, 1), (True, 6.0, 2), (False, 2.0, 2)])
def test_an_idle_query_asks_less_often_for_its_progress(monkeypatch, idle, after_s, asked):
    clock = Clock()
    monkeypatch.setattr(reader, "time", SimpleNamespace(monotonic=clock))
    with idle_reader(clock) as (client, source, _):
        source.reportLatestOffset()
        if not idle:
            source._pace.busy()
        clock.now_s += after_s
        source.reportLatestOffset()
        assert len(client.of(LatestOffsets)) == asked


# --- the coordinator


@pytest.fixture
def watch():
    """A watch, and its cluster."""
    cluster = FakeCluster()
    cluster.add("orders", end=10)
    watch = BrokerWatch(cluster)
    yield watch, cluster
    watch.close()


def asks_until(watch, cluster, condition, what):
    with watch.waiting([("orders", 0)], read_committed=False):
        wait_until(condition, what=what)


def test_a_refusal_of_the_ends_is_logged_once_a_minute(watch, monkeypatch, caplog):
    watch, cluster = watch
    monkeypatch.setattr(broker_watch, "AFTER_ERROR_S", 0.0)
    asked = []

    def refused(*_, **__):
        asked.append(None)
        raise BrokerRefused(addresses="kafka:9092", what="list offsets", reason="TOPIC_AUTHORIZATION_FAILED")

    monkeypatch.setattr(cluster, "answered_offsets", refused)
    asks_until(watch, cluster, lambda: len(asked) > 3, "the brokers are asked again")
    assert len([r for r in caplog.records if "could not fetch end offsets" in r.getMessage()]) == 1


def test_brokers_are_asked_less_often_when_no_end_moves_for_long(watch, monkeypatch):
    watch, cluster = watch
    monkeypatch.setattr(broker_watch, "QUIET_AFTER_S", 0.0)
    asks_until(watch, cluster, lambda: watch._pause_s == QUIET_S, "it asks every 250 ms")
    is_new = lambda: watch.are_new([("orders", 0)], read_committed=False)  # noqa: E731
    asks_until(watch, cluster, is_new, "what it knows is as new as it keeps it")
    cluster.move("orders", 11)
    end = lambda: watch.ends([("orders", 0)], read_committed=False) == {("orders", 0): 11}  # noqa: E731
    asks_until(watch, cluster, end, "it finds the new end")


def test_an_end_that_a_request_has_seen_move_ends_the_quiet(watch, monkeypatch):
    watch, cluster = watch
    monkeypatch.setattr(broker_watch, "QUIET_AFTER_S", 0.0)
    asks_until(watch, cluster, lambda: watch._pause_s == QUIET_S, "it asks every 250 ms")
    monkeypatch.setattr(broker_watch, "QUIET_AFTER_S", QUIET_AFTER_S)
    cluster.move("orders", 11)
    watch.ask_ends([("orders", 0)], read_committed=False)
    asks_until(watch, cluster, lambda: watch._pause_s <= SLOWEST_S, "it asks often again")
