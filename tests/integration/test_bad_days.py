"""The state topic on bad days: brokers are lost, quotas slow it and the dead letters down, an unclean election cuts it.
No answered append is lost as long as Kafka has it; an error names what Kafka has lost."""

import contextlib

import pytest

from coordinator.dead_letters.record_format import Origin
from coordinator.protocol.errors import ShareGroupError
from coordinator.service.brokers.cluster import LATEST
from coordinator.service.stores.store import StoreOutcomeUnknown, StoreRefused
from coordinator.state_log.group_log import TRANSACTION_BYTES
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_log import messages_of
from tests.support.rejecting import Rejecting, origins
from tests.support.state_topics import Hosts, state_topic, taken
from tests.support.store_writes import append, snapshot
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

WRITE_TIMEOUT_MS = 6_000
SLOW = 500_000
"""A quota allows this number of bytes a second, on an average of ten seconds."""


@pytest.fixture
def quota(kafka):
    """`quota(producer_byte_rate=500_000)`: for all that coordinators write and read, until the test ends."""
    who = ["--bootstrap-server", kafka.bootstrap, "--alter", "--entity-type", "clients", "--entity-name", "sharegroup"]
    names = []

    def limit(**rates):
        names.extend(rates)
        said = ",".join(f"{name}={rate}" for name, rate in rates.items())
        kafka.run_tool("kafka.admin.ConfigCommand", *who, "--add-config", said)

    yield limit
    if names:
        kafka.run_tool("kafka.admin.ConfigCommand", *who, "--delete-config", ",".join(names))


def last(records):
    """The records that a load returns: a snapshot begins anew."""
    found = []
    for data in records:
        found = [] if data is None else [*found, data]
    return found


@pytest.mark.soak
def test_a_snapshot_slowed_by_a_quota_beyond_the_write_timeout_is_written(kafka, quota):
    topic = state_topic(kafka, write_timeout_ms=WRITE_TIMEOUT_MS)
    topic.ensure()
    with contextlib.closing(Hosts(topic)) as hosts:
        store = Member(hosts).store
        append(store, {"billing": [b"a"]})
        records = [bytes([number]) * (TRANSACTION_BYTES // 2) for number in range(20)]
        quota(producer_byte_rate=SLOW, consumer_byte_rate=10 * SLOW)
        snapshot(store, "billing", records)
        append(store, {"billing": [b"b"]})
        assert last(taken(hosts())) == [*records, b"b"]


@pytest.mark.soak
def test_appends_and_loads_under_quotas_are_all_answered(kafka, quota):
    topic = state_topic(kafka, write_timeout_ms=WRITE_TIMEOUT_MS)
    topic.ensure()
    with contextlib.closing(Hosts(topic)) as hosts:
        store = Member(hosts).store
        quota(producer_byte_rate=SLOW, consumer_byte_rate=SLOW)
        records = [bytes([number]) * (SLOW // 2) for number in range(24)]
        for record in records:
            append(store, {"billing": [record]})
        assert taken(hosts()) == records


@pytest.mark.soak
def test_dead_letters_under_a_produce_quota_are_all_written(kafka, topic, quota, unique, tmp_path):
    """Their writer and the coordinator have one client id, which the quota is for."""
    orders, queue, count = topic("orders"), topic("dlq"), 400
    kafka.produce(orders, [b"%d" % n + b"x" * 10_000 for n in range(count)])
    quota(producer_byte_rate=SLOW // 2)
    group = Rejecting(kafka.bootstrap, tmp_path / "state.db", unique("group"), orders, dlq_topic_name=queue)
    with contextlib.ExitStack() as stack:
        stack.callback(group.stop)
        group.reject_all(count)
        group.wait_filed(count)
        found = origins(messages_of(kafka.bootstrap, queue))
        assert set(found) == {Origin(orders, 0, n, group.group, 1) for n in range(count)}


class Member:
    """Appends to a group as long as it takes, and knows what was answered."""

    def __init__(self, hosts):
        self.hosts, self.answered = hosts, []
        self.store = hosts()
        wait_until(self._loaded, what="the group is loaded")

    def append(self, data):
        """Whether it was answered; after a failure the group is loaded again, as the runtime does."""
        try:
            append(self.store, {"billing": [data]})
        except (StoreRefused, StoreOutcomeUnknown, ShareGroupError):
            self._loaded()
            return False
        self.answered.append(data)
        return True

    def append_until_answered(self, data):
        wait_until(lambda: self.append(data), what=f"{data} is answered")

    def all_committed(self):
        topic = self.store.topic
        return topic.offset(0, LATEST, read_committed=True) == topic.offset(0, LATEST)

    def kept(self):
        """The records that another process loads."""
        found = []

        def loaded():
            with contextlib.suppress(StoreRefused, ShareGroupError):
                found[:] = [taken(self.hosts())]
            return bool(found)

        wait_until(loaded, what="it is loaded")
        return [data for data in found[0] if data in self.answered]

    def _loaded(self):
        try:
            taken(self.store)
        except (StoreRefused, ShareGroupError):
            return False
        return True


@pytest.fixture
def cluster():
    """A broker with the controller and what Kafka keeps of transactions, and two more."""
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(KafkaBroker(heap="320m"))
        one.produce_transaction(one.create_topic(), [b"x"])  # so that __transaction_state is there, and stays
        others = [stack.enter_context(KafkaBroker(heap="320m", joins=one, node=node)) for node in (2, 3)]
        yield one, *others


def hosts_on(one, replicas, **configs):
    name = one.create_topic(None, replicas=replicas, retention_ms=-1, max_message_bytes=16 * 1024 * 1024, **configs)
    return contextlib.closing(Hosts(state_topic(one, name, write_timeout_ms=WRITE_TIMEOUT_MS)))


@pytest.mark.soak
def test_appends_succeed_with_one_lost_replica_of_three_and_fail_with_two(cluster):
    one, two, three = cluster
    with hosts_on(one, [2, 3, 1], min_insync_replicas=2) as hosts:
        member = Member(hosts)
        member.append_until_answered(b"all")
        two.kill()
        member.append_until_answered(b"one lost")
        three.kill()
        wait_until(lambda: not member.append(b"none"), what="the loss is noticed")
        lost = len(member.answered)
        assert not any(member.append(b"two lost") for _ in range(3))
        assert len(member.answered) == lost
        two.start()
        member.append_until_answered(b"one is back")
        assert member.kept() == member.answered


@pytest.mark.soak
def test_an_owner_continues_from_the_shorter_log_of_an_unclean_election(cluster):
    one, two, three = cluster
    with hosts_on(one, [2, 3], min_insync_replicas=1, unclean_leader_election_enable="true") as hosts:
        member = Member(hosts)
        member.append_until_answered(b"both")
        wait_until(member.all_committed, what="the markers are on both")  # that comes after the answer
        three.kill()
        for number in range(5):
            member.append_until_answered(b"two alone %d" % number)
        two.kill()
        three.start()
        member.append_until_answered(b"three alone")
        assert member.kept() == [b"both", b"three alone"], "what Kafka lost is lost; nothing else is"
        two.start()
        assert member.kept() == [b"both", b"three alone"]
