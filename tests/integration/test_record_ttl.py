"""share.record.ttl.ms on a broker: by its time index, nothing is given up early, and nothing that a member holds."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Message, Producer

from coordinator.client.client import CoordinatorClient
from coordinator.dead_letters.record_format import TTL_MESSAGE
from coordinator.protocol.errors import UnknownMemberId
from coordinator.protocol.messages import Heartbeat, JoinGroup, NextPlan
from coordinator.protocol.values import AcknowledgeType
from sharegroup import ShareConsumer
from tests.support.coordinator_process import kill_coordinators
from tests.support.kafka_log import messages_of
from tests.support.rejecting import Rejecting, origins, said
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

HOUR_MS = 3_600_000
FUTURE = {"message_timestamp_after_max_ms": 2**62}
"""Since Kafka 4.0 a broker refuses records that are more than an hour ahead of it, unless the topic says otherwise."""


def produce(bootstrap: str, topic: str, *ages_ms: int | None) -> None:
    """Write records that are so old, with their offsets as keys and values; None: without a timestamp."""
    producer, now_ms, refused = Producer({"bootstrap.servers": bootstrap}), int(time.time() * 1000), []
    for n, age_ms in enumerate(ages_ms):
        timestamp = -1 if age_ms is None else now_ms - age_ms
        noted = {"on_delivery": lambda error, _: refused.append(error)}
        producer.produce(topic, f"v{n}", f"k{n}", partition=0, timestamp=timestamp, **noted)
    producer.flush()
    assert not any(refused), refused


@pytest.fixture
def group_of(kafka, unique, tmp_path) -> Iterator[Callable[..., Rejecting]]:
    """`group_of(topic, **configs)`: a coordinator in this process, and a member of a new group whose ttl is an hour."""
    with contextlib.ExitStack() as opened:

        def new(topic: str, **configs: object) -> Rejecting:
            name, configs = unique("group"), {"share_record_ttl_ms": HOUR_MS, **configs}
            group = Rejecting(kafka.bootstrap, tmp_path / f"{name}.db", name, topic, **configs)
            opened.callback(group.stop)
            return group

        yield new


def archived(group: Rejecting) -> dict[str, int]:
    return {kind: number for p in group.partitions() for kind, number in p.archived.items() if number}


def look(group: Rejecting) -> dict[str, int]:
    """The coordinator looks at its groups, as it does now and then; what is archived since."""
    group.coordinator.service.look_at_groups()
    return archived(group)


@pytest.mark.parametrize(
    ("ages_ms", "delivered"),
    [
        pytest.param((2 * HOUR_MS, 2 * HOUR_MS, 0), [2], id="what is too old is given up"),
        pytest.param((2 * HOUR_MS, 0, 2 * HOUR_MS), [1, 2], id="an old record behind a young one is delivered"),
        pytest.param((2 * HOUR_MS, -HOUR_MS, 2 * HOUR_MS), [1, 2], id="so it is behind a record of the future"),
        pytest.param((2 * HOUR_MS, -(10**15)), [1], id="a timestamp in microseconds is far in the future"),
        pytest.param((None, 0), [1], id="a record without a timestamp is older than any"),
        pytest.param((int(time.time() * 1000) + 5, 0), [1], id="so is a negative timestamp"),
        pytest.param((HOUR_MS - 60_000,), [0], id="nothing is given up early"),
    ],
)
def test_a_consumer_gets_what_is_not_too_old(kafka, topic, unique, ages_ms, delivered):
    orders = topic("orders", **FUTURE)
    produce(kafka.bootstrap, orders, *ages_ms)
    config = {"share.record.ttl.ms": HOUR_MS, "share.auto.offset.reset": "earliest", "group.id": unique("group")}
    got: list[Message] = []
    with contextlib.closing(ShareConsumer({"bootstrap.servers": kafka.bootstrap, **config})) as consumer:
        consumer.subscribe([orders])
        wait_until(lambda: got.extend(consumer.poll(0.5)) or len(got) >= len(delivered), what="the young ones")
        got += consumer.poll(1.0)
    assert [message.offset() for message in got] == delivered


def test_a_query_gets_what_is_not_too_old(kafka, topic, group_of):
    orders = topic("orders")
    produce(kafka.bootstrap, orders, 2 * HOUR_MS, 2 * HOUR_MS, 0)
    group = group_of(orders)
    who = {"group_id": group.group, "member_id": "q1"}
    join = JoinGroup(**who, process_id=uuid.uuid4().hex, query=True, topics=(orders,))
    epoch = group.coordinator.service.handle(join).member_epoch
    reply = group.coordinator.service.handle(NextPlan(**who, member_epoch=epoch, max_records=10))
    assert [(r.first, r.last) for p in reply.plan.partitions for r in p.ranges] == [(2, 2)]
    assert archived(group) == {"ttl": 2}


def test_dead_letters_have_the_record_and_the_reason(kafka, topic, group_of):
    orders, queue = topic("orders"), topic("dlq")
    produce(kafka.bootstrap, orders, 2 * HOUR_MS, 2 * HOUR_MS, 0)
    group = group_of(orders, dlq_topic_name=queue)
    look(group)
    group.wait_filed(2)
    letters = messages_of(kafka.bootstrap, queue)
    assert [(letter.key(), letter.value()) for letter in letters] == [(b"k0", b"v0"), (b"k1", b"v1")]
    assert {said(letter) for letter in letters} == {("ttl", TTL_MESSAGE)}
    assert (archived(group), group.acquire()) == ({"ttl": 2}, 1)


@pytest.mark.parametrize("order", ["none", "partition"])
def test_a_held_record_is_given_up_once_it_is_released(kafka, topic, group_of, order):
    orders = topic("orders")
    produce(kafka.bootstrap, orders, *[HOUR_MS - 3_000] * 4)
    group = group_of(orders, share_order=order)
    assert group.acquire(2) == 2
    wait_until(lambda: look(group) == {"ttl": 2}, what="those that nobody holds")
    group.acknowledge(AcknowledgeType.RELEASE)
    assert (group.acquire(), archived(group)) == (0, {"ttl": 4})


def test_aborted_records_and_markers_count_as_such_and_have_no_dead_letter(kafka, topic, group_of):
    orders, queue = topic("orders"), topic("dlq")
    kafka.produce_transaction(orders, ["a", "b"], commit=False)
    kafka.produce_transaction(orders, ["c", "d"])
    group = group_of(orders, share_record_ttl_ms=1_000, share_isolation_level="read_committed", dlq_topic_name=queue)
    wait_until(lambda: look(group).get("none") == 4, what="two aborted records, and two markers")
    group.wait_filed(6)
    assert archived(group) == {"none": 4, "ttl": 2}
    assert sorted(origin.offset for origin in origins(messages_of(kafka.bootstrap, queue))) == [3, 4]


def test_compacted_offsets_count_as_such(kafka, topic, group_of):
    orders = topic(
        cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01, segment_bytes=1048576, **FUTURE
    )
    kafka.produce(orders, [str(n) for n in range(6)], keys=["a"] * 6)

    def compacted() -> bool:
        kafka.produce(orders, ["roll"], keys=["b"])
        return [message.key() for message in messages_of(kafka.bootstrap, orders)].count(b"a") == 1

    wait_until(compacted, what="the log is compacted", interval_s=0.3)
    group = group_of(orders, share_record_ttl_ms=1_000)
    wait_until(lambda: sum(look(group).values()) == group.partitions()[0].end_offset >= 7, what="all are too old")
    assert archived(group)["none"] >= 5


FAULT = """
import pathlib, threading
from coordinator.service.dead_letters.group_worker import GroupWorker

def work(self):
    pathlib.Path({reached!r}).touch()
    threading.Event().wait()

GroupWorker.work = work
"""


def test_a_kill_between_archive_and_dead_letter_writes_it_once(kafka, topic, unique, tmp_path, monkeypatch, runtime):
    orders, queue, reached = topic("orders"), topic("dlq"), tmp_path / "reached"
    produce(kafka.bootstrap, orders, *[2 * HOUR_MS] * 20)
    fault = tmp_path / "sitecustomize.py"
    fault.write_text(FAULT.format(reached=str(reached)))
    monkeypatch.syspath_prepend(tmp_path)  # coordinators have the path of who starts them
    with contextlib.closing(CoordinatorClient.connect(kafka.bootstrap)) as client:
        configs = {"share_record_ttl_ms": HOUR_MS, "dlq_topic_name": queue}
        group = Rejecting(kafka.bootstrap, "", unique("group"), orders, client=client, **configs)
        assert group.acquire() == 0
        wait_until(reached.exists, what="the records are archived, and their dead letters are due")
        assert (group.archiving(), messages_of(kafka.bootstrap, queue)) == (20, [])
        assert kill_coordinators()
        fault.unlink()
        with contextlib.suppress(UnknownMemberId):  # it held nothing, so the next coordinator does not know it
            group.ask(Heartbeat, member_epoch=group.epoch)
        group.wait_filed(20)
        assert archived(group) == {"ttl": 20}
    letters = origins(messages_of(kafka.bootstrap, queue))
    assert (len(letters), set(letters.values())) == (20, {1})
