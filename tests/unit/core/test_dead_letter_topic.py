"""The dead letter topic and its configs (KIP-1191, Configuration)."""

from __future__ import annotations

import pytest

from coordinator.config.resolved import GroupConfig
from coordinator.protocol.errors import ConfigOutOfBounds, DeadLetterTopicMissing, DeadLetterTopicSubscribed
from coordinator.service.dead_letters.topic_check import check_dead_letter_topic
from tests.kip932.consumers import REJECT, ShareConsumers
from tests.support.fake_cluster import FakeCluster
from tests.support.sink_driver import DLQ

TOPIC = "errors.deadletterqueue.topic.name"


def test_without_a_dead_letter_topic_records_are_archived_as_before() -> None:
    """KIP-1191, Compatibility, Deprecation, and Migration Plan: a group that names no dead letter topic behaves as in
    KIP-932."""
    group = ShareConsumers(end=2)
    group.fetch("c1")
    assert group.acknowledge(REJECT, 0, 1) == "NONE"
    assert (group.states(), group.window()) == ([], (2, 2))
    assert group.partition().archived_total == 2


def test_a_group_can_set_its_dead_letter_queue_at_any_time() -> None:
    """KIP-1191, Public Interfaces: the topic is a dynamic configuration of the group; it holds for what is given up
    from then on."""
    group = ShareConsumers(end=2)
    group.fetch("c1")
    group.acknowledge(REJECT, 1)
    group.configure(errors_deadletterqueue_topic_name="dlq.orders")
    group.acknowledge(REJECT, 0)
    assert group.states() == ["0 ARCHIVING 1", "1 ARCHIVED 1"]


@pytest.mark.parametrize(
    ("key", "default"),
    [
        (TOPIC, ""),
        ("errors.deadletterqueue.copy.record.enable", True),
        ("errors.deadletterqueue.auto.create.topics.enable", False),
    ],
)
def test_configs_have_the_kips_names_and_defaults(key: str, default: object) -> None:
    """KIP-1191, Public Interfaces: their names and defaults. Ours copies the record unless told not to (Kafka: false),
    since a dead letter without it can't be redriven."""
    assert getattr(GroupConfig.parse(), key.replace(".", "_")) == default


@pytest.mark.parametrize("name", ["__dlq", "__consumer_offsets", "a b", "x" * 250])
def test_a_dead_letter_topic_is_no_internal_topic(name: str) -> None:
    """KIP-1191, Public Interfaces: its name does not begin with two underscores, and is a topic's name."""
    with pytest.raises(ConfigOutOfBounds):
        GroupConfig.parse({TOPIC: name})


def test_a_missing_dead_letter_topic_is_made_only_where_that_is_allowed() -> None:
    """KIP-1191, Public Interfaces, auto-creation: off by default. Ours says what is missing when a query or a sink
    starts, not at the first dead letter."""
    cluster = FakeCluster()
    with pytest.raises(DeadLetterTopicMissing):
        check_dead_letter_topic(cluster, GroupConfig.parse(DLQ), ())
    allowed = {**DLQ, "errors.deadletterqueue.auto.create.topics.enable": "true"}
    assert check_dead_letter_topic(cluster, GroupConfig.parse(allowed), ()) == 1


def test_a_group_does_not_deliver_its_own_dead_letters() -> None:
    """KIP-1191, Proposed Changes; ours: a dead letter queue that its own group subscribes to would be a circle."""
    cluster = FakeCluster()
    cluster.add("dlq.orders")
    with pytest.raises(DeadLetterTopicSubscribed):
        check_dead_letter_topic(cluster, GroupConfig.parse(DLQ), ("orders", "dlq.orders"))
