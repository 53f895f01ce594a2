"""A coordinator finds its state topic deleted, or finds that it was not."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordinator.protocol.errors import StateTopicMissing, StateTopicNotAuthorized, StateTopicUnfit
from coordinator.service import open_state
from coordinator.service.open_state import KafkaState
from coordinator.service.runtime.event_loop import PartitionedRuntime
from coordinator.service.stores.kafka.state_topic import StateTopic


@dataclass
class Topic:
    """A state topic whose next looks find what `gone` says."""

    topic_id: str
    partitions: int = 50
    name: str = "share-group-state"
    gone: bool = False

    def partition_of(self, group_id):
        return self.partitions - 1

    def verify(self):
        if self.gone:
            raise StateTopicMissing(topic=self.name, what="was deleted")


class Store:
    def __init__(self, topic):
        self.topic, self.error = topic, None

    def topic_is_gone(self, error):
        self.error = error


@pytest.fixture
def served():
    """A coordinator's state with one store, without threads."""
    made = KafkaState.__new__(KafkaState)
    made._topic = made._wanted = Topic("old")
    made._topic_is_gone = False
    made._stores = {3: Store(made._topic)}
    made.runtime = PartitionedRuntime(made._topic.partition_of, lambda number: None)
    return made


def test_while_the_topic_is_the_same_nothing_happens(served):
    served._look_at_topic()
    assert served._stores[3].error is None


def test_a_deleted_state_topic_is_replaced_by_a_new_topic(served, monkeypatch):
    served._topic.gone, before = True, served._stores[3]
    monkeypatch.setattr(open_state, "prepared", lambda wanted: Topic("new", 3))
    served._look_at_topic()
    assert isinstance(before.error, StateTopicMissing)
    assert (served._topic.topic_id, served.runtime._partition_of("billing"), served._stores) == ("new", 2, {})


def test_members_get_the_error_of_recreating_the_state_topic(served, monkeypatch):
    served._topic.gone = True

    def denied(wanted):
        raise StateTopicNotAuthorized(what="create it", topic=wanted.name)

    monkeypatch.setattr(open_state, "prepared", denied)
    with pytest.raises(StateTopicNotAuthorized):
        served._look_at_topic()
    assert isinstance(served._stores[3].error, StateTopicNotAuthorized)


def test_a_topic_that_was_missed_for_a_moment_is_served_again(served, monkeypatch):
    """A broker that does not know of it yet; its id is the same afterwards."""
    served._topic.gone = True

    def missing(wanted):
        raise StateTopicMissing(topic=wanted.name, what="was deleted")

    monkeypatch.setattr(open_state, "prepared", missing)
    with pytest.raises(StateTopicMissing):
        served._look_at_topic()
    served._topic.gone, before = False, served._topic
    monkeypatch.setattr(open_state, "prepared", lambda wanted: Topic("old"))
    served._look_at_topic()
    assert served._topic is not before and served._stores == {}, "groups are loaded anew, from the log that is there"
    assert not served._topic_is_gone


@pytest.mark.parametrize(
    "code", [KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG, KafkaError.UNSUPPORTED_VERSION]
)
def test_a_refused_topic_creation_names_the_sqlite_store(code):
    """Such as a largest max.message.bytes."""
    asked = StateTopic(
        cluster=SimpleNamespace(),
        bootstrap_servers="service:9092",
        kafka_config={},
        partitions=50,
        write_timeout_ms=5_000,
        broker_timeout_ms=15_000,
    )

    def refuse():
        raise KafkaException(KafkaError(code, "too large for this service"))

    with pytest.raises(StateTopicUnfit, match=r"do not create it .*too large.*share\.state\.store=sqlite:PATH"):
        asked._call("create it", refuse)
