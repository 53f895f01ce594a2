"""A principal that may not do what the Kafka store needs is told which ACLs it lacks; with them, it works."""

import pytest
from confluent_kafka.admin import ResourceType

from coordinator.client.client import CoordinatorClient
from coordinator.protocol.errors import StateTopicNotAuthorized
from coordinator.service.brokers.cluster import EARLIEST, KafkaCluster
from coordinator.service.stores.kafka.group_writer import GroupWriter
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.service.stores.kafka.pruning import Pruning
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC, StateTopic
from tests.support.guarded_broker import ALICE, grant, guarded_broker
from tests.support.state_topics import owner, taken
from tests.support.store_writes import append, snapshot
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("runtime")]

PARTITIONS = 2
NAMED = (
    rf"It needs these ACLs: Create, Describe, .*Write.* on Topic {STATE_TOPIC}, and .* on TransactionalId "
    rf"{STATE_TOPIC}-\* .*share\.state\.store=sqlite:PATH"
)


@pytest.fixture(scope="module")
def guarded():
    with guarded_broker() as broker:
        yield broker


@pytest.fixture
def topic(guarded):
    """The state topic as alice has it."""
    return StateTopic(
        cluster=KafkaCluster(guarded.proxied_bootstrap, ALICE, 15_000),
        bootstrap_servers=guarded.proxied_bootstrap,
        kafka_config=ALICE,
        partitions=PARTITIONS,
        write_timeout_ms=5_000,
        broker_timeout_ms=15_000,
    )


def store_of(topic):
    return KafkaStore(topic, 0, LivingOwner(owner()), updates_per_snapshot=500)


def denied(what):
    return pytest.raises(StateTopicNotAuthorized, match=rf"may not {what}.*{NAMED}")


def until_allowed(done):
    """An ACL that was granted holds a moment later."""

    def allowed():
        try:
            return done() or True
        except StateTopicNotAuthorized:
            return False

    wait_until(allowed, what="the ACL holds")


@pytest.mark.slow
def test_each_missing_acl_is_named_and_all_acls_together_suffice(guarded, topic):
    with denied("create it"):
        topic.ensure()
    with denied("create it"):
        CoordinatorClient.connect(guarded.proxied_bootstrap, ALICE)
    grant(guarded, ResourceType.TOPIC, STATE_TOPIC, "CREATE", "DESCRIBE")
    until_allowed(topic.ensure)
    store = store_of(topic)
    with denied(f"write to it as {STATE_TOPIC}-billing"):
        taken(store)
    grant(guarded, ResourceType.TRANSACTIONAL_ID, f"{STATE_TOPIC}-", "DESCRIBE", "WRITE", prefix=True)
    wait_until(lambda: not refused_to_fence(store), what="the transactional id may be used")
    with denied(f"write to it as {STATE_TOPIC}-billing"):
        taken(store)
    grant(guarded, ResourceType.TOPIC, STATE_TOPIC, "WRITE")
    wait_until(lambda: "read it" in said(store), what="it may write")
    grant(guarded, ResourceType.TOPIC, STATE_TOPIC, "READ")
    until_allowed(lambda: taken(store))
    append(store, {"billing": [b"a", b"b"]})
    snapshot(store, "billing", [b"s"])
    grant(guarded, ResourceType.TOPIC, STATE_TOPIC, "DELETE", "DESCRIBE_CONFIGS")
    pruning = Pruning(topic, lambda: [store], interval_ms=3_600_000)
    try:
        wait_until(lambda: pruning.prune() or log_start(topic) > 0, what="it may delete")
    finally:
        pruning.close()
    until_allowed(topic.ensure)
    assert taken(store)[-1:] == [b"s"]
    store.close()


def test_to_look_into_a_topic_needs_no_acl_on_a_group(guarded):
    name = guarded.create_topic()
    guarded.produce(name, [b"x"] * 3)
    grant(guarded, ResourceType.TOPIC, name, "READ", "DESCRIBE")
    cluster = KafkaCluster(guarded.proxied_bootstrap, ALICE, 15_000)
    wait_until(lambda: cluster.offsets([(name, 0)], EARLIEST), what="it may look")
    assert cluster.existing((name, 0), 0, 99, most=10, read_committed=False).offsets == [0, 1, 2]


def said(store):
    """The error with which a claim of the group is refused."""
    try:
        taken(store)
    except StateTopicNotAuthorized as error:
        return str(error)
    return ""


def refused_to_fence(store):
    writer = GroupWriter(store._topic, 0, "billing")
    try:
        writer.fence()
    except StateTopicNotAuthorized:
        return True
    finally:
        writer.close()
    return False


def log_start(topic):
    return topic.cluster.offsets([(topic.name, 0)], EARLIEST)[topic.name, 0]
