"""A wrong dead letter topic is found when a query starts."""

import pytest

from coordinator.config.resolved import GroupConfig
from coordinator.protocol.errors import (
    BrokerNotReachable,
    DeadLetterTopicMissing,
    DeadLetterTopicNotAuthorized,
    DeadLetterTopicSubscribed,
    GroupIdNotFound,
)
from coordinator.protocol.messages import DescribeGroup
from coordinator.service.dead_letters.topic_check import check_dead_letter_topic
from tests.support.fake_cluster import FakeCluster
from tests.support.running_service import Running

NAME = "errors.deadletterqueue.topic.name"
CREATE = "errors.deadletterqueue.auto.create.topics.enable"


@pytest.fixture
def cluster():
    found = FakeCluster()
    found.add("orders")
    return found


@pytest.fixture
def service(tmp_path, cluster):
    running = Running(tmp_path / "state.db", cluster)
    yield running
    running.close()


def check(cluster, own=(), **configs):
    return check_dead_letter_topic(cluster, GroupConfig.parse({NAME: "dlq.orders", **configs}), own)


def test_the_check_returns_the_number_of_partitions(cluster):
    cluster.add("dlq.orders", partitions=3)

    assert check(cluster) == 3


def test_a_missing_dead_letter_topic_is_named_with_ways_to_create_it(cluster):
    with pytest.raises(DeadLetterTopicMissing, match=rf"dlq\.orders.*kafka-topics\.sh.*{CREATE}=true"):
        check(cluster)
    assert "dlq.orders" not in cluster.found


def test_a_missing_dead_letter_topic_is_created_when_configured(cluster):
    assert check(cluster, **{CREATE: "true"}) == 1
    assert "dlq.orders" in cluster.found


def test_a_dead_letter_topic_without_write_permission_is_named(cluster):
    cluster.add("dlq.orders")
    cluster.read_only.add("dlq.orders")

    with pytest.raises(DeadLetterTopicNotAuthorized, match=r"write to .*dlq\.orders.*ACLs"):
        check(cluster)


def test_a_subscribed_topic_is_refused_as_dead_letter_topic_before_its_creation(cluster):
    with pytest.raises(DeadLetterTopicSubscribed, match=r"dlq\.orders"):
        check(cluster, own={"dlq.orders"}, **{CREATE: "true"})
    assert "dlq.orders" not in cluster.found


# --- at a join


def test_a_join_with_a_missing_dead_letter_topic_creates_no_group(service):
    with pytest.raises(DeadLetterTopicMissing):
        service.join(configs={NAME: "dlq.orders"})
    with pytest.raises(GroupIdNotFound):
        service.service.handle(DescribeGroup(group_id="billing"))


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


def test_a_join_with_a_dead_letter_topic_names_an_unreachable_broker(service, cluster):
    cluster.unreachable = True

    with pytest.raises(BrokerNotReachable):
        service.join(configs={NAME: "dlq.orders"})
