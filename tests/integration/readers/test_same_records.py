"""The compiled reader and Python's return the same records, and both read on after a broker's death and a cut."""

import gc
import os
import random

import pyarrow as pa
import pytest

from share_source.errors import RecordsDamaged
from share_source.executor import consumers, range_reader
from share_source.executor.reader_choice import NATIVE, PYTHON
from share_source.executor.record_batches import BATCH_BYTES, BATCH_RECORDS, HEADER_BYTES
from share_source.executor.task_reader import read_task
from tests.support.random_records import ANY_SHAPE, produce_at_random, produce_transactions_at_random
from tests.support.read_tasks import offsets, reading_with
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

SEED = int(os.environ.get("READERS_SEED", "1"))
compared = pytest.mark.parametrize("reader", [NATIVE], indirect=True)
"""The test compares what the two readers return."""


def table(task) -> pa.Table:
    """The task's records in the order of their offsets. Each batch has been checked, and is within its bounds."""
    batches = list(read_task(task))
    for batch in batches:
        batch.validate(full=True)
        assert 0 < batch.num_rows <= BATCH_RECORDS
    return pa.Table.from_batches(batches).sort_by([("partition", "ascending"), ("offset", "ascending")])


def random_ranges(choose: random.Random, end: int) -> list[tuple[int, int, int]]:
    """20 ranges below an offset, of any delivery counts."""
    cuts = sorted(choose.sample(range(end), 40))
    return [(first, last - 1, choose.randrange(1, 6)) for first, last in zip(cuts[::2], cuts[1::2], strict=True)]


def with_both(asked) -> tuple[pa.Table, pa.Table]:
    """Return what the compiled reader reads, and what Python's reads."""
    mine = table(asked)
    consumers.cache().close()
    with reading_with(PYTHON):
        return mine, table(asked)


@pytest.mark.parametrize("include_headers", [False, True])
@compared
def test_both_readers_return_the_same_records_of_any_shape(kafka, topic, task, include_headers):
    choose = random.Random(SEED)
    name = topic(partitions=2, **ANY_SHAPE)
    produce_at_random(kafka, name, 4_000, choose)
    ranges = {(name, partition): random_ranges(choose, 1_500) for partition in (0, 1)}
    mine, other = with_both(task(ranges, include_headers=include_headers))
    assert mine.num_rows == sum(last - first + 1 for of in ranges.values() for first, last, _ in of)
    assert mine.schema.equals(other.schema)
    assert mine.equals(other)


@compared
def test_both_readers_return_the_same_records_of_a_compacted_topic(kafka, topic, task):
    choose = random.Random(SEED)
    compacted = {"segment_ms": 200, "min_cleanable_dirty_ratio": 0.01, "max_compaction_lag_ms": 200}
    name, keys = topic(cleanup_policy="compact", **compacted), [str(choose.randrange(300)) for _ in range(2_000)]
    kafka.produce(name, [choose.randbytes(choose.randrange(500)) for _ in keys], keys=keys, partition=0)
    newest = {key: offset for offset, key in enumerate(keys)}
    ranges = random_ranges(choose, len(keys))
    wanted = [o for o in sorted(newest.values()) for first, last, _ in ranges if first <= o <= last]
    asked = task({(name, 0): ranges}, include_headers=True)

    def is_compacted() -> bool:
        kafka.produce(name, ["rolls the segment"], keys=["roller"], partition=0)
        return offsets(asked) == wanted

    wait_until(is_compacted, interval_s=0.3, what="only the last record of each key is left")
    mine, other = with_both(asked)
    assert mine.column("offset").to_pylist() == wanted
    assert mine.equals(other)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@compared
def test_both_readers_return_the_same_records_of_transactions(kafka, topic, task, isolation):
    choose = random.Random(SEED)
    name = topic(partitions=2, **ANY_SHAPE)
    written = produce_transactions_at_random(kafka, name, 60, choose)
    ranges = {(name, partition): random_ranges(choose, 1_000) for partition in (0, 1)}
    mine, other = with_both(task(ranges, include_headers=True, isolation_level=isolation))
    levels = (True,) if isolation == "read_committed" else (True, False)
    assert list(zip(*(mine.column(name).to_pylist() for name in ("partition", "offset")), strict=True)) == sorted(
        (partition, offset)
        for (_, partition), of_partition in ranges.items()
        for first, last, _ in of_partition
        for offset in range(first, last + 1)
        if any(offset in written[level][partition] for level in levels)
    )
    assert mine.equals(other)


@pytest.mark.parametrize("reader", [NATIVE], indirect=True)
def test_a_values_bytes_are_copied_once_into_arrow(kafka, topic, task, monkeypatch):
    """The first batch is left out: it does not know yet how much room it needs."""
    from share_source.executor.native.native_rows import NativeRows  # compiled by now

    name, counts, build = topic(), [], NativeRows.build

    def counted(rows: NativeRows) -> pa.RecordBatch:
        nbytes = rows.builder.nbytes - HEADER_BYTES * len(rows)  # a header in each record
        batch = build(rows)
        counts.append((nbytes, rows.builder.moved))
        return batch

    choose = random.Random(SEED)
    values = [choose.randbytes(choose.randrange(400)) for _ in range(100_000)]
    kafka.produce(name, values, partition=0, headers=[("a", b"1")])
    monkeypatch.setattr(NativeRows, "build", counted)
    asked = task({(name, 0): [(0, len(values) - 1, 1)]}, include_headers=True)
    assert len(offsets(asked)) == len(values)
    sizes, moved = zip(*counts, strict=True)
    print(f"{sum(sizes)} bytes, {moved[-1]} moved; in the first batch {sizes[0]} and {moved[0]}")
    assert sum(sizes) == sum(map(len, values)) + 2 * len(values)
    assert (moved[-1] - moved[0]) / sum(sizes[1:]) <= 1.05
    assert moved[-1] / sum(sizes) <= 1.2


def test_a_batch_is_bounded_in_bytes_and_in_rows(kafka, topic, task):
    name = topic(max_message_bytes=2_000_000)
    kafka.produce(name, [b"x"] * 12_000, partition=0)
    kafka.produce(name, [b"x" * 900_000] * 20, partition=0)
    batches = list(read_task(task({(name, 0): [(0, 12_019, 1)]})))
    assert sum(batch.num_rows for batch in batches) == 12_020
    assert max(batch.num_rows for batch in batches) <= BATCH_RECORDS
    assert max(batch.nbytes for batch in batches) < 40_000_000


@pytest.mark.slow
def test_many_small_headers_count_as_bytes_of_a_batch(kafka, topic, task):
    name = topic()
    headers = [("", None)] * 50_000
    kafka.produce(name, [b"x"] * 60, partition=0, headers=headers, compression_type="zstd")
    batches = list(read_task(task({(name, 0): [(0, 59, 1)]}, include_headers=True)))
    assert [row for batch in batches for row in batch.column("offset").to_pylist()] == list(range(60))
    assert all(len(of_record) == 50_000 for batch in batches for of_record in batch.column("headers"))
    assert max(batch.nbytes for batch in batches) <= BATCH_BYTES


@pytest.mark.parametrize("reader", [NATIVE], indirect=True)
def test_headers_beyond_what_librdkafka_reads_are_a_named_error(kafka, topic, task):
    """confluent_kafka shows no headers of such a record, so that Python's reader can't know of them."""
    name = topic()
    kafka.produce(name, [b"x"], partition=0, headers=[("", None)] * 100_001)
    assert offsets(task({(name, 0): [(0, 0, 1)]})) == [0], "without headers it is a record as any other"
    with pytest.raises(RecordsDamaged, match=r"offsets 0 to 0 .*up to 100,000"):
        offsets(task({(name, 0): [(0, 0, 1)]}, include_headers=True))


@pytest.mark.slow
def test_a_broker_that_dies_in_mid_read_costs_only_time(kafka, topic, task):
    name = topic()
    kafka.produce(name, [b"x" * 1_000] * 60_000, partition=0)
    batches = read_task(task({(name, 0): [(0, 59_999, 1)]}))
    read = next(batches).column("offset").to_pylist()
    kafka.kill()
    kafka.start()
    read += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert read == list(range(60_000))


@pytest.mark.slow
def test_a_connection_that_goes_silent_in_mid_read_costs_only_time(kafka, topic, task):
    name = topic()
    kafka.produce(name, [b"x" * 1_000] * 60_000, partition=0)
    config = {"socket.timeout.ms": "2000", "reconnect.backoff.max.ms": "500"}
    batches = read_task(task({(name, 0): [(0, 59_999, 1)]}, bootstrap=kafka.proxied_bootstrap, config=config))
    read = next(batches).column("offset").to_pylist()
    kafka.proxy.cut(silent=True)
    kafka.proxy.heal()
    read += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert read == list(range(60_000))


@pytest.mark.slow
def test_a_task_replaces_a_kafka_client_that_gets_no_answer(kafka, topic, task, monkeypatch):
    renew = range_reader.Reader._renew

    def renew_once(reader):
        monkeypatch.setattr(range_reader, "RENEW_S", 20.0)  # the next client has the time that it needs
        renew(reader)

    monkeypatch.setattr(range_reader, "RENEW_S", 1.0)
    monkeypatch.setattr(range_reader.Reader, "_renew", renew_once)
    name = topic()
    kafka.produce(name, [b"x" * 1_000] * 60_000, partition=0)
    config = {"socket.timeout.ms": "300000"}  # the client itself waits for so long
    batches = read_task(task({(name, 0): [(0, 59_999, 1)]}, bootstrap=kafka.proxied_bootstrap, config=config))
    read = next(batches).column("offset").to_pylist()
    kafka.proxy.cut(silent_so_far=True)
    read += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    kafka.proxy.heal()
    assert read == list(range(60_000))


def test_batches_outlive_the_consumer_that_read_them(kafka, topic, task):
    name = topic()
    kafka.produce(name, map(str, range(30_000)), partition=0)
    batches = list(read_task(task({(name, 0): [(0, 29_999, 1)]})))
    consumers.cache().close()
    gc.collect()
    values = [int(value) for batch in batches for value in batch.column("value").to_pylist()]
    assert values == list(range(30_000))
    assert all(batch.nbytes <= 2 * BATCH_BYTES for batch in batches)


def test_tasks_leave_no_descriptor_and_no_thread_behind(kafka, topic, task):
    name = topic(partitions=3)
    for partition in range(3):
        kafka.produce(name, map(str, range(100)), partition=partition)
    asked = task({(name, partition): [(0, 99, 1)] for partition in range(3)})

    def read() -> None:
        assert len(offsets(asked)) == 300
        next(read_task(asked)).validate()  # given up in the middle
        consumers.cache().close()
        gc.collect()

    def left_open() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def has_ended() -> bool:
        return consumers.cache()._janitor is None

    read()
    wait_until(has_ended, what="the thread that parks consumers has ended")
    first = left_open()
    for _ in range(8):
        read()
    wait_until(
        lambda: has_ended() and all(now <= before for now, before in zip(left_open(), first, strict=True)),
        what="there are no more descriptors and threads than before",
    )


def test_more_clients_than_the_process_has_keys_are_made_and_closed(kafka, reader):
    """A client takes one of 1,024 keys of thread local storage, and must give it back without the garbage collector."""
    from share_source.executor.native.native_reader import (
        NativeConsumer,
        native_config,  # compiled by now
    )

    conf, level = {"bootstrap.servers": kafka.bootstrap}, "read_uncommitted"
    gc.disable()
    try:
        for _ in range(1_100):
            made = (
                NativeConsumer(native_config(conf, level, 1))
                if reader == NATIVE
                else consumers.KeptConsumer(consumers.client_config(conf, level))
            )
            made.close()
    finally:
        gc.enable()
