"""The dead letter topic lies on a second broker, and that broker goes away: the source's records flow on, nothing is
archived without its dead letter, and all dead letters are written when it is back."""

import contextlib

import pytest

from coordinator.dead_letters.record_format import Origin
from coordinator.protocol.errors import DeadLetterTopicMissing, UnknownTopic
from coordinator.protocol.values import AcknowledgeType
from coordinator.service.dead_letters import dispatcher
from tests.support.kafka_log import messages_of
from tests.support.rejecting import Rejecting, origins
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.broker]

RECORDS = 2_000


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(dispatcher, "LONGEST_BACKOFF_S", 1.0)


@pytest.fixture
def open_group(first, unique, tmp_path):
    """A member of a new group: `open_group(orders, queue)`."""
    opened = []

    def new(orders, queue):
        def joined():
            with contextlib.suppress(UnknownTopic, DeadLetterTopicMissing):  # one of the brokers may not know it yet
                return Rejecting(first.bootstrap, tmp_path / "state.db", unique("group"), orders, dlq_topic_name=queue)

        opened.append(wait_until(joined, what="the group is joined"))
        return opened[-1]

    yield new
    for group in opened:
        group.stop()


@pytest.mark.soak  # its short form is the outage of test_dead_letters.py
def test_the_dead_letter_brokers_outage_stops_no_query_and_loses_nothing(first, second, unique, open_group, soon):
    queue = first.create_topic(unique("dlq"), 2, node=2)
    orders = first.create_topic(unique("orders"), node=1)
    group = open_group(orders, queue)
    first.produce(orders, [str(n) for n in range(RECORDS)])
    second.pause()

    group.reject_all(RECORDS)
    wait_until(
        lambda: any(p.worker.attempts >= 2 for p in list(group.coordinator.dispatcher._slots.values())),
        what="it was tried again",
    )
    assert (group.archiving(), group.archived()) == (RECORDS, 0)
    assert not group.coordinator.dispatcher.may_rest()

    first.produce(orders, ["later"] * 10)
    assert wait_until(group.acquire) == 10
    group.acknowledge(AcknowledgeType.ACCEPT)
    assert group.archiving() == RECORDS

    second.resume()
    group.wait_filed(RECORDS)
    found = origins(messages_of(first.bootstrap, queue))
    assert set(found) == {Origin(orders, 0, n, group.group, 1) for n in range(RECORDS)}


@pytest.mark.soak
def test_an_unreachable_partition_of_the_queue_delays_no_other_partition(first, second, unique, open_group, soon):
    """Dead letters of source partition 0 go to the broker that is away, those of partition 1 to the other."""
    queue = first.create_topic(unique("dlq"), nodes=[2, 1])
    orders = first.create_topic(unique("orders"), 2, node=1)
    for partition in (0, 1):
        first.produce(orders, ["x"] * RECORDS, partition=partition)
    group = open_group(orders, queue)
    second.kill()
    group.reject_all(2 * RECORDS)

    wait_until(lambda: group.archiving() == RECORDS, what="the dead letters that can be are written")
    assert {p.partition: p.archiving for p in group.partitions()} == {0: RECORDS, 1: 0}

    second.start()
    group.wait_filed(2 * RECORDS)
    assert len(origins(messages_of(first.bootstrap, queue))) == 2 * RECORDS
