"""◆ Dead letters and their topic (KIP-1191): who waits for them, and which topics and configs are refused."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from coordinator.config.resolved import GroupConfig
from coordinator.core.commands import acquisition
from coordinator.core.looks import view
from coordinator.protocol.errors import ConfigOutOfBounds, DeadLetterTopicInUse, TopicNotWritten
from coordinator.service.dead_letters.topic_check import check_dead_letter_topic
from tests.kip932.consumers import ACCEPT, REJECT, ShareConsumers
from tests.support.fake_cluster import FakeCluster
from tests.support.group_driver import GroupDriver, fetched, offsets
from tests.support.sink_driver import DLQ, batch, said


def test_a_dead_letter_of_an_unknown_partition_is_ignored() -> None:
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 0, REJECT))
    group.complete(plan)
    before = len(group.log)
    group.file(0, 0, partition=9)
    assert (len(group.log), group.partition().archiving_count) == (before, 1)


def waiting(most: int) -> tuple[GroupDriver, str]:
    """A query has completed a plan of four records, of which it rejected as many as ``most``; ten more are there."""
    group, plan = batch(4, **DLQ)
    group.stage(said(0, most - 1, REJECT))
    group.ends[0] += 10
    group.complete(plan)
    assert group.partition().archiving_count == most
    return group, plan


@patch.object(acquisition, "MOST_ARCHIVING", 3)
def test_a_query_acquires_nothing_while_too_many_dead_letters_wait() -> None:
    group, plan = waiting(3)
    reply = group.next(plan)
    assert (reply.plan.plan_id, reply.held_back) == ("", 3)
    group.file(0, 0)
    assert offsets(group.next(plan)) == 10


@patch.object(acquisition, "MOST_ARCHIVING", 3)
def test_a_share_consumer_acquires_nothing_while_too_many_dead_letters_wait() -> None:
    group, _ = waiting(3)
    group.join("c1", query=False)
    assert fetched(group, 10) == []
    group.file(0, 0)
    assert fetched(group, 10) == [(4, 13, 1)]


@patch.object(acquisition, "MOST_ARCHIVING", 3)
def test_a_plan_that_was_acquired_before_too_many_waited_is_replayed() -> None:
    group, plan = waiting(2)
    second = group.next(plan).plan.plan_id
    group.start(second)
    group.join("m2")
    other = group.acquire("", "m2").plan.plan_id
    assert other == ""
    group.stage(said(4, 6, REJECT))
    assert offsets(group.restart(second)) == 10, "its records are held already"


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


def two_wait() -> ShareConsumers:
    """A group of which two records wait for their dead letters."""
    group = ShareConsumers(end=2)
    group.configure(errors_deadletterqueue_topic_name="dlq.orders")
    group.fetch("c1")
    group.acknowledge(REJECT, 0, 1)
    return group


def test_the_dead_letter_topic_is_not_unset_while_records_wait_for_it() -> None:
    """◆ Ours: what waits would be archived without its dead letter."""
    group = two_wait()
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
    group = two_wait()
    with pytest.raises(DeadLetterTopicInUse, match="2 record"):
        group.configure(errors_deadletterqueue_on_failure="archive")
