"""The state topic is deleted, or made anew, under running coordinators: it is named, nothing is served from memory, and
all goes on by itself with groups that begin anew."""

import contextlib

import pytest

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.errors import ForeignPlan, GroupIdNotFound, StateTopicMissing
from coordinator.protocol.messages import DescribeGroup, NextPlan, StartPlan
from coordinator.service.stores.kafka.partition_count import prepared
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from coordinator.service.stores.store import StoreOutcomeUnknown
from tests.support.kafka_log import messages_of
from tests.support.standalone import two_coordinators
from tests.support.state_topics import Hosts, state_topic, taken
from tests.support.store_writes import append
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

RECORDS = 100
FAST = {"share.coordinator.metadata.refresh.ms": "500"}


@pytest.fixture
def client(first, runtime):
    """Of a coordinator on demand of this test's own."""
    client = CoordinatorClient.connect(first.bootstrap, configs=FAST)
    yield client
    client.close()


@pytest.fixture
def standalone(first, tmp_path):
    """A client of two standalone coordinators."""
    with two_coordinators(tmp_path, first.bootstrap, FAST) as (_, client):
        yield client


def delete(broker):
    broker.delete_topic(STATE_TOPIC)


def delete_and_make_anew(broker):
    """By hand, and with another number of partitions."""
    broker.recreate_topic(STATE_TOPIC, 3, retention_ms=-1, max_message_bytes=16 * 1024 * 1024)


class Query:
    """A member of a group that has completed a plan and holds the next one."""

    def __init__(self, client, broker, group_id):
        self.topic = broker.create_topic()
        broker.produce(self.topic, [b"x"] * RECORDS)
        self.client, self.group_id = client, group_id
        self.session = self.joined("m1")
        done = self.session.call(lambda who: NextPlan(**who, max_records=10)).plan
        self.session.call(lambda who: StartPlan(**who, plan_id=done.plan_id))
        self.plan = self.session.call(lambda who: NextPlan(**who, start=done.plan_id, max_records=10)).plan.plan_id
        self.session.call(lambda who: StartPlan(**who, plan_id=self.plan))

    def joined(self, member_id):
        return MemberSession(self.client, self.group_id, member_id, topics=(self.topic,), starting_offsets="earliest")

    def is_refused_by_name(self):
        """As it runs, and when it is started again from its checkpoint."""
        with pytest.raises((GroupIdNotFound, ForeignPlan), match=r"[Ss]tart the query with a new checkpointLocation"):
            self.session.call(lambda who: NextPlan(**who, start=self.plan, max_records=10))
        with (
            contextlib.closing(self.joined("m1")) as again,
            pytest.raises(ForeignPlan, match="Start the query with a new checkpointLocation"),
        ):
            again.call(lambda who: NextPlan(**who, start=self.plan, max_records=10))

    def begins_anew(self):
        """With a new checkpoint it has all records."""
        with contextlib.closing(self.joined("m2")) as session:
            plan = session.call(lambda who: NextPlan(**who, max_records=RECORDS)).plan
            assert sum(r.last - r.first + 1 for p in plan.partitions for r in p.ranges) == RECORDS


def check(client, broker, unique, mishap):
    running, idle = (Query(client, broker, unique(name)) for name in ("running", "idle"))
    idle.session.close()
    mishap(broker)
    running.is_refused_by_name()
    running.session.close()
    running.begins_anew()
    idle.is_refused_by_name()
    late = Query(client, broker, unique("late"))
    assert client.call(DescribeGroup(group_id=late.group_id)).partitions
    late.session.close()


@pytest.mark.slow
@pytest.mark.parametrize("mishap", [delete, pytest.param(delete_and_make_anew, marks=pytest.mark.soak)])
def test_a_coordinator_on_demand_uses_a_new_topic_and_refuses_old_checkpoints(client, first, unique, mishap):
    pid = client.endpoint_of("").pid
    check(client, first, unique, mishap)
    if (
        client.endpoint_of("").pid != pid
    ):  # right where it stood still for seconds alone: clients start another one then
        log = client._directory.log_path
        wait_until(lambda: "has taken this coordinator's place" in log.read_text(), what="it says who replaced it")


@pytest.mark.slow
@pytest.mark.parametrize("mishap", [pytest.param(delete, marks=pytest.mark.soak), delete_and_make_anew])
def test_standalone_coordinators_continue_in_a_new_topic_and_refuse_old_checkpoints(standalone, first, unique, mishap):
    check(standalone, first, unique, mishap)


def test_nothing_is_written_from_memory_into_a_recreated_topic(first):
    topic = prepared(state_topic(first))
    with contextlib.closing(Hosts(topic)) as hosts:
        store = hosts("one")
        taken(store)
        append(store, {"billing": [b"a"]})
        first.delete_topic(topic.name)
        first.create_topic(topic.name, retention_ms=-1)

        def refused():
            try:
                append(store, {"billing": [b"b"]})
            except StoreOutcomeUnknown:
                return True

        wait_until(refused, what="the producer has met the new topic")
        assert messages_of(first.bootstrap, topic.name) == []
        with pytest.raises(StateTopicMissing, match="was deleted and created again"):
            taken(store)
