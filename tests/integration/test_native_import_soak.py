"""The proof of an import from Kafka's own share groups: random outcomes there, the rest here, each record once.

A record that was accepted or rejected there does not come here. Every other record comes here once, with a higher
delivery count than that of its last release."""

from __future__ import annotations

import random
from collections import Counter

import confluent_kafka
import pytest

from sharegroup import ShareConsumer
from sharegroup.__main__ import run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

ACCEPT, RELEASE, REJECT = (confluent_kafka.AcknowledgeType(kind) for kind in (1, 2, 3))
LAST_RELEASE = 3
"""A record is released up to this delivery: Kafka archives it at the fifth."""


class Native:
    """A share group of Kafka's own on ``topic``, and what became of each record there, by partition and offset."""

    def __init__(self, kafka, group, topic, rng):
        self.kafka, self.group, self.topic, self.rng = kafka, group, topic, rng
        self.done, self.released = {}, {}
        """The outcomes accept and reject; and of the other records that came the last delivery count, if Kafka has
        written it."""
        kafka.configure_group(group, share_auto_offset_reset="earliest")

    def works(self):
        """A member polls some times, decides each record at random, and ends with some records undecided. The group has
        a position once the first member has decided some."""
        conf = {"bootstrap.servers": self.kafka.bootstrap, "group.id": self.group, "log_level": 0}
        most = self.rng.choice([3, 10, 500])
        conf |= {"share.acknowledgement.mode": "explicit", "max.poll.records": most}
        consumer = confluent_kafka.ShareConsumer(conf)
        consumer.subscribe([self.topic])
        first = [] if self.done or self.released else wait_until(lambda: list(consumer.poll(1.0)), what="records come")
        for round_ in range(self.rng.randint(1, 2)):
            for message in first if first and not round_ else consumer.poll(2.0):
                self.decide(consumer, message)
            self.commit(consumer)
        undecided = [
            message for message in consumer.poll(2.0) if self.rng.random() < 0.6 or self.decide(consumer, message)
        ]
        self.commit(consumer)
        keeps_locks = self.rng.random() < 0.5
        if keeps_locks:
            consumer.unsubscribe()
        else:
            consumer.close()
            self.released.update({at_of(message): message.delivery_count() for message in undecided})
        return consumer

    def decide(self, consumer, message):
        kinds = (
            [ACCEPT, REJECT] if message.delivery_count() > LAST_RELEASE else [ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT]
        )
        kind = self.rng.choice(kinds)
        consumer.acknowledge(message, kind)
        if kind == RELEASE:
            self.released[at_of(message)] = message.delivery_count()
        else:
            assert self.done.setdefault(at_of(message), kind) == kind

    def commit(self, consumer):
        assert not any(consumer.commit_sync(60).values())


def at_of(message):
    return message.partition(), message.offset()


def imported(kafka, group, native):
    """Import the group, once nobody works there any more and no lock ends between the two looks."""
    command = ["import", "--bootstrap-server", kafka.bootstrap, "--group", group, "--from-share-group", native.group]
    wait_until(lambda: run([*command, "--execute"]) == 0, timeout_s=120, what=f"{native.group} is imported")


def drained(kafka, group, topic, count):
    """How often each record came here, and with which delivery count. Each is accepted; ``count`` must come."""
    came, counts = Counter(), {}
    conf = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "share.auto.offset.reset": "earliest"}
    with ShareConsumer({**conf, "share.acknowledgement.mode": "explicit"}) as consumer:
        consumer.subscribe([topic])

        def all_came():
            for message in consumer.poll(1.0):
                came[at_of(message)] += 1
                counts[at_of(message)] = message.delivery_count()
                consumer.acknowledge(message)
            consumer.commit_sync(60)
            return len(came) >= count

        wait_until(all_came, timeout_s=120, what=f"{count} records come to {group}")
        assert not consumer.poll(2.0)
    return came, counts


def one_seed(kafka, create, group, seed):
    """Play a seed. Returns the numbers of records: all, accepted and rejected there, drained here, and released."""
    rng = random.Random(seed)
    partitions = rng.randint(1, 3)
    topic, records = create("orders", partitions=partitions), {}
    for partition in range(partitions):
        for _ in range(rng.randint(1, 5)):
            size = rng.randint(1, 25)
            kafka.produce(topic, ["v"] * size, partition=partition)
            records[partition] = records.get(partition, 0) + size
    every = {(partition, offset) for partition, count in records.items() for offset in range(count)}
    native = Native(kafka, f"native-of-{group}", topic, rng)
    consumers = [native.works() for _ in range(rng.randint(1, 2))]
    imported(kafka, group, native)
    for consumer in consumers:
        consumer.close()
    came, counts = drained(kafka, group, topic, len(every) - len(native.done))
    assert came.keys() == every - native.done.keys(), seed
    assert set(came.values()) <= {1}, seed
    again = {at: count for at, count in native.released.items() if at in counts}
    assert all(counts[at] > count for at, count in again.items()), seed
    return Counter(
        records=len(every),
        accepted=sum(kind == ACCEPT for kind in native.done.values()),
        rejected=sum(kind == REJECT for kind in native.done.values()),
        drained=came.total(),
        released=len(again),
    )


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(2), marks=pytest.mark.slow, id="2"), pytest.param(range(50), marks=pytest.mark.soak, id="50")],
)
def test_what_a_native_group_has_not_done_comes_once(kafka, topic, unique, seeds):
    total = Counter()
    for seed in seeds:
        total += one_seed(kafka, topic, unique(f"import-{seed}"), seed)
    print(f"import: {len(seeds)} seeds, {dict(total)}")
    assert total["accepted"] + total["rejected"] + total["drained"] == total["records"]
    assert min(total.values()) > 0
