"""A task reads exactly its ranges from a real broker, whatever the log looks like."""

import gc
import multiprocessing
import pickle
import uuid

import pytest
from confluent_kafka import Consumer, Producer

from share_source.driver.batch_bytes import BatchBytes
from share_source.executor import consumers
from share_source.executor.consumers import HELD_RECORDS
from share_source.executor.range_reader import ReadTask
from share_source.executor.task_reader import SEPARATE_CONSUMERS, read_task
from tests.support.read_tasks import located, offsets, rows
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


def produce_transactions(kafka, name: str, commits: list[bool]) -> None:
    """For each a transaction of two records and its marker: three offsets."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": uuid.uuid4().hex, "log_level": 0})
    producer.init_transactions(30)
    for commit in commits:
        producer.begin_transaction()
        for _ in range(2):
            producer.produce(name, b"x", partition=0)
        producer.flush(30)  # an abort drops what is not sent yet
        (producer.commit_transaction if commit else producer.abort_transaction)(30)


DIGEST = -7
"""The digest in the receipts of a task's records."""


def test_the_driver_measures_some_records_of_a_plan(kafka, topic, task):
    name = topic()
    kafka.produce(name, [b"v" * 500] * 100, keys=[b"k" * 100] * 100, headers=[("h", b"1" * 1_000)])
    for include_headers, most in ((False, 16), (True, 6)):
        limit = BatchBytes(10_000)
        limit.measure(task({(name, 0): [(5, 60, 1), (70, 99, 2)]}, include_headers=include_headers))
        assert limit.most(None) == most, "600 bytes, or 1,601 and what Arrow adds"


# -- what a record looks like ----------------------------------------------------------------------------------------


def test_a_record_has_the_kafka_sources_columns_and_its_delivery_count(kafka, topic, task):
    name = topic(partitions=2)
    kafka.produce(name, ["v0", "v1", None], keys=["k0", None, "k2"], partition=1, headers=[("h", b"1"), ("h", None)])
    got = rows(task({(name, 1): [(0, 1, 1), (2, 2, 4)]}, include_headers=True, digest=DIGEST))
    assert [row.pop("timestamp").year > 2000 for row in got] == [True] * 3
    headers = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    same = {"topic": name, "partition": 1, "timestampType": 0, "headers": headers}
    assert got == [
        {"key": b"k0", "value": b"v0", "offset": 0, "deliveryCount": 1, "receipt": DIGEST, **same},
        {"key": None, "value": b"v1", "offset": 1, "deliveryCount": 1, "receipt": DIGEST, **same},
        {"key": b"k2", "value": None, "offset": 2, "deliveryCount": 4, "receipt": DIGEST, **same},
    ]


def test_headers_of_a_record_without_headers_are_null(kafka, topic, task):
    name = topic()
    kafka.produce(name, ["none"], partition=0)
    kafka.produce(name, ["one"], partition=0, headers=[("a", b"x")])
    kafka.produce(name, ["none"], partition=0)
    got = [row["headers"] for row in rows(task({(name, 0): [(0, 2, 1)]}, include_headers=True))]
    assert got == [None, [{"key": "a", "value": b"x"}], None]
    assert "headers" not in rows(task({(name, 0): [(0, 0, 1)]}))[0]


def test_log_append_time_has_its_own_timestamp_type(kafka, topic, task):
    name = topic(message_timestamp_type="LogAppendTime")
    kafka.produce(name, ["x"], partition=0)
    assert [row["timestampType"] for row in rows(task({(name, 0): [(0, 0, 1)]}))] == [1]


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_batches_have_the_schema_that_spark_demands(kafka, topic, task, include_headers):
    from pyspark.sql.pandas.types import to_arrow_schema

    from share_source.arrow_schema import spark_schema

    name = topic()
    kafka.produce(name, ["x"], partition=0)
    (batch,) = read_task(task({(name, 0): [(0, 0, 1)]}, include_headers=include_headers))
    assert batch.schema.equals(to_arrow_schema(spark_schema(include_headers), timezone="UTC"))
    batch.validate(full=True)


@pytest.mark.parametrize("compression", ["zstd", "lz4", "gzip", "snappy"])
def test_compressed_batches_are_cut_at_the_ranges(kafka, topic, task, compression):
    name = topic()
    kafka.produce(name, [f"{n:0100}" for n in range(5000)], partition=0, compression_type=compression, linger_ms=100)
    assert offsets(task({(name, 0): [(7, 4321, 1)]})) == list(range(7, 4322))


# -- ranges ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, SEPARATE_CONSUMERS, SEPARATE_CONSUMERS + 1, 12])
def test_one_task_reads_several_partitions(kafka, topic, task, partitions):
    names = [topic(partitions=partitions), topic()]
    parts = [(names[0], p) for p in range(partitions)] + [(names[1], 0)]
    for name, partition in parts:
        kafka.produce(name, [f"{name}-{partition}-{offset}" for offset in range(50)], partition=partition)
    for first, last in ((0, 9), (10, 29), (30, 49), (0, 49)):
        asked = task({(name, p): [(first, last, p + 1)] for name, p in parts})
        got = rows(asked)
        assert sorted((r["topic"], r["partition"], r["offset"]) for r in got) == [
            (*part, offset) for part in sorted(parts) for offset in range(first, last + 1)
        ]
        assert all(row["value"].decode() == f"{row['topic']}-{row['partition']}-{row['offset']}" for row in got)
        assert all(row["deliveryCount"] == row["partition"] + 1 for row in got)


def test_a_task_reads_thousands_of_small_ranges(kafka, topic, task):
    name = topic(partitions=8)
    for partition in range(8):
        kafka.produce(name, map(str, range(5000)), partition=partition)
    ranges = [(n * 5, n * 5 + 2, n % 4 + 1) for n in range(1000)]
    got = rows(task({(name, p): ranges for p in range(8)}))
    assert sorted((r["partition"], r["offset"], r["deliveryCount"]) for r in got) == [
        (p, o, count) for p in range(8) for first, last, count in ranges for o in range(first, last + 1)
    ]


def test_a_wide_hole_is_jumped_over(kafka, topic, task, monkeypatch):
    monkeypatch.setattr("share_source.executor.range_reader.READ_THROUGH_RECORDS", 100)
    moves = []
    move = consumers.KeptConsumer.move
    monkeypatch.setattr(
        consumers.KeptConsumer, "move", lambda self, key, place: (moves.append(place[0]), move(self, key, place))
    )
    name = topic()
    kafka.produce(name, [b"x" * 1000] * 20_000, partition=0)
    ranges = [(0, 9, 1), (50, 59, 1), (15_000, 15_009, 2), (19_999, 19_999, 1)]
    asked = task({(name, 0): ranges}, config={"queued.min.messages": "1000"})
    assert offsets(asked) == [o for first, last, _ in ranges for o in range(first, last + 1)]
    assert moves == [15_000, 19_999]


# -- ends of ranges --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_range_may_end_with_a_marker_or_be_one(kafka, topic, task, isolation):
    name = topic()
    kafka.produce_transaction(name, ["a", "b"], partition=0)
    assert offsets(task({(name, 0): [(0, 2, 1)]}, isolation_level=isolation)) == [0, 1]
    assert offsets(task({(name, 0): [(2, 2, 1)]}, isolation_level=isolation)) == []
    kafka.produce(name, ["c"], partition=0)
    assert offsets(task({(name, 0): [(2, 2, 1)]}, isolation_level=isolation)) == []
    assert offsets(task({(name, 0): [(3, 3, 1)]}, isolation_level=isolation)) == [3]


def test_aborted_records_are_left_out_in_read_committed_only(kafka, topic, task):
    name = topic()
    kafka.produce_transaction(name, ["kept"], partition=0)
    kafka.produce_transaction(name, ["dropped", "dropped"], commit=False, partition=0)
    both = {(name, 0): [(0, 4, 1)]}
    assert offsets(task(both, isolation_level="read_committed")) == [0]
    assert offsets(task(both, isolation_level="read_uncommitted")) == [0, 2, 3]
    kafka.produce(name, ["last"], partition=0)
    assert offsets(task(both, isolation_level="read_committed")) == [0]
    assert offsets(task({(name, 0): [(2, 5, 1)]}, isolation_level="read_committed")) == [5]


def test_a_range_may_end_with_an_aborted_batch_before_an_open_transaction(kafka, topic, task):
    name = topic()
    kafka.produce(name, ["a"], partition=0)
    kafka.produce_transaction(name, ["dropped"], commit=False, partition=0)
    producer = kafka.open_transaction(name, [b"open"], partition=0)
    try:
        assert offsets(task({(name, 0): [(0, 2, 1)]}, isolation_level="read_committed")) == [0]
    finally:
        producer.abort_transaction(30)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_each_task_reads_on_over_markers(kafka, topic, task, isolation):
    """With gaps, more comes than is left of the range: it is kept for the next task."""
    name = topic()
    commits = [n % 3 != 1 for n in range(20)]
    produce_transactions(kafka, name, commits)
    is_read = [commit or isolation == "read_uncommitted" for commit in commits]
    kept = [n * 3 + k for n, shown in enumerate(is_read) if shown for k in (0, 1)]
    tasks = [task({(name, 0): [(n, n + 4, 1)]}, isolation_level=isolation) for n in range(0, 60, 5)]
    assert [offset for each in tasks for offset in offsets(each)] == kept


# -- from task to task -----------------------------------------------------------------------------------------------


def test_the_next_task_reuses_the_kafka_consumer(kafka, topic, task, monkeypatch):
    name = topic()
    kafka.produce(name, map(str, range(100)), partition=0)
    assert offsets(task({(name, 0): [(0, 9, 1)]})) == list(range(10))
    assert len(consumers.cache()) == 1
    with monkeypatch.context() as patch:
        patch.setattr(consumers.KeptConsumer, "__init__", None)  # none is made
        assert offsets(task({(name, 0): [(10, 19, 1)]})) == list(range(10, 20))
        assert offsets(task({(name, 0): [(40, 49, 1)]})) == list(range(40, 50))  # another member took 20 to 39
        assert offsets(task({(name, 0): [(0, 19, 2)]})) == list(range(20))  # a replay goes back
    assert len(consumers.cache()) == 1


def test_a_record_read_too_far_keeps_its_headers(kafka, topic, task):
    """The next task on the same consumer may want headers where the one before wanted none."""
    name = topic()
    kafka.produce_transaction(name, ["a"], partition=0)  # offset 0, and a marker
    kafka.produce(name, ["b"], partition=0, headers=[("h", b"1")])
    assert rows(task({(name, 0): [(0, 1, 1)]}))[0]["value"] == b"a"
    with_headers, kept = task({(name, 0): [(2, 2, 1)]}, include_headers=True), len(consumers.cache())
    assert (kept, [row["headers"] for row in rows(with_headers)]) == (1, [[{"key": "h", "value": b"1"}]])


@pytest.mark.slow
def test_partitions_that_are_done_first_do_not_fill_the_memory(kafka, topic, task):
    name = topic(partitions=SEPARATE_CONSUMERS + 1)
    for partition in range(SEPARATE_CONSUMERS + 1):
        kafka.produce(name, ["x"] * 30_000, partition=partition)
    small = {(name, p): [(0, 9, 1)] for p in range(SEPARATE_CONSUMERS)}
    asked = task({**small, (name, SEPARATE_CONSUMERS): [(0, 29_999, 1)]})
    assert len(offsets(asked)) == 30_000 + 10 * SEPARATE_CONSUMERS
    (kept,) = consumers.cache()._idle
    assert all(len(position.held) <= 2 * HELD_RECORDS for position in kept.positions.values())
    again = task({(name, p): [(10, 29_999, 1)] for p in range(SEPARATE_CONSUMERS)})
    assert located(again) == [(p, o) for p in range(SEPARATE_CONSUMERS) for o in range(10, 30_000)]


def test_other_partitions_and_isolation_levels_find_no_wrong_consumer(kafka, topic, task):
    name = topic(partitions=2)
    kafka.produce_transaction(name, ["aborted"], commit=False, partition=0)
    kafka.produce(name, ["a"] * 5, partition=0)
    kafka.produce(name, ["b"] * 7, partition=1)
    assert located(task({(name, 0): [(0, 3, 1)]}, isolation_level="read_uncommitted")) == [(0, 0), (0, 2), (0, 3)]
    assert located(task({(name, 1): [(0, 3, 1)]}, isolation_level="read_uncommitted")) == [(1, o) for o in range(4)]
    assert located(task({(name, 0): [(0, 3, 1)]}, isolation_level="read_committed")) == [(0, 2), (0, 3)]


def test_an_idle_consumer_is_parked_and_still_good(kafka, topic, task, monkeypatch):
    monkeypatch.setattr(consumers, "PARK_AFTER_S", 0.05)
    name = topic()
    kafka.produce(name, map(str, range(20)), partition=0)
    assert offsets(task({(name, 0): [(0, 9, 1)]})) == list(range(10))
    (kept,) = consumers.cache()._idle
    wait_until(lambda: not kept.positions, what="it is parked")
    assert offsets(task({(name, 0): [(10, 19, 1)]})) == list(range(10, 20))
    monkeypatch.setattr(consumers, "CLOSE_AFTER_S", 0.05)
    assert offsets(task({(name, 0): [(10, 19, 1)]})) == list(range(10, 20))
    wait_until(lambda: not len(consumers.cache()), what="it is closed")


def test_no_more_consumers_are_kept_than_the_limit(kafka, topic, task, monkeypatch):
    monkeypatch.setattr(consumers, "MAX_IDLE", 3)
    names = [topic() for _ in range(5)]
    for name in names:
        kafka.produce(name, ["x"], partition=0)
        assert offsets(task({(name, 0): [(0, 0, 1)]})) == [0]
    assert len(consumers.cache()) <= 3


def test_a_task_that_ends_early_leaves_no_consumer_behind(kafka, topic, task):
    name = topic()
    kafka.produce(name, ["x"] * 30_000, partition=0)
    reading = read_task(task({(name, 0): [(0, 29_999, 1)]}))
    assert next(reading).num_rows
    reading.close()
    assert len(consumers.cache()) == 0
    assert gc.isenabled()
    assert len(offsets(task({(name, 0): [(0, 29_999, 1)]}))) == 30_000


def test_a_task_can_be_pickled_and_shows_no_password(task):
    made = task({("orders", 0): [(0, 9, 1)]}, config={"sasl.password": "secret"})
    assert pickle.loads(pickle.dumps(made)) == made
    assert "secret" not in repr(made)


def _count_in_child(task: ReadTask, answers) -> None:
    answers.put(sum(batch.num_rows for batch in read_task(task)))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_worker_has_consumers_of_its_own(kafka, topic, task):
    name = topic()
    kafka.produce(name, map(str, range(20)), partition=0)
    assert offsets(task({(name, 0): [(0, 9, 1)]})) == list(range(10))
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_count_in_child, args=(task({(name, 0): [(10, 19, 1)]}), answers))
    child.start()
    assert answers.get(timeout=120) == 10
    child.join(120)
    assert child.exitcode == 0
    assert offsets(task({(name, 0): [(10, 19, 1)]})) == list(range(10, 20))


def test_the_users_settings_win_except_those_that_the_promises_need():
    config = dict(
        consumers.client_config({"fetch.wait.max.ms": "7", "enable.partition.eof": "false"}, "read_committed")
    )
    assert config["fetch.wait.max.ms"] == "7"
    assert config["enable.partition.eof"] == "true"
    assert config["isolation.level"] == "read_committed"
    Consumer({**config, "bootstrap.servers": "127.0.0.1:1", "log_level": 0}).close()
