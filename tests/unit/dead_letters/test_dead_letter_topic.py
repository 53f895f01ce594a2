"""A wrong dead letter topic is found when a query starts."""

import pytest

from coordinator.client.options import configs
from coordinator.config.resolved import GroupConfig
from coordinator.dead_letters.producer import DeadLetterProducer
from coordinator.dead_letters.record_format import Origin, dead_letter
from coordinator.protocol.admin_messages import AlterGroupConfigs
from coordinator.protocol.errors import BrokerRefused, DeadLetterTopicInUse, DeadLetterTopicSubscribed, TopicNotWritten
from coordinator.protocol.messages import DescribeGroup, JoinGroup, LeaveGroup, OpenSink
from coordinator.protocol.values import Disposition
from coordinator.service.dead_letters import group_backlog
from coordinator.service.dead_letters.group_worker import PassResult
from coordinator.service.dead_letters.topic_check import check_dead_letter_topic
from coordinator.service.dead_letters.topic_look import DeadLetterTopicLook
from tests.support.fake_cluster import FakeCluster
from tests.support.running_service import Running, dead_letter_worker, storing
from tests.support.service_sinks import reject

NAME = "errors.deadletterqueue.topic.name"
CREATE = "errors.deadletterqueue.auto.create.topics.enable"
LOST = "dead letter topic missing: group=billing topic=dlq.orders"


@pytest.fixture
def cluster():
    found = FakeCluster()
    found.add("orders")
    return found


@pytest.fixture
def service(running):
    return running


def check(cluster, is_read=False, **configs):
    return check_dead_letter_topic(cluster, GroupConfig.parse({NAME: "dlq.orders", **configs}), is_read=is_read)


def test_a_subscribed_topic_is_refused_as_dead_letter_topic_before_its_creation(cluster):
    with pytest.raises(DeadLetterTopicSubscribed, match=r"dlq\.orders"):
        check(cluster, is_read=True, **{CREATE: "true"})
    assert "dlq.orders" not in cluster.found


# --- at a join


@pytest.mark.parametrize("fields", [{"topic_pattern": ".*orders"}, {"topics": ("orders", "dlq.orders")}])
def test_a_subscription_that_includes_the_dead_letter_topic_is_refused(service, cluster, fields):
    cluster.add("dlq.orders")
    with pytest.raises(DeadLetterTopicSubscribed):
        service.join(configs={NAME: "dlq.orders"}, **fields)


def test_a_later_member_can_not_subscribe_to_the_dead_letter_topic(service, cluster):
    cluster.add("dlq.orders")
    service.join(configs={NAME: "dlq.orders"})
    with pytest.raises(DeadLetterTopicSubscribed):
        service.join("m2", topics=("dlq.orders",))


def test_another_members_subscribed_topic_is_refused_as_dead_letter_topic(service, cluster):
    cluster.add("dlq.orders")
    service.join("m2", topics=("dlq.orders",))
    with pytest.raises(DeadLetterTopicSubscribed):
        service.join(configs={NAME: "dlq.orders"})


def test_a_lapsed_session_rejoins_after_the_deletion_of_the_dead_letter_topic(service, cluster):
    cluster.add("dlq.orders")
    joined = service.join(configs={NAME: "dlq.orders"})
    cluster.delete("dlq.orders")
    service.join(member_epoch=joined.member_epoch, configs={NAME: "dlq.orders"})


# --- a topic that was read once


ONCE = {NAME: "orders-dlq"}


@pytest.fixture
def once_read(service, cluster):
    """The group read the topic orders-dlq, by a pattern that matched it by mistake; its member has left."""
    cluster.move("orders", 100)
    cluster.add("orders-dlq", end=3)
    service.join(topic_pattern="orders.*", starting_offsets="earliest")
    service.start(service.next().plan_id)
    service.ask(LeaveGroup)
    return service


def configured(service):
    """Set the dead letter topic as an administrator does."""
    return service.admin.handle(AlterGroupConfigs(group_id="billing", set=ONCE, execute=True))


def test_a_topic_that_was_read_once_takes_dead_letters(once_read, cluster):
    once_read.join("m2")
    assert once_read.service.handle(OpenSink(group_id="billing", configs=ONCE)).dead_letter_topic == "orders-dlq"
    once_read.join("m3", configs=ONCE)
    assert configured(once_read).executed


def test_dead_letters_are_written_to_a_topic_that_was_read_once(once_read, cluster):
    configured(once_read)
    backlog = once_read.runtime.call("billing", group_backlog.look(group_backlog.BEGINNING, lambda index: True))
    assert check_dead_letter_topic(cluster, backlog.config, is_read=backlog.reads_dead_letters) == 1


def test_a_member_that_corrects_its_subscription_may_name_the_topic(service, cluster):
    cluster.add("orders-dlq", end=3)
    service.join(topic_pattern="orders.*", starting_offsets="earliest")
    service.join(process="a later process", topics=("orders",), configs=ONCE)


def test_a_topic_of_which_records_are_held_takes_no_dead_letters(service, cluster):
    cluster.add("orders-dlq", end=3)
    service.join(topics=("orders-dlq",), starting_offsets="earliest")
    service.start(service.next().plan_id)
    service.join(process="a later process", topics=("orders",))
    with pytest.raises(DeadLetterTopicSubscribed):
        service.join("m2", topics=("orders",), configs=ONCE)


# --- reserved topics


RESERVED = ("share-group-state", "__consumer_offsets", "__of_some_tool")
KEPT = RESERVED[0]


def set_by(service, door, name):
    """The dead letter topic is set, by this door."""
    named = {NAME: name}
    if door == "a join":
        service.join("m2", configs=named)
    elif door == "a sink":
        service.service.handle(OpenSink(group_id="billing", configs=named))
    else:
        service.admin.handle(AlterGroupConfigs(group_id="billing", set=named, execute=True))


@pytest.mark.parametrize("door", ["a join", "a sink", "an administrator"])
def test_no_door_sets_a_reserved_topic_or_unsets_one_in_use(waiting, cluster, door):
    cluster.add(KEPT)
    before = waiting.service.handle(DescribeGroup(group_id="billing"))
    with pytest.raises(TopicNotWritten, match=rf"{KEPT}.*keeps its own state"):
        set_by(waiting, door, KEPT)
    with pytest.raises(DeadLetterTopicInUse, match=r"10 record.*dlq\.orders.*--force"):
        set_by(waiting, door, "")
    after = waiting.service.handle(DescribeGroup(group_id="billing"))
    assert (after.configs, len(after.members)) == (before.configs, len(before.members))
    with pytest.raises(TopicNotWritten):
        configs({NAME: KEPT})  # of a query's own options


@pytest.mark.parametrize("topic", RESERVED)
def test_the_producer_of_dead_letters_writes_to_no_reserved_topic(topic):
    letter = dead_letter(Origin("orders", 0, 7, "billing", 1), Disposition.REJECTED)
    producer = DeadLetterProducer("127.0.0.1:1", {}, timeout_s=0.1)
    with pytest.raises(TopicNotWritten, match=topic):
        producer.write(topic, 1, [letter])


def test_a_stored_reserved_topic_holds_dead_letters_and_the_group_is_served(service, cluster, tmp_path, caplog):
    """An earlier version stored the name; nobody loses the group by it, and nothing is written there."""
    cluster.add("share-group-state")
    cluster.move("orders", 10)
    service.join(starting_offsets="earliest")
    service.runtime.call("billing", storing({NAME: KEPT}))
    service.close()
    again = Running(tmp_path / "state.db", cluster)
    try:
        again.join(configs={}, starting_offsets="earliest")
        assert again.service.handle(OpenSink(group_id="billing")).dead_letter_topic == ""
        reject(again, 3, 3)
        assert dead_letter_worker(again).work() is PassResult.BLOCKED
        assert again.partitions()["orders", 0].archiving == 1
        assert "Topic share-group-state can take neither dead letters" in caplog.text
    finally:
        again.close()


# --- a topic for which records wait


@pytest.fixture
def waiting(service, cluster):
    """Ten records wait for their dead letters."""
    cluster.add("dlq.orders")
    cluster.move("orders", 10)
    service.join(starting_offsets="earliest", configs={NAME: "dlq.orders"})
    reject(service, 0, 9)
    assert service.partitions()["orders", 0].archiving == 10
    return service


def unset(service, **fields):
    return service.admin.handle(AlterGroupConfigs(group_id="billing", unset=(NAME,), **fields))


@pytest.mark.parametrize("execute", [False, True])
def test_an_administrator_unsets_a_topic_in_use_by_force_alone(waiting, execute):
    with pytest.raises(DeadLetterTopicInUse, match="10 record"):
        unset(waiting, execute=execute)
    assert unset(waiting, execute=execute, force=True).notes == (
        "10 record(s) that wait for their dead letters get none.",
    )


# --- the coordinator's own look, each minute


def test_a_lost_topic_of_a_group_with_members_is_logged_once(service, cluster, caplog):
    look = DeadLetterTopicLook(service.runtime, cluster)
    cluster.add("dlq.orders")
    service.join(configs={NAME: "dlq.orders"})
    look.look()
    assert look.missing == frozenset()
    cluster.delete("dlq.orders")
    for _ in range(2):
        look.look()
        assert look.missing == {"billing"}
    assert [record.getMessage() for record in caplog.records].count(LOST) == 1
    cluster.add("dlq.orders")
    look.look()
    assert look.missing == frozenset()


def test_one_request_looks_at_all_topics_and_a_refusal_hides_none(service, cluster, monkeypatch):
    for number in range(4):
        cluster.add(f"dlq.{number}")
        of = {"group_id": f"group-{number}", "configs": {NAME: f"dlq.{number}"}}
        service.joined(JoinGroup(member_id="m1", process_id="p", query=True, **of))
    cluster.delete("dlq.3")
    asked, refused, topics = [], set(), cluster.topics

    def answer(names):
        asked.append(list(names))
        if refused & set(names):
            raise BrokerRefused(addresses="a:1", what="describe topics", reason="TOPIC_AUTHORIZATION_FAILED")
        return topics(names)

    monkeypatch.setattr(cluster, "topics", answer)
    look = DeadLetterTopicLook(service.runtime, cluster)
    look.look()
    assert (look.missing, asked) == ({"group-3"}, [["dlq.0", "dlq.1", "dlq.2", "dlq.3"]])
    refused.add("dlq.0")
    look.look()
    assert look.missing == {"group-3"}


def test_a_topic_is_not_called_missing_without_members_or_an_answer(service, cluster):
    look = DeadLetterTopicLook(service.runtime, cluster)
    cluster.add("dlq.orders")
    service.join(configs={NAME: "dlq.orders"})
    cluster.delete("dlq.orders")
    cluster.unreachable = True
    look.look()
    assert look.missing == frozenset()
    cluster.unreachable = False
    look.look()
    assert look.missing == {"billing"}
    service.ask(LeaveGroup)
    look.look()
    assert look.missing == frozenset()


def test_a_topic_that_dead_letters_create_is_not_called_missing(service, cluster):
    cluster.add("dlq.orders")
    service.join(configs={NAME: "dlq.orders", CREATE: "true"})
    cluster.delete("dlq.orders")
    look = DeadLetterTopicLook(service.runtime, cluster)
    look.look()
    assert look.missing == frozenset()
