"""Topics that come, go and come again under a running group: where they begin, and what is told of those that went."""

from types import SimpleNamespace

import pytest

from coordinator.core.commands import StageRuns
from coordinator.protocol.errors import BrokerRefused, CoordinatorNotAvailable, InvalidTopicPattern, TopicKept
from coordinator.protocol.messages import DescribeGroup, Heartbeat, JoinGroup, LeaveGroup, PartitionOutcomes
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from coordinator.service.brokers import topic_doubts
from coordinator.service.brokers.partition_starts import Start
from coordinator.service.brokers.subscription import Subscription, TopicIdPartition
from coordinator.service.runtime import transactions
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from tests.support.fake_cluster import FakeCluster
from tests.support.running_service import Running, held


@pytest.fixture
def cluster():
    cluster = FakeCluster()
    cluster.add("orders-us", end=10)
    return cluster


def test_a_share_consumer_learns_which_of_its_topics_do_not_exist(running, cluster):
    assert running.join("m1", query=False, topics=("orders-us", "ordrs", "paymets")).missing == ("ordrs", "paymets")
    assert running.join("m2", query=False, topics=("orders-us",)).missing == ()
    assert running.join("m3", query=False, topics=(), topic_pattern="nosuch.*").missing == ()


# --- where a topic begins that came later than a subscription that has it


@pytest.mark.parametrize(
    "second",
    [
        {"topic_pattern": "orders-.*"},
        {"topic_pattern": ".*"},
        {"topics": ("orders-eu",)},
        {"assign": {"orders-eu": (0,)}},
        {"topics": ("orders-eu",), "starting_offsets": "latest"},
        {"topics": ("orders-eu",), "starting_offsets": '{"orders-eu": {"0": 40}}'},
    ],
)
def test_a_patterns_new_topic_begins_at_its_earliest_despite_another_join(running, cluster, second):
    running.join("m1", topic_pattern="orders-.*")
    assert held(running.next(member="m1")) == {}
    cluster.add("orders-eu", end=100)
    running.join("m2", **second)
    assert held(running.next(member="m1", max_records=1000)) == {("orders-eu", 0): [(0, 99)]}


def test_a_patterns_new_topic_begins_at_its_earliest_after_its_member_left(running, cluster):
    running.join("m1", topic_pattern="orders-.*")
    running.ask(LeaveGroup, "m1")
    cluster.add("orders-eu", end=100)
    running.join("m2", topic_pattern="orders-.*")
    assert running.start_offsets()["orders-eu", 0] == 0


def test_a_topic_new_to_the_group_begins_by_its_querys_starting_offsets(running, cluster):
    running.join("m1", topic_pattern="orders-.*")
    cluster.add("payments", end=100)
    running.join("m2", topics=("payments",), starting_offsets='{"payments": {"0": 40}}')
    assert running.start_offsets()["payments", 0] == 40


def test_the_members_at_initialization_decide_the_start_not_older_facts(running, cluster):
    running.join("m1", topics=("orders-us",))
    late = JoinGroup(group_id="billing", member_id="m3", process_id="p3", topics=("orders-eu",))
    running.join("m2", topic_pattern="orders-.*")
    topic_id = cluster.add("orders-eu", end=100)
    starts = {TopicIdPartition("orders-eu", topic_id, 0): Start(0, 100)}  # as looked up before m2 joined
    running.runtime.call("billing", transactions.join(late, topic_ids=True, starts=starts))
    assert running.start_offsets()["orders-eu", 0] == 0


def test_a_join_with_facts_too_old_asks_the_brokers_again(running, cluster):
    running.join("m1", topics=("orders-us",))
    late = JoinGroup(group_id="billing", member_id="m2", process_id="p2", topics=("payments",))
    starts = {TopicIdPartition("payments", "id-9", 0): Start(0, None)}
    with pytest.raises(CoordinatorNotAvailable, match="payments") as raised:
        running.runtime.call("billing", transactions.join(late, topic_ids=True, starts=starts))
    assert raised.value.retriable
    assert {member.member_id for member in running.engine.groups["billing"].members.values()} == {"m1"}


# --- what may be asked for


@pytest.mark.parametrize("pattern", [r"events\.(\w+)*-eu", r"(a|aa|a*)*(x+x+)+y", r"(.*.*.*.*)*-eu"])
def test_no_pattern_takes_a_time_without_bound(running, cluster, pattern):
    cluster.add("events." + "a" * 240, end=10)
    cluster.add("a" * 100 + "x" * 140, end=10)
    running.join("m1", topics=("orders-us",))
    running.join("m2", topic_pattern=pattern)
    assert held(running.next(member="m2")) == {}
    running.ask(Heartbeat)


@pytest.mark.parametrize("pattern", ["(?!internal).*", "a" * 10_001])
def test_an_unusable_pattern_is_refused_first_and_creates_no_group(running, cluster, pattern):
    cluster.unreachable = True
    with pytest.raises(InvalidTopicPattern):
        running.join(topic_pattern=pattern)
    assert not running.engine.groups


def test_topics_kept_by_kafka_or_sharegroup_match_no_pattern(running, cluster):
    for topic in (STATE_TOPIC, "__consumer_offsets", "__transaction_state", "__share_group_state", "__anything"):
        cluster.add(topic, end=10)
    running.join(topic_pattern=".*", starting_offsets="earliest")
    assert held(running.next()) == {("orders-us", 0): [(0, 9)]}


@pytest.mark.parametrize("topic", [STATE_TOPIC, "__consumer_offsets", "__share_group_state"])
def test_a_topic_kept_by_kafka_or_sharegroup_is_refused_by_name(running, cluster, topic):
    cluster.add(topic, end=10)
    with pytest.raises(TopicKept, match=f"Topic {topic} can't be read"):
        running.join(topics=("orders-us", topic))
    with pytest.raises(TopicKept):
        running.join(assign={topic: (0,)})


# --- what a topic had that is gone


def released_and_unread(running, cluster):
    """Of 1000 records 90 are accepted, 10 wait to come again, 900 were never acquired; the plan that is completed."""
    cluster.move("orders-us", 1000)
    running.join(starting_offsets="earliest", topic_pattern="orders-.*")
    plan = running.next(max_records=100)
    running.start(plan.plan_id)
    runs = (OutcomeRun(0, 9, 1, AcknowledgeType.RELEASE, 10_000_000),)
    outcomes = (PartitionOutcomes(topic_id=cluster.found["orders-us"].topic_id, partition=0, runs=runs),)
    running.service.handle(StageRuns(group_id="billing", query_id="q", partitions=outcomes))
    assert running.next(plan.plan_id, max_records=1, until={}).plan_id == ""
    return plan.plan_id


def go(cluster, how):
    cluster.delete("orders-us")
    if how == "made anew":
        cluster.add("orders-us", end=5)


def told(running, start="", **fields):
    """The losses that the next plan reports, and the plan."""
    plan = running.next(start, max_records=100)
    assert plan.plan_id, "it is told now, and not when the next record comes"
    reply = running.start(plan.plan_id, **fields)
    return [(out.first, out.last, out.count) for out in reply.data_loss], reply.plan


@pytest.mark.parametrize("how", ["deleted", "made anew"])
def test_a_deleted_topics_unheld_records_are_archived_and_reported_once(running, cluster, how, caplog):
    start = released_and_unread(running, cluster)
    go(cluster, how)
    lost, plan = told(running, start)
    assert lost == [(0, 9, 10), (100, 999, 900)]
    running.join(topic_pattern="orders-.*", process="another")  # with failOnDataLoss=true the query failed
    assert running.start(plan.plan_id).data_loss == ()
    assert held(plan) == ({("orders-us", 0): [(0, 4)]} if how == "made anew" else {})
    assert running.next(plan.plan_id).plan_id == ""
    said = [record.getMessage() for record in caplog.records if "topic deleted" in record.getMessage()]
    assert len(said) == 1
    assert "group=billing topic=orders-us id=id-1 lost=910 (orders-us-0 offsets 0 to 9" in said[0]


def test_a_log_end_that_fell_makes_the_service_check_the_topics(running, cluster):
    start = released_and_unread(running, cluster)
    running.watch.metadata_refresh_s = 3_600
    running.watch.topics(Subscription(pattern="orders-.*"))
    go(cluster, "made anew")
    assert running.next(start).plan_id == "", "the ends are asked for, and fell"
    lost, _ = told(running, start)
    assert lost == [(0, 9, 10), (100, 999, 900)]
    assert running.engine.groups["billing"].topics == {"orders-us": "id-2"}


def test_a_topic_deleted_while_the_coordinator_was_away_has_an_unknown_end(tmp_path, cluster, caplog):
    first = Running(tmp_path / "away.db", cluster)
    start = released_and_unread(first, cluster)
    first.close()
    go(cluster, "made anew")
    second = Running(tmp_path / "away.db", cluster)
    second.join(topic_pattern="orders-.*", process="another")
    plan = second.next(start, max_records=100)
    reply = second.start(plan.plan_id)
    assert [(out.first, out.count) for out in reply.data_loss] == [(0, 10), (100, 0)]
    assert "what it may have had from offset 100 on" in str(reply.data_loss[1])
    assert held(reply.plan) == {("orders-us", 0): [(0, 4)]}
    assert "lost=10 (orders-us-0 offsets 0 to 9, orders-us-0 what it may have had from offset 100 on)" in caplog.text
    second.join(topic_pattern="orders-.*", process="third")
    assert second.start(plan.plan_id).data_loss == ()
    second.close()


def test_one_answer_of_one_broker_does_not_make_a_topic_deleted(running, cluster):
    start = released_and_unread(running, cluster)
    topics, answers = cluster.topics, iter([{}, {}])
    cluster.topics = lambda names: next(answers, topics(names))
    assert running.next(start, max_records=5).plan_id == "", "nothing is said of it"
    plan = running.next(start, max_records=5)
    assert held(plan) == {("orders-us", 0): [(100, 104)]}
    assert running.start(plan.plan_id).data_loss == ()


def doubting(running, monkeypatch) -> list[float]:
    """A doubt of a minute, and the seconds of its clock."""
    now_s = [1_000.0]
    monkeypatch.setattr(topic_doubts, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    running.watch.doubts = topic_doubts.TopicDoubts(60.0)
    return now_s


def test_a_topic_missing_for_less_than_a_minute_loses_nothing(running, cluster, monkeypatch, caplog):
    start, now_s = released_and_unread(running, cluster), doubting(running, monkeypatch)
    for _ in range(2):  # the doubt ends each time
        hidden = cluster.found.pop("orders-us")
        assert running.next(start, max_records=5).plan_id == ""
        now_s[0] += 59
        assert running.next(start, max_records=5).plan_id == ""
        cluster.found["orders-us"] = hidden
        plan = running.next(start, max_records=5)
        assert held(plan) and running.start(plan.plan_id).data_loss == ()
        start = plan.plan_id
    assert "topic deleted" not in caplog.text


def counted(running) -> tuple[int, int]:
    """How many records were deleted with their topic, and how many are not accounted for."""
    found = running.service.handle(DescribeGroup(group_id="billing")).records
    return found.deleted, found.unaccounted


@pytest.mark.parametrize("how", ["deleted", "made anew"])
def test_a_group_without_members_counts_a_topic_that_went(running, cluster, monkeypatch, how):
    released_and_unread(running, cluster)
    now_s = doubting(running, monkeypatch)
    running.ask(LeaveGroup)
    go(cluster, how)
    logs = running.service.lost_logs
    logs.look_at_groups()
    assert logs.in_doubt == (how == "deleted")
    now_s[0] += 60
    logs.look_at_groups()
    assert (counted(running), logs.in_doubt) == ((910, 0), False)


def test_a_topic_that_no_member_subscribes_to_counts_when_it_goes(running, cluster, monkeypatch):
    released_and_unread(running, cluster)
    now_s = doubting(running, monkeypatch)
    cluster.add("payments", end=5)
    running.join(topics=("payments",), process="another")
    go(cluster, "deleted")
    for _ in range(2):
        running.service.lost_logs.look_at_groups()
        now_s[0] += 60
    assert counted(running) == (910, 0)


def test_a_group_that_is_loaded_nowhere_counts_once_somebody_looks_at_it(running, cluster, monkeypatch):
    released_and_unread(running, cluster)
    now_s = doubting(running, monkeypatch)
    running.ask(LeaveGroup)
    running.engine._forget("billing")
    go(cluster, "deleted")
    for looked_at in (False, True):
        if looked_at:
            counted(running)
        for _ in range(2):
            running.service.lost_logs.look_at_groups()
            now_s[0] += 60
        assert bool(counted(running)[0]) == looked_at


def test_a_topic_that_the_coordinator_may_not_see_is_not_deleted(running, cluster, monkeypatch):
    released_and_unread(running, cluster)
    now_s = doubting(running, monkeypatch)

    def refused(names):
        raise BrokerRefused(addresses="b:9092", what="describe topics", reason="TOPIC_AUTHORIZATION_FAILED")

    monkeypatch.setattr(cluster, "topics", refused)
    for _ in range(2):
        running.service.lost_logs.look_at_groups()
        now_s[0] += 60
    assert counted(running) == (0, 0)


def test_a_topic_made_anew_is_known_at_once_by_its_id(running, cluster, monkeypatch):
    start, _ = released_and_unread(running, cluster), doubting(running, monkeypatch)
    go(cluster, "made anew")
    lost, plan = told(running, start)
    assert lost == [(0, 9, 10), (100, 999, 900)] and held(plan) == {("orders-us", 0): [(0, 4)]}


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_plan_waits_for_a_topic_that_is_missing(running, cluster, monkeypatch, comes_back):
    start, now_s = released_and_unread(running, cluster), doubting(running, monkeypatch)
    plan = running.next(start, max_records=5)
    hidden = cluster.found.pop("orders-us")
    for _ in range(2):
        with pytest.raises(CoordinatorNotAvailable, match="do not show orders-us at present") as raised:
            running.start(plan.plan_id)
        assert raised.value.retriable
        now_s[0] += 59
    if comes_back:
        cluster.found["orders-us"] = hidden
    reply = running.start(plan.plan_id)
    assert bool(reply.data_loss) is not comes_back
    assert held(reply.plan) == (held(plan) if comes_back else {})


def test_a_deleted_topic_id_stays_deleted_though_one_broker_names_it(running, cluster):
    start = released_and_unread(running, cluster)
    before = dict(cluster.found)
    go(cluster, "made anew")
    _, plan = told(running, start, fail_on_data_loss=False)
    now, cluster.found = cluster.found, before
    cluster.move("orders-us", 2000)
    assert held(running.next(plan.plan_id)) == {}
    cluster.found = now
    group = running.engine.groups["billing"]
    assert (group.topics, set(group.gone)) == ({"orders-us": "id-2"}, {"id-1"})


def test_a_topic_that_was_only_hidden_continues_after_a_restart(running, cluster):
    start = released_and_unread(running, cluster)
    hidden = cluster.found.pop("orders-us")
    lost, plan = told(running, start, fail_on_data_loss=False)
    assert lost == [(0, 9, 10), (100, 999, 900)]
    cluster.found["orders-us"] = hidden
    cluster.move("orders-us", 1003)
    running.join(topic_pattern="orders-.*", process="another")
    running.start(plan.plan_id)
    assert held(running.next(plan.plan_id)) == {("orders-us", 0): [(1000, 1002)]}
