"""The dead letter topic and its configs (KIP-1191, Configuration)."""

from __future__ import annotations

import pytest

from coordinator.config.resolved import GroupConfig
from coordinator.core.looks import view
from coordinator.protocol.errors import (
    ConfigOutOfBounds,
    DeadLetterTopicInUse,
    TopicNotWritten,
)
from coordinator.service.dead_letters.topic_check import check_dead_letter_topic
from tests.kip932.consumers import ACCEPT, REJECT, ShareConsumers
from tests.support.fake_cluster import FakeCluster

TOPIC = "errors.deadletterqueue.topic.name"


@pytest.mark.parametrize("name", ["__dlq", "__consumer_offsets", "a b", "x" * 250])
def test_a_dead_letter_topic_is_no_internal_topic(name: str) -> None:
    """KIP-1191, Public Interfaces: its name does not begin with two underscores, and is a topic's name."""
    with pytest.raises(ConfigOutOfBounds):
        GroupConfig.parse({TOPIC: name})


def test_no_dead_letter_goes_to_a_topic_that_is_reserved() -> None:
    """◆ KIP-1191, Public Interfaces, forbids Kafka's internal topics; ours: the topics of sharegroup, too, wherever a
    dead letter is written."""
    cluster = FakeCluster()
    cluster.add("share-group-state")
    reserved = GroupConfig.parse({TOPIC: "share-group-state"})
    with pytest.raises(TopicNotWritten, match="share-group-state"):
        check_dead_letter_topic(cluster, reserved, is_read=False)


def test_the_dead_letter_topic_is_not_unset_while_records_wait_for_it() -> None:
    """◆ Ours: what waits would be archived without its dead letter."""
    group = ShareConsumers(end=2)
    group.configure(errors_deadletterqueue_topic_name="dlq.orders")
    group.fetch("c1")
    group.acknowledge(REJECT, 0, 1)
    with pytest.raises(DeadLetterTopicInUse, match="2 record"):
        group.configure(errors_deadletterqueue_topic_name="")
    assert group.partition().archiving_count == 2
    group.configure(errors_deadletterqueue_topic_name="dlq.other")


def test_a_topic_that_was_read_once_is_not_read_now() -> None:
    """Ours: it may become the dead letter topic of the group."""
    group = ShareConsumers(end=2)
    group.fetch("c1")
    assert view.reads_topic(group.group, "orders")
    group.acknowledge(ACCEPT, 0, 1)
    group.leave("c1")
    assert "orders" in group.group.topics
    assert not view.reads_topic(group.group, "orders")


def test_waiting_dead_letters_are_not_given_up_by_another_config() -> None:
    """Ours: with errors.deadletterqueue.on.failure=archive what waits is archived without its dead letter, as if the
    topic were unset."""
    group = ShareConsumers(end=2)
    group.configure(errors_deadletterqueue_topic_name="dlq.orders")
    group.fetch("c1")
    group.acknowledge(REJECT, 0, 1)
    with pytest.raises(DeadLetterTopicInUse, match="2 record"):
        group.configure(errors_deadletterqueue_on_failure="archive")
