"""Attacks on the coordinator: brokers that lag, topics made anew, two owners of a store, clocks that go back."""

import os
import threading
from types import SimpleNamespace

import pytest

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.core.commands import (
    AcquirePlan,
    AlterConfigs,
    CreateGroup,
    InitializePartitions,
    PartitionStart,
    TopicWithId,
)
from coordinator.protocol.errors import CoordinatorNotAvailable, StateStoreInUse
from coordinator.protocol.messages import AcquireRecords, Done, Heartbeat, Joined, JoinGroup, PartitionBounds
from coordinator.protocol.wire import Endpoint, LaunchSettings
from coordinator.service.brokers import subscription
from coordinator.service.brokers.broker_watch import BrokerWatch
from coordinator.service.brokers.cluster import TopicInfo
from coordinator.service.brokers.subscription import Subscription
from coordinator.service.on_demand import keep_endpoint, write_endpoint
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.transaction import one
from coordinator.service.stores.sqlite_store import SqliteStore
from coordinator.service.stores.store import StoreRefused
from tests.support.fake_cluster import FakeCluster
from tests.support.running_service import held
from tests.support.store_writes import append, snapshot
from tests.support.waiting import wait_until

NOW_MS = 1_000_000


@pytest.fixture
def cluster():
    cluster = FakeCluster()
    cluster.add("orders", end=1000)
    return cluster


# --- brokers and topics


def test_a_deleted_topics_ends_are_not_its_successors_for_another_subscription(running, cluster):
    running.join(starting_offsets="earliest")
    running.next()
    cluster.delete("orders")
    cluster.add("orders", end=10)
    running.join("m2", topic_pattern="ord.*")
    assert held(running.next(member="m2", max_records=500)) == {("orders", 0): [(0, 9)]}


def test_offsets_asked_for_before_a_topic_was_recreated_are_not_kept(cluster, monkeypatch):
    cluster.move("orders", 1000, start=500)
    watch = BrokerWatch(cluster, metadata_refresh_ms=0)
    orders, place = Subscription(topics=("orders",)), [("orders", 0)]
    watch.topics(orders)
    answer = cluster.offsets

    def answers_late(partitions, at, *, read_committed=False):
        found = answer(partitions, at, read_committed=read_committed)
        monkeypatch.setattr(cluster, "offsets", answer)
        cluster.delete("orders")
        cluster.add("orders", end=10)
        watch.topics(orders)
        return found

    monkeypatch.setattr(cluster, "offsets", answers_late)
    watch.ask_ends(place, read_committed=False)
    assert watch.ends(place, read_committed=False) == {}
    monkeypatch.setattr(cluster, "offsets", answers_late)
    watch.ask_log_starts(place)
    assert watch.log_starts(place) == {("orders", 0): 0}
    watch.close()


def test_the_ends_of_a_deleted_topic_are_forgotten(cluster):
    watch = BrokerWatch(cluster, metadata_refresh_ms=0, watermark_refresh_ms=60_000)
    orders = Subscription(topics=("orders",))
    watch.topics(orders)
    watch.ask_ends([("orders", 0)], read_committed=False)
    assert watch.are_new([("orders", 0)], read_committed=False)
    cluster.delete("orders")
    watch.topics(orders)
    assert not watch.are_new([("orders", 0)], read_committed=False)
    assert not watch._asked_at
    watch.close()


def test_an_older_answer_of_the_brokers_does_not_replace_a_newer_topic(running, cluster, monkeypatch):
    running.join(starting_offsets="earliest")
    cluster.add("payments", end=5)
    running.join("m2", topic_pattern="orders|payments", starting_offsets="earliest")
    stale = {"orders": TopicInfo("orders", "id-of-its-predecessor", 1), "payments": cluster.found["payments"]}
    answers = [stale]
    monkeypatch.setattr(cluster, "topics", lambda names: answers.pop(0) if answers else dict(cluster.found))
    plan = running.next(member="m2", max_records=100)
    assert not answers, "the member's subscription was resolved by the old answer"
    assert held(plan) == {("payments", 0): [(0, 4)]}
    assert held(running.next(member="m1", max_records=100)) == {("orders", 0): [(0, 99)]}


@pytest.mark.parametrize("stale", [{}, {"orders": TopicInfo("orders", "id-of-its-predecessor", 1)}])
def test_a_broker_that_does_not_know_a_topic_yet_costs_no_records(running, cluster, monkeypatch, stale):
    monkeypatch.setattr(subscription, "PAUSES_S", (0.0, 0.0))
    running.join(starting_offsets="earliest")
    number = running.next(max_records=100).plan_id
    answers = [stale, stale, dict(cluster.found)]
    monkeypatch.setattr(cluster, "topics", lambda names: answers.pop(0) if answers else dict(cluster.found))
    reclaimed = running.start(number)
    assert (held(reclaimed.plan), reclaimed.data_loss) == ({("orders", 0): [(0, 99)]}, ())


def test_records_are_read_at_the_groups_current_isolation_level(running):
    """Records of aborted transactions must not come to a program once the group reads committed ones."""
    running.join(starting_offsets="earliest")
    running.join("c1", query=False)
    running.join("m2", configs={"share.isolation.level": "read_committed"})
    assert running.ask(AcquireRecords, "c1", max_records=10).isolation_level == "read_committed"
    assert running.start(running.next(max_records=10).plan_id).isolation_level == "read_committed"


# --- two owners of one store


@pytest.fixture
def two_owners(tmp_path):
    """Two stores on one file: somebody deleted the lock file in between."""
    first = SqliteStore(tmp_path / "state.db")
    os.unlink(f"{first.path}.lock")
    second = SqliteStore(tmp_path / "state.db")
    yield first, second
    second.close()
    first.close()


@pytest.mark.parametrize("replaces", [False, True])
def test_an_append_is_refused_until_another_owners_records_are_loaded(two_owners, replaces):
    first, second = two_owners
    append(first, {"billing": [b"a"]})
    for store in two_owners:
        assert [data for _, data in store.load("billing")] == [b"a"]
    append(second, {"billing": [b"b"]})
    if replaces:
        snapshot(second, "billing", [b"ab"])
    with pytest.raises(StoreRefused, match="another process"):
        append(first, {"shipping": [b"x"], "billing": [b"c"]})
    with pytest.raises(StoreRefused, match="another process"):
        snapshot(first, "billing", [b"ac"])
    assert [data for _, data in first.load("billing")] == ([b"ab"] if replaces else [b"a", b"b"])
    append(first, {"billing": [b"c"]})
    assert list(first.load("shipping")) == []


def test_a_group_that_cannot_be_loaded_again_stops_no_other(tmp_path, monkeypatch):
    runtime = CoordinatorRuntime(SqliteStore(tmp_path / "state.db"))
    created = CreateGroup(incarnation="i", topic_ids=True)
    runtime.submit("billing", one(created))
    runtime.step(NOW_MS)
    load = runtime.store.load

    def fails(group_id):
        if group_id == "billing":
            raise TypeError("a bytes-like object is required")
        return load(group_id)

    monkeypatch.setattr(runtime.store, "load", fails)
    monkeypatch.setattr(runtime.store, "append", lambda *_: load(1 / 0))
    runtime.submit("billing", one(AlterConfigs(configs={"share.delivery.count.limit": "7"})))
    runtime.step(NOW_MS)
    monkeypatch.undo()
    monkeypatch.setattr(runtime.store, "load", fails)
    answer = runtime.submit("shipping", one(created))
    runtime.step(NOW_MS + 1)
    assert answer.result(0) == Done()
    runtime.store.close()


def test_two_owners_give_no_record_to_two_members(two_owners):
    runtimes = [CoordinatorRuntime(store) for store in two_owners]

    def ask(owner, command):
        while True:
            answer = runtimes[owner].submit("billing", one(command))
            runtimes[owner].step(NOW_MS)
            try:
                return answer.result(0)
            except CoordinatorNotAvailable:
                continue

    ask(0, CreateGroup(incarnation="i", topic_ids=True))
    topics = (TopicWithId(topic="orders", topic_id="T"),)
    starts = (PartitionStart(topic_id="T", partition=0, start_offset=0),)
    ask(0, InitializePartitions(topics=topics, starts=starts))
    bounds = (PartitionBounds(topic_id="T", partition=0, log_start=0, end=1000),)
    taken = []
    for owner, member in [(0, "m1"), (1, "m2"), (0, "m3"), (1, "m4")]:
        ask(owner, JoinGroup(group_id="billing", member_id=member, process_id=member))
        ask(owner, JoinGroup(group_id="billing", member_id=member, process_id=member))  # its session, if it was loaded
        plan = ask(
            owner, AcquirePlan(group_id="billing", member_id=member, member_epoch=1, max_records=10, bounds=bounds)
        ).plan
        taken += [(r.first, r.last) for p in plan.partitions for r in p.ranges]
    assert taken == [(0, 9), (10, 19), (20, 29), (30, 39)]


def test_an_endpoint_file_that_was_cleaned_away_is_written_again(tmp_path):
    path = tmp_path / "run" / "endpoint.json"
    of_cluster = {"bootstrap_servers": "b", "kafka_config": {}, "state_store": "sqlite:s", "configs": {}}
    settings = LaunchSettings(**of_cluster, endpoint_path=str(path))
    endpoint = Endpoint(host="127.0.0.1", port=1, token="t", pid=2)
    keep_endpoint(settings, endpoint)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert keep_endpoint(settings, endpoint) is None
    another = Endpoint(host="127.0.0.1", port=1, token="another's", pid=3)
    write_endpoint(path, another)
    assert keep_endpoint(settings, endpoint) == another, "the successor of a coordinator that stood still"


# --- clients


def test_a_call_outlasts_an_owner_that_is_slow_to_leave():
    connection = SimpleNamespace(call=lambda request, timeout_s, request_id: Done())
    answers = [StateStoreInUse(path="p", owner="1"), StateStoreInUse(path="p", owner="1"), connection]

    def connect(group_id):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = CoordinatorClient(SimpleNamespace(connect=connect, are_several=False), retry_timeout_s=60.0)
    assert client.call(Heartbeat(group_id="billing", member_id="m1", member_epoch=1)) == Done()


def joined(interval_ms):
    return Joined(member_epoch=1, incarnation="i", session_timeout_ms=45_000, heartbeat_interval_ms=interval_ms)


def test_heartbeats_go_on_after_any_error():
    beats = threading.Semaphore(0)

    def call(request, **_):
        if isinstance(request, JoinGroup):
            return joined(5)
        beats.release()
        raise OSError(28, "No space left on device")

    session = MemberSession(SimpleNamespace(call=call), "billing", "m1", topics=("orders",))
    assert beats.acquire(timeout=60) and beats.acquire(timeout=60)
    session.close()
    wait_until(lambda: not session._thread.is_alive(), what="its thread has ended")


def test_a_session_takes_the_interval_that_a_heartbeat_is_answered():
    first, altered = joined(5), joined(7)
    answers = SimpleNamespace(call=lambda request, **_: first if isinstance(request, JoinGroup) else altered)
    session = MemberSession(answers, "billing", "m1", topics=("orders",))
    wait_until(lambda: session.joined is altered, what="the interval is the altered one")
    session.close()
