"""The messages of a ShareConsumer, as compiled code and as Python make them of what they read."""

import copy
import gc
import os
import pickle
import random
import tracemalloc

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from share_source.executor import consumers
from share_source.executor.reader_choice import NATIVE, PYTHON
from share_source.executor.record_batches import BATCH_RECORDS
from tests.support.random_records import ANY_SHAPE, produce_at_random
from tests.support.read_tasks import offsets
from tests.support.share_messages import collected, messages_in, messages_of

pytestmark = pytest.mark.broker

SEED = int(os.environ.get("READERS_SEED", "1"))
SHOWN = (
    *("topic", "partition", "offset", "key", "value", "headers", "timestamp", "error", "latency", "leader_epoch"),
    *("deserialized_key", "deserialized_value", "delivery_count", "__len__", "__repr__"),
)


def runs(collector):
    return [(run.key, run.first, run.last, run.delivery_count, len(run.messages)) for run in collector.runs()]


@pytest.mark.parametrize("reader", [NATIVE], indirect=True)
def test_both_readers_return_equal_messages_of_any_shape(kafka, topic, task):
    choose = random.Random(SEED)
    name = topic(partitions=2, **ANY_SHAPE)
    produce_at_random(kafka, name, 4_000, choose)
    ranges = {}
    for partition in (0, 1):
        cuts = sorted(choose.sample(range(1_500), 40))
        ranges[name, partition] = [
            (first, last - 1, choose.randrange(1, 6)) for first, last in zip(cuts[::2], cuts[1::2], strict=True)
        ]
    asked = task(ranges, include_headers=True)
    mine, other = collected(asked, NATIVE)[0], collected(asked, PYTHON)[0]
    assert runs(mine) == runs(other)
    for left, right in zip(messages_in(mine), messages_in(other), strict=True):
        assert [getattr(left, shown)() for shown in SHOWN] == [getattr(right, shown)() for shown in SHOWN]
        assert isinstance(left, confluent_kafka.Message) and isinstance(right, confluent_kafka.Message)


def test_a_message_returns_the_values_that_a_program_set(kafka, topic, task, reader):
    name = topic()
    kafka.produce(name, ["a"], partition=0)
    (message,) = messages_of(task({(name, 0): [(0, 0, 3)]}), reader)
    error = KafkaError(KafkaError._VALUE_DESERIALIZATION, "no number")
    message.set_topic("other")
    message.set_key({"id": 1})
    message.set_value([1, 2])
    message.set_headers([("h", b"1")])
    message.set_error(error)
    assert (message.topic(), message.key(), message.value()) == ("other", {"id": 1}, [1, 2])
    assert (message.deserialized_key(), message.deserialized_value()) == ({"id": 1}, [1, 2])
    assert (message.headers(), message.error(), len(message)) == ([("h", b"1")], error, 2)
    message.set_value(None)
    assert (message.value(), len(message), message.delivery_count()) == (None, 0, 3)


def test_a_copy_of_a_message_shows_the_same(kafka, topic, task, reader):
    name = topic()
    kafka.produce(name, ["v", None], keys=[None, "k"], partition=0, headers=[("h", b"1"), ("h", None)])
    kafka.produce(name, [""], partition=0)
    ways = [lambda message: pickle.loads(pickle.dumps(message)), copy.copy, copy.deepcopy]
    for message in messages_of(task({(name, 0): [(0, 2, 3)]}), reader):
        message.set_error(KafkaError(KafkaError._VALUE_DESERIALIZATION, "no number"))
        for copied in (again(message) for again in ways):
            shown = [[getattr(each, name)() for name in SHOWN if name != "error"] for each in (message, copied)]
            assert shown[0] == shown[1]
            assert copied.error().code() == message.error().code()
            assert isinstance(copied, confluent_kafka.Message)
            copied.set_value(b"other")
            assert (copied.value(), message.value() == b"other") == (b"other", False)


def test_a_record_that_rows_read_too_far_is_a_whole_message(kafka, topic, task, reader):
    """The consumer and the record that it holds go from a task that makes Arrow batches to one that makes messages."""
    name = topic()
    kafka.produce_transaction(name, ["a"], partition=0)  # offset 0, and a marker
    kafka.produce(name, ["b"], partition=0, headers=[("h", b"1")])
    assert offsets(task({(name, 0): [(0, 1, 1)]})) == [0]
    (message,) = messages_of(task({(name, 0): [(2, 2, 1)]}), reader)
    assert (message.headers(), message.leader_epoch()) == ([("h", b"1")], 0)


@pytest.mark.slow
def test_runs_end_at_holes_and_at_other_delivery_counts(kafka, topic, task, reader):
    name, records = topic(partitions=6), 3 * BATCH_RECORDS
    for partition in range(6):
        kafka.produce(name, map(str, range(records)), partition=partition, enable_idempotence=True)  # in order
    ranges = {(name, partition): [(0, 9, 1), (10, 19, 2), (40, records - 1, 2)] for partition in range(6)}
    collector, lost = collected(task(ranges), reader)
    expected = [(key, first, last, count, last - first + 1) for key, of in ranges.items() for first, last, count in of]
    assert (sorted(runs(collector)), lost) == (sorted(expected), {})
    for run in collector.runs():
        assert [int(message.value()) for message in run.messages] == list(range(run.first, run.last + 1))
        assert {message.partition() for message in run.messages} == {run.key[1]}


def test_messages_outlive_the_consumer_that_read_them(kafka, topic, task, reader):
    name = topic()
    kafka.produce(name, map(str, range(30_000)), partition=0, enable_idempotence=True)
    found = messages_of(task({(name, 0): [(0, 29_999, 1)]}), reader)
    consumers.cache().close()
    gc.collect()
    assert [int(message.value()) for message in found] == list(range(30_000))


def test_messages_that_are_dropped_leave_no_memory_behind(kafka, topic, task, reader):
    name = topic()
    kafka.produce(name, [b"x" * 100] * 5_000, partition=0, headers=[("a", b"1"), ("b", None)])
    asked = task({(name, 0): [(0, 4_999, 1)]})

    def read() -> int:
        for message in messages_of(asked, reader):
            message.set_value([message.headers(), message.timestamp(), message.value()])
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        read()
        before = read()
        after = [read() for _ in range(3)][-1]
    finally:
        tracemalloc.stop()
    assert after - before < 100_000, "of 15,000 messages not seven bytes each"  # other threads' objects are in it
