"""The service on a real broker: ids, offsets and what happens to topics, as KafkaCluster sees them."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.errors import BrokerNotReachable
from coordinator.protocol.messages import NextPlan, StartPlan
from coordinator.service.brokers.cluster import EARLIEST, LATEST, KafkaCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def cluster(kafka):
    return KafkaCluster(kafka.bootstrap, {}, 15_000)


@pytest.fixture
def join(kafka, unique, tmp_path):
    """Sessions in one group on the real broker: `join(topic)`."""
    client = CoordinatorClient.connect(
        kafka.bootstrap,
        state_store=f"sqlite:{tmp_path / 'state.db'}",
        configs={"share.coordinator.metadata.refresh.ms": "100"},
    )
    group, sessions = unique("group"), []

    def new(*topics, member="m1", **options):
        options.setdefault("starting_offsets", "earliest")
        sessions.append(MemberSession(client, group, member, topics=topics, **options))
        return sessions[-1]

    yield new
    for session in sessions:
        session.close(leave=True)
    client.close()


def held(plan):
    return {p.partition: [(r.first, r.last) for r in p.ranges] for p in plan.partitions}


def test_topics_have_their_ids(cluster, kafka, topic):
    name = topic(partitions=3)
    assert cluster.gives_topic_ids()
    assert cluster.topics([name, "does-not-exist"]) == {name: (name, kafka.topic_id(name), 3)}
    assert name in cluster.topic_names()


def test_offsets_are_those_of_the_log(cluster, kafka, topic):
    name = topic(partitions=2)
    kafka.produce(name, [b"x"] * 10, partition=0)
    kafka.delete_records(name, 4)
    wheres = [(name, 0), (name, 1), (name, 9), ("does-not-exist", 0)]
    assert cluster.offsets(wheres, EARLIEST) == {(name, 0): 4, (name, 1): 0}
    assert cluster.offsets(wheres, LATEST) == {(name, 0): 10, (name, 1): 0}
    assert cluster.offsets(wheres[:2], 1) == {(name, 0): 4, (name, 1): 0}
    writer = kafka.open_transaction(name, [b"open"], partition=1)
    assert cluster.offsets(wheres[:2], LATEST, read_committed=True) == {(name, 0): 10, (name, 1): 0}
    writer.abort_transaction(30)
    # The marker is written soon after the abort was answered.
    stable = {(name, 0): 10, (name, 1): 2}
    wait_until(lambda: cluster.offsets(wheres[:2], LATEST, read_committed=True) == stable, what="its end is stable")


def test_partitions_that_are_added_begin_at_their_earliest(join, kafka, topic):
    name = topic()
    session = join(name, starting_offsets="latest")
    kafka.add_partitions(name, 2)
    kafka.produce(name, [b"x"] * 3, partition=1)
    assert held(session.call(lambda who: NextPlan(**who, wait_ms=20_000)).plan) == {1: [(0, 2)]}


def test_a_recreated_topic_loses_the_old_records_and_begins_again(join, kafka, topic):
    name = topic()
    kafka.produce(name, [b"x"] * 10)
    session = join(name)
    plan = session.call(lambda who: NextPlan(**who, max_records=4)).plan  # 4 to 9 were never acquired
    kafka.delete_topic(name)
    kafka.create_topic(name)
    kafka.produce(name, [b"y"] * 3)
    reply = session.call(lambda who: StartPlan(**who, plan_id=plan.plan_id, fail_on_data_loss=False))
    assert [(left.first, left.last) for left in reply.data_loss] == [(0, 9)]
    following = session.call(lambda who: NextPlan(**who, start=plan.plan_id, wait_ms=20_000)).plan
    assert held(following) == {0: [(0, 2)]}
    assert following.partitions[0].topic_id == kafka.topic_id(name)


def test_a_deleted_topics_loss_is_reported_without_a_record_to_read(join, kafka, topic):
    name = topic()
    kafka.produce(name, [b"x"] * 10)
    session = join(name)
    plan = session.call(lambda who: NextPlan(**who, max_records=4)).plan
    session.call(lambda who: StartPlan(**who, plan_id=plan.plan_id))
    kafka.delete_topic(name)

    def told():
        return session.call(lambda who: NextPlan(**who, start=plan.plan_id, wait_ms=1_000)).plan

    following = wait_until(lambda: (found := told()).plan_id and found, what="the topic is found to be gone")
    reply = session.call(lambda who: StartPlan(**who, plan_id=following.plan_id))
    assert [(out.first, out.last) for out in reply.data_loss] == [(4, 9)]


@pytest.mark.slow
@pytest.mark.parametrize("at", [EARLIEST, LATEST, 1])
def test_a_broker_that_hangs_is_named_in_time_and_gives_no_offset(kafka, topic, at):
    name = topic()
    cluster = KafkaCluster(kafka.bootstrap, {"sasl.password": "s3cret"}, 3_000)
    assert cluster.gives_topic_ids()

    def answered():
        with contextlib.suppress(BrokerNotReachable):
            return cluster.offsets([(name, 0)], at)

    wait_until(answered, what="it answers")
    kafka.pause()
    try:
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(cluster.offsets, [(name, 0)], at)
            raised = answer.exception(60)
        assert isinstance(raised, BrokerNotReachable), answer.result()
    finally:
        kafka.resume()
    assert f"{kafka.bootstrap} could be reached within 3000 ms" in str(raised)
    assert "s3cret" not in str(raised)
    assert wait_until(answered, what="it answers again") == {(name, 0): 0}


def test_a_topic_requested_before_its_creation_is_found_after_its_creation(cluster, kafka, topic, unique):
    name, other = unique("late"), topic()
    cluster.topic_names()  # from here on librdkafka answers for unknown topics by itself
    for _ in range(2):
        assert cluster.offsets([(name, 0), (other, 0)], LATEST) == {(other, 0): 0}
    kafka.create_topic(name)
    both = {(name, 0): 0, (other, 0): 0}
    wait_until(lambda: cluster.offsets([(name, 0), (other, 0)], LATEST) == both, what="it is found")


def existing(cluster, *asked, **options):
    """The answer; a broker that is late is asked again, as the coordinator does."""

    def answered():
        with contextlib.suppress(BrokerNotReachable):
            return cluster.existing(*asked, **options)

    return wait_until(answered, what="the broker answers")


def test_existing_returns_the_offsets_that_have_records(cluster, kafka, topic):
    name = topic()
    where = (name, 0)
    kafka.produce(name, [b"x"] * 3)
    kafka.produce_transaction(name, [b"x"] * 2, commit=False)
    kafka.produce_transaction(name, [b"x"] * 2)
    everything = {"most": 100, "read_committed": False}
    assert existing(cluster, where, 0, 99, **everything) == ([0, 1, 2, 3, 4, 6, 7], 0, 9)
    assert existing(cluster, where, 0, 99, most=100, read_committed=True) == ([0, 1, 2, 6, 7], 0, 9)
    assert existing(cluster, where, 2, 6, **everything) == ([2, 3, 4, 6], 2, 7)
    assert existing(cluster, where, 0, 99, most=1, read_committed=True) == ([0], 0, 1)
    assert existing(cluster, where, 5, 5, **everything) == ([], 5, 6)
    kafka.delete_records(name, 4)
    assert existing(cluster, where, 0, 6, **everything) == ([4, 6], 4, 7)
    assert existing(cluster, where, 0, 2, **everything) == ([], 0, 0), "removed, and no gap"


def test_offsets_beyond_the_visible_log_end_are_unknown(cluster, kafka, topic):
    name = topic()
    where = (name, 0)
    kafka.produce(name, [b"x"] * 10)
    for committed in (False, True):
        for first in (10, 11, 500):
            assert existing(cluster, where, first, first, most=1, read_committed=committed) == ([], first, first)
        assert existing(cluster, where, 8, 12, most=10, read_committed=committed) == ([8, 9], 8, 10)
    writer = kafka.open_transaction(name, [b"open"])
    assert existing(cluster, where, 9, 12, most=10, read_committed=True) == ([9], 9, 10)
    assert existing(cluster, where, 10, 10, most=1, read_committed=True) == ([], 10, 10)
    writer.abort_transaction(30)


def test_a_log_that_cannot_be_read_is_named(kafka, topic):
    name = topic()
    kafka.produce(name, [b"x"])
    behind = KafkaCluster(kafka.records_proxied_bootstrap, {}, 1_000)
    kafka.proxy.cut()
    try:
        with pytest.raises(BrokerNotReachable):
            behind.existing((name, 0), 0, 0, most=1, read_committed=False)
    finally:
        kafka.proxy.heal()
