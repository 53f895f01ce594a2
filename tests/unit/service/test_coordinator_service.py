"""Requests of members become commands with the broker's facts: where groups begin, which records are acquired, which
were deleted."""

import pytest

from coordinator.protocol.errors import (
    ConfigOutOfBounds,
    CoordinatorNotAvailable,
    DeadLetterTopicMissing,
    GroupIdNotFound,
    InvalidGroupId,
    InvalidRequest,
    InvalidStartingOffsets,
    UnknownPartition,
    UnknownTopic,
)
from coordinator.protocol.messages import (
    Acknowledge,
    AcquireRecords,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LatestOffsets,
    LeaveGroup,
)
from coordinator.protocol.values import AcknowledgeType
from coordinator.service.brokers.asked_ahead import AskedAhead
from tests.support.fake_cluster import FakeCluster
from tests.support.running_service import acks, begun, held, serving
from tests.support.waiting import wait_until


@pytest.fixture
def cluster():
    cluster = FakeCluster()
    cluster.add("orders", 2, end=100, start=10)
    return cluster


# --- where a group begins


@pytest.mark.parametrize(
    ("fields", "starts"),
    [
        ({}, (100, 100)),  # share.auto.offset.reset=latest is Kafka's default
        ({"starting_offsets": "earliest"}, (10, 10)),
        ({"starting_offsets": "latest"}, (100, 100)),
        ({"configs": {"share.auto.offset.reset": "earliest"}}, (10, 10)),
        ({"configs": {"share.auto.offset.reset": "earliest"}, "starting_offsets": "latest"}, (100, 100)),
        ({"starting_offsets": '{"orders": {"0": 23, "1": -2}}'}, (23, 10)),
        ({"starting_offsets": '{"orders": {"0": -1, "1": 5}}'}, (100, 10)),
        ({"starting_offsets": '{"orders": {"0": 500, "1": 99}}'}, (100, 99)),
    ],
)
def test_a_new_group_begins_at_the_requested_starting_offsets(running, fields, starts):
    running.join(**fields)
    assert running.start_offsets() == {("orders", 0): starts[0], ("orders", 1): starts[1]}


def test_a_join_reports_a_created_group_and_its_initialized_partitions(running, cluster):
    first = running.join()
    assert (first.created, first.begun) == (True, 2)
    second = running.join("m2", starting_offsets="earliest")
    assert (second.created, second.begun) == (False, 0)
    assert set(running.start_offsets().values()) == {100}, "they apply to partitions new to the group alone"


def test_a_join_returns_the_changed_configs_of_an_existing_group(running):
    limit = "share.delivery.count.limit"
    first = running.join(configs={limit: "7", "share.isolation.base": "50"})
    assert (first.replaced, first.configs) == ({}, {limit: "7", "share.isolation.base": "50"})
    second = running.join("m2", configs={limit: "3", "share.isolation.base": "", "share.release.backoff.ms": "5"})
    assert second.replaced == {limit: "7", "share.isolation.base": "50", "share.release.backoff.ms": ""}
    assert second.configs == {limit: "3", "share.release.backoff.ms": "5"}


def test_by_duration_begins_at_the_first_later_record_or_the_end(running, cluster):
    now_ms = running.runtime.clock.now_ms()
    cluster.timestamps = {("orders", 0): {now_ms - 7_200_000: 20, now_ms - 1_800_000: 70}, ("orders", 1): {}}
    running.join(configs={"share.auto.offset.reset": "by_duration:PT1H"})
    assert running.start_offsets() == {("orders", 0): 70, ("orders", 1): 100}


def test_new_partitions_begin_at_their_earliest_also_under_latest(running, cluster):
    running.join()
    cluster.add("orders", 3, end=7)
    assert held(running.next(max_records=100)) == {("orders", 2): [(0, 6)]}


def test_a_topic_that_comes_to_match_the_pattern_begins_at_its_earliest(running, cluster):
    running.join(topic_pattern="ord.*")
    cluster.add("orders-eu", end=5)
    cluster.add("my-orders", end=5)
    assert held(running.next(max_records=100)) == {("orders-eu", 0): [(0, 4)]}


def test_a_join_without_a_partitions_offsets_is_retriable_and_creates_no_group(running, cluster):
    log = cluster.logs.pop(("orders", 1))
    with pytest.raises(CoordinatorNotAvailable, match=r"no offsets of orders-1 yet") as raised:
        running.join(starting_offsets="latest")
    assert raised.value.retriable
    with pytest.raises(GroupIdNotFound):
        running.partitions()
    cluster.logs["orders", 1] = log
    running.join(starting_offsets="latest")
    assert running.start_offsets() == {("orders", 0): 100, ("orders", 1): 100}


# --- refused by name


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"starting_offsets": "newest"}, InvalidStartingOffsets, "starting"),
        ({"starting_offsets": "[1]"}, InvalidStartingOffsets, "starting"),
        ({"starting_offsets": '{"orders": {"0": 1}}'}, InvalidStartingOffsets, "starting"),
        ({"starting_offsets": '{"orders": {"0": -3, "1": 1}}'}, InvalidStartingOffsets, "starting"),
        ({"topics": ("orders", "payments")}, UnknownTopic, "Topic payments .* in the Kafka cluster at fake:9092"),
        ({"assign": {"orders": (0, 7)}}, UnknownPartition, "orders has no partition 7"),
        ({"assign": {"orders": (0,)}, "topics": ("orders",)}, InvalidRequest, "has several"),
        ({"assign": {"orders": (0,)}, "topic_pattern": "orders"}, InvalidRequest, "has several"),
        ({"configs": {"share.session.timeout.ms": "1"}}, ConfigOutOfBounds, "share.session.timeout.ms"),
        ({"configs": {"errors.deadletterqueue.topic.name": "nosuch"}}, DeadLetterTopicMissing, "nosuch"),
    ],
)
def test_a_join_that_is_refused_by_name_creates_no_group(running, fields, error, says):
    with pytest.raises(error, match=says):
        running.join(**fields)
    with pytest.raises(GroupIdNotFound):
        running.partitions()


def test_a_request_without_a_group_id_is_refused(running):
    with pytest.raises(InvalidRequest):
        running.service.handle(DescribeGroup(group_id=""))


def test_a_session_that_lapsed_comes_back_while_the_broker_is_away(running, cluster):
    epoch = running.join(starting_offsets="earliest").member_epoch
    cluster.unreachable = True
    running.ask(LeaveGroup)
    assert running.join(member_epoch=epoch).member_epoch == epoch
    running.ask(Heartbeat)


# --- configs


def test_configs_of_a_join_are_the_group_s_from_then_on(running):
    joined = running.join(configs={"share.session.timeout.ms": "6000", "share.isolation.level": "read_committed"})
    assert (joined.session_timeout_ms, joined.isolation_level) == (6000, "read_committed")
    assert running.join("m2").session_timeout_ms == 6000


def test_a_session_that_comes_back_sets_no_configs_again(running):
    epoch = running.join(configs={"share.session.timeout.ms": "6000"}).member_epoch
    running.join("m2", configs={"share.session.timeout.ms": "9000"})
    running.ask(LeaveGroup)
    assert running.join(member_epoch=epoch, configs={"share.session.timeout.ms": "6000"}).session_timeout_ms == 9000


# --- plans


def test_completing_and_acquiring_are_two_rounds_and_one_append(running, monkeypatch):
    running.join(starting_offsets="earliest")
    number = running.next(max_records=60).plan_id
    running.start(number)
    appends, rounds, call = running.store.appends, [], running.runtime.call
    monkeypatch.setattr(running.runtime, "call", lambda *given: rounds.append(given) or call(*given))
    assert held(running.next(number, max_records=60)) == {("orders", 0): [(40, 69)], ("orders", 1): [(40, 69)]}
    assert (len(rounds), running.store.appends) == (2, appends + 1)


def test_no_broker_is_asked_when_known_log_ends_fill_the_request(running, cluster, monkeypatch):
    monkeypatch.setattr(AskedAhead, "ask", lambda *_: None)  # for the plan's start, in another thread
    running.join(starting_offsets="earliest")
    number = running.next(max_records=10).plan_id
    running.start(number)
    running.watch.topics = lambda subscription: cluster.found  # no refresh, which asks for log starts
    asked = cluster.asked
    number = running.next(number, max_records=10).plan_id
    assert (number != "", cluster.asked) == (True, asked)
    running.start(number)
    asked = cluster.asked
    running.next(number, max_records=1_000)
    assert cluster.asked == asked + 1


def test_a_waiting_member_is_woken_by_new_records(running, cluster):
    running.join()
    asked = begun(lambda: running.next(max_records=10, wait_ms=30_000))
    wait_until(lambda: running.watch._waited_for, what="it waits")
    cluster.move("orders", 103, start=10)
    assert held(asked.result(60)) == {("orders", 0): [(100, 102)]}


def test_a_waiting_member_is_woken_by_records_that_another_gave_back(running):
    running.join("m1", starting_offsets="earliest")
    running.join("m2")
    running.next(member="m1")
    asked = begun(lambda: running.next(member="m2", wait_ms=30_000))
    wait_until(lambda: running.watch._waited_for, what="it waits")
    running.ask(LeaveGroup, "m1")
    assert held(asked.result(60)) == {("orders", 0): [(10, 99)], ("orders", 1): [(10, 99)]}


def test_available_now_ends_at_its_bounds_and_does_not_wait(running, cluster):
    running.join(starting_offsets="earliest")
    until = running.ask(LatestOffsets).ends
    assert until == {"orders": {"0": 100, "1": 100}}
    cluster.add("orders", 3, end=50)
    cluster.move("orders", 500, start=10)
    plan = running.next(until=until)
    assert held(plan) == {("orders", 0): [(10, 99)], ("orders", 1): [(10, 99)]}
    running.start(plan.plan_id)
    assert running.next(plan.plan_id, until=until, wait_ms=30_000).plan_id == ""


def test_available_now_begins_at_the_coordinators_time(running):
    running.join(starting_offsets="earliest")
    now_ms = running.runtime.clock.now_ms
    assert now_ms() <= running.ask(LatestOffsets).now_ms <= now_ms()


def test_read_committed_goes_up_to_the_last_stable_offset(running, cluster):
    cluster.stable = {("orders", 0): 60, ("orders", 1): 10}
    running.join(starting_offsets="earliest", configs={"share.isolation.level": "read_committed"})
    assert running.ask(LatestOffsets).ends == {"orders": {"0": 60, "1": 10}}
    assert held(running.next()) == {("orders", 0): [(10, 59)]}


def test_a_log_that_ends_below_acquired_records_is_logged_once(running, cluster, caplog):
    running.join(starting_offsets="earliest")
    plan = running.next()
    reached = plan.partitions[0].ranges[-1].last + 1
    running.start(plan.plan_id)
    cluster.move("orders", reached - 5)
    for _ in range(2):
        assert running.next(plan.plan_id).plan_id == ""
    told = [record.getMessage() for record in caplog.records if "log shrunk" in record.getMessage()]
    assert len(told) == 1 and f"orders-0 ends at {reached - 5} now" in told[0]


def test_an_open_transaction_is_no_shrunk_log_after_the_switch_to_committed(running, cluster, caplog):
    """A log has lost records only if its high watermark fell, not if its last stable offset lies lower."""
    cluster.move("orders", end=1000)
    cluster.stable["orders", 0] = 900
    running.join(starting_offsets="earliest")
    plan = running.next()
    running.start(plan.plan_id)
    running.join(process="m1-p2", configs={"share.isolation.level": "read_committed"})
    running.next(plan.plan_id)
    assert "log shrunk" not in caplog.text
    cluster.move("orders", end=950)

    def is_told():
        running.next(plan.plan_id)
        return "orders-0 ends at 950 now, and the group has acquired it up to 1000" in caplog.text

    wait_until(is_told, what="the high watermark is asked again")


def test_a_share_consumer_acquires_and_acknowledges_the_records_that_the_logs_hold(running, cluster):
    running.join("c1", query=False, assign={"orders": (1,)}, starting_offsets="earliest")
    cluster.move("orders", 103, 1, start=95)
    reply = running.ask(AcquireRecords, "c1", max_records=500)
    assert held(reply) == {("orders", 1): [(95, 102)]}
    accepts = acks(reply.partitions[0].topic_id, 95, 99, AcknowledgeType.ACCEPT, partition=1)
    assert running.ask(Acknowledge, "c1", partitions=accepts).errors == {}
    assert running.start_offsets()["orders", 1] == 100
    assert running.ask(AcquireRecords, "c1", max_records=500).partitions == ()


def test_assign_takes_no_other_partition(running):
    running.join(assign={"orders": (1,)}, starting_offsets="earliest")
    assert held(running.next()) == {("orders", 1): [(10, 99)]}
    assert running.ask(LatestOffsets).ends == {"orders": {"1": 100}}


def test_records_that_retention_deleted_before_their_acquisition_are_skipped(running, cluster):
    running.join(starting_offsets="earliest")
    cluster.move("orders", 100, start=50)
    assert held(running.next())["orders", 0] == [(50, 99)]


# --- what has gone


def test_a_plans_losses_are_reported_at_its_start(running, cluster):
    running.join(starting_offsets="earliest")
    plan = running.next()
    cluster.move("orders", 100, start=50)
    lost = running.start(plan.plan_id).data_loss
    assert [(left.partition, left.first, left.last) for left in lost] == [(0, 10, 49)]


def test_a_recreated_topic_begins_at_its_earliest_and_loses_the_old_ranges(running, cluster):
    running.join(starting_offsets="earliest")
    plan = running.next()
    cluster.delete("orders")
    cluster.add("orders", 2, end=5)
    lost = running.start(plan.plan_id, fail_on_data_loss=False).data_loss
    assert sorted((left.partition, left.first, left.last) for left in lost) == [(0, 10, 99), (1, 10, 99)]
    assert held(running.next(plan.plan_id)) == {("orders", 0): [(0, 4)], ("orders", 1): [(0, 4)]}


def test_a_deleted_topic_loses_its_ranges_and_the_query_continues(running, cluster):
    cluster.add("payments", end=5)
    running.join(topics=("orders", "payments"), starting_offsets="earliest")
    plan = running.next()
    cluster.delete("payments")
    reply = running.start(plan.plan_id, fail_on_data_loss=False)
    assert [left.topic for left in reply.data_loss] == ["payments"]
    assert set(held(reply.plan)) == {("orders", 0), ("orders", 1)}
    assert running.next(plan.plan_id).plan_id == ""


def counted(running) -> tuple[int, int, int]:
    """How many records are accepted, removed and deleted."""
    found = running.service.handle(DescribeGroup(group_id="billing")).records
    return found.accepted, found.removed, found.deleted


@pytest.mark.parametrize(("fails", "counts"), [(True, (180, 0, 0)), (False, (130, 50, 0))])
def test_a_batch_counts_what_was_removed_while_it_ran(running, cluster, fails, counts):
    running.join(starting_offsets="earliest")
    plan = running.next()
    running.start(plan.plan_id, fail_on_data_loss=fails)
    cluster.move("orders", 100, start=60)
    running.next(plan.plan_id)
    assert counted(running) == counts


def test_a_topic_no_longer_subscribed_gives_its_ranges_back(running, cluster):
    cluster.add("payments", end=5)
    running.join(topics=("orders", "payments"), starting_offsets="earliest")
    plan = running.next()
    running.start(plan.plan_id)
    running.join(topics=("orders",), process="another")
    reply = running.start(plan.plan_id)
    assert [(left.topic, left.reason) for left in reply.left_out] == [("payments", "unsubscribed")]
    assert set(held(reply.plan)) == {("orders", 0), ("orders", 1)}


# --- topic ids


def test_topic_ids_are_derived_from_names_in_a_cluster_without_ids():
    cluster = FakeCluster(topic_ids=False)
    cluster.add("orders", end=5)
    with serving(cluster) as running:
        running.join(starting_offsets="earliest")
        plan = running.next()
        assert len(plan.partitions[0].topic_id) == 22
        assert running.start(plan.plan_id).data_loss == ()
        cluster.topic_ids = True
        cluster.add("orders", end=5)
        assert running.next(plan.plan_id).plan_id == "", "the group goes on by the names"


# --- people


def test_a_description_has_the_lag_unless_the_broker_is_away(running, cluster):
    running.join(starting_offsets="earliest")
    running.next(max_records=20)
    assert {p.lag for p in running.partitions().values()} == {90}
    assert {p.acquired for p in running.partitions().values()} == {10}
    cluster.unreachable = True
    assert {p.lag for p in running.partitions().values()} == {None}


@pytest.mark.parametrize("group_id", ["bill\ning", "g" * 40_000], ids=["a line break", "40,000 characters"])
def test_a_group_with_an_invalid_id_is_not_created(running, group_id):
    """A client of another version may not have refused it."""
    join = JoinGroup(group_id=group_id, member_id="m1", process_id="p", topics=("orders",))
    with pytest.raises(InvalidGroupId):
        running.service.handle(join)
    with pytest.raises(GroupIdNotFound):
        running.service.handle(DescribeGroup(group_id=group_id))
