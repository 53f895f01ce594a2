"""A coordinator on demand has the Kafka credentials of the query that started it. When they no longer hold, the next
query's take their place; whoever has none that hold is told so at once, in librdkafka's words."""

import contextlib
import uuid

import psutil
import pytest
from confluent_kafka.admin import ResourceType

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.errors import BrokerSecurityFailed
from coordinator.protocol.messages import Heartbeat, NextPlan, StartPlan
from tests.support.coordinator_process import has_ended
from tests.support.guarded_broker import ALICE, change_password, grant, guarded_broker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

SECRET = "s3cret"
REFUSED = "Authentication failed: Invalid username or password"
EVERYTHING = (
    (ResourceType.TOPIC, "*"),
    (ResourceType.TRANSACTIONAL_ID, "*"),
    (ResourceType.GROUP, "*"),
    (ResourceType.BROKER, "kafka-cluster"),
)


class Alice:
    """Her credentials on a broker of the module's own."""

    def __init__(self, broker):
        self.broker = broker
        self.now = ALICE

    def rotate(self):
        """Gives Alice another password, and cuts every connection that was made with the one before."""
        self.now = change_password(self.broker, f"{SECRET}-{uuid.uuid4().hex}")
        return self.now


@pytest.fixture(scope="module")
def alice():
    with guarded_broker() as broker:
        for kind, name in EVERYTHING:
            grant(broker, kind, name, "ALL")
        yield Alice(broker)


@pytest.fixture
def query(alice, unique, runtime):
    """The query m1 of one group, with these credentials, a new process each time: `query(ALICE)`."""
    topic, group, opened = alice.broker.create_topic(), unique("group"), contextlib.ExitStack()
    alice.broker.produce(topic, [b"x"] * 20)

    def new(credentials, configs=None):
        client = CoordinatorClient.connect(alice.broker.proxied_bootstrap, credentials, configs=configs)
        opened.callback(client.close)
        session = MemberSession(client, group, "m1", topics=(topic,), starting_offsets="earliest")
        opened.callback(session.close)
        return session

    with opened:
        yield new


def held(plan):
    return [(r.first, r.last) for p in plan.partitions for r in p.ranges]


@pytest.mark.slow
def test_after_a_rotation_a_query_with_the_new_password_keeps_its_batch(alice, query, runtime):
    old = query(alice.now)
    old_coordinator = psutil.Process(old._client.endpoint_of("").pid)
    plan = old.call(lambda who: NextPlan(**who, max_records=10)).plan
    old.call(lambda who: StartPlan(**who, plan_id=plan.plan_id))
    new = query(alice.rotate())
    assert held(new.call(lambda who: StartPlan(**who, plan_id=plan.plan_id)).plan) == [(0, 9)]
    assert held(new.call(lambda who: NextPlan(**who, start=plan.plan_id, max_records=100)).plan) == [(10, 19)]
    assert new._client.endpoint_of("").pid != old_coordinator.pid
    wait_until(lambda: has_ended(old_coordinator), what="the old coordinator has left")
    (log,) = (path.read_text() for path in runtime.glob("coordinator-*.log"))
    assert "asked to leave: the brokers refuse its credentials" in log
    secrets = (SECRET, ALICE["sasl.password"])
    assert not [path for path in runtime.iterdir() for each in secrets if each in path.name + path.read_text()]


@pytest.mark.slow
def test_a_query_with_a_rotated_password_fails_before_its_write_is_late(alice, query):
    old = query(alice.now, {"share.coordinator.write.timeout.ms": "400000"})
    alice.rotate()
    with pytest.raises(BrokerSecurityFailed, match=REFUSED) as raised:
        old.call(lambda who: NextPlan(**who, max_records=100))
    assert not any(each in str(raised.value) for each in (SECRET, ALICE["sasl.password"]))
    with pytest.raises(BrokerSecurityFailed):
        old.call(lambda who: Heartbeat(**who))
