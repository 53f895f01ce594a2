"""How a task reads: which reader, brokers that don't know, places that were reached before, and idle consumers."""

from __future__ import annotations

import itertools
import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordinator.kafka.librdkafka import Silence
from coordinator.protocol.values import AcquiredRange
from share_source.errors import ReadTimeout
from share_source.executor import consumers, range_reader
from share_source.executor.consumers import ConsumerCache, ConsumerPosition, Fetched, KeptConsumer
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_cursor import RangeCursor
from share_source.executor.range_reader import FetchEvent, Reader, ReadTask
from share_source.executor.reader_choice import ReaderChoice, is_native, reader_choice
from tests.support.compiled_reader import ensure_compiled
from tests.support.read_tasks import reading_with
from tests.support.waiting import wait_until


@pytest.fixture
def not_built(monkeypatch):
    monkeypatch.setitem(sys.modules, "share_source.executor.native._drain", None)


def test_the_compiled_reader_names_its_librdkafka():
    ensure_compiled()
    with reading_with("native"):
        choice = reader_choice()
    assert choice.name == "native"
    assert choice.why.startswith("librdkafka 2.")


def test_auto_reads_with_python_where_no_compiled_reader_was_built(not_built, caplog):
    with reading_with("auto"), caplog.at_level("INFO"):
        assert not is_native()
        assert not is_native()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("records are read by the python reader: no compiled reader: import of share_source")


@pytest.mark.parametrize("written", ["", " ", "auto", "AUTO"])
def test_the_compiled_reader_is_the_default_where_built(written):
    ensure_compiled()
    with reading_with(written):
        assert reader_choice().name == "native"


def test_python_can_be_demanded():
    with reading_with(" Python "):
        assert reader_choice() == ReaderChoice("python", "SHAREGROUP_READER=python")


KEY = ("orders", 0)
PART = PartitionRanges("orders", 0, (AcquiredRange(100, 109, 1),), "T")


def reader_of(consumer, part):
    return Reader(ReadTask(partitions=(part,), kafka_config={}, fail_on_data_loss=False), consumer, [RangeCursor(part)])


class Record:
    def __init__(self, at):
        self.at = at

    def offset(self):
        return self.at


def cursor_of(*ranges):
    return RangeCursor(PartitionRanges("orders", 0, tuple(AcquiredRange(*each) for each in ranges)))


def consumer_that_is_told(topic):
    consumer = KeptConsumer(())
    consumer._consumer = SimpleNamespace(list_topics=lambda name, timeout: SimpleNamespace(topics={name: topic}))
    return consumer


@pytest.fixture(autouse=True)
def no_client(monkeypatch):
    monkeypatch.setattr("share_source.executor.consumers.Consumer", lambda config: None)


def test_records_that_come_a_second_time_are_picked_once():
    cursor = cursor_of((0, 9, 1), (50_000, 50_020, 2))
    assert [r.at for r in cursor.take([Record(9), Record(50_000), Record(50_001)])[0]] == [9, 50_000, 50_001]
    assert cursor.take([Record(50_000), Record(50_001)]) == ([], [], [])
    picked, runs, beyond = cursor.take([Record(at) for at in range(50_000, 50_030)])
    assert ([r.at for r in picked], runs) == (list(range(50_002, 50_021)), [(2, 19)])
    assert [r.at for r in beyond] == list(range(50_021, 50_030))


@pytest.mark.parametrize("code", [KafkaError.LEADER_NOT_AVAILABLE, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_a_broker_error_about_a_topic_does_not_mean_its_deletion(code):
    with pytest.raises(KafkaException):
        consumer_that_is_told(SimpleNamespace(error=KafkaError(code), partitions={})).exists(KEY, 1.0)


def test_a_topic_unknown_to_the_broker_counts_as_deleted():
    unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert not consumer_that_is_told(SimpleNamespace(error=unknown, partitions={})).exists(KEY, 1.0)
    assert not consumer_that_is_told(None).exists(KEY, 1.0)
    assert not consumer_that_is_told(SimpleNamespace(error=None, partitions={})).exists(KEY, 1.0)
    assert consumer_that_is_told(SimpleNamespace(error=None, partitions={0: None})).exists(KEY, 1.0)


def test_a_consumer_beyond_the_logs_end_serves_no_task_there(monkeypatch):
    consumer = KeptConsumer(())
    consumer.positions[KEY] = ConsumerPosition((100, "T"))
    consumer._consumer = SimpleNamespace(
        get_watermark_offsets=lambda partition, timeout: (0, 50), incremental_unassign=lambda partitions: None
    )
    reader_of(consumer, PART)._handle(FetchEvent(KafkaError(KafkaError._AUTO_OFFSET_RESET), "orders", 0, 100))
    assert not consumer.serves({KEY: (110, "T")})


@pytest.mark.parametrize(("answers", "lost"), [([False, True], False), ([False] * 3, True)])
def test_a_broker_that_does_not_know_a_topic_yet_is_asked_again(monkeypatch, answers, lost):
    monkeypatch.setattr("share_source.executor.range_reader.MISSING_TOPIC_PAUSES_S", (0.0, 0.0, 0.0))
    consumer = KeptConsumer(())
    consumer.positions[KEY] = ConsumerPosition((100, "T"))
    consumer._consumer = SimpleNamespace(incremental_unassign=lambda partitions: None)
    monkeypatch.setattr(consumer, "exists", lambda key, timeout_s: answers.pop(0))
    reader = reader_of(consumer, PART)
    reader._check_topics()
    assert reader.done == lost


class RepeatsTheLog(KeptConsumer):
    """Has the log's first ten records only, again and again, wherever it is positioned."""

    made = 0

    def __init__(self, config):
        super().__init__(config)
        RepeatsTheLog.made += 1
        self._consumer = SimpleNamespace(assign=lambda _: None, close=lambda: None)

    def fetch(self, most, timeout_s, *, timestamps=True):
        return Fetched([Record(at) for at in range(10)], [], [])

    def by_partition(self, messages):
        return [(KEY, messages)]


def test_a_client_that_repeats_the_log_for_ever_ends_in_a_timeout(monkeypatch):
    seconds = itertools.count()
    monkeypatch.setattr(range_reader, "Silence", lambda: Silence(lambda: next(seconds)))
    monkeypatch.setattr(RepeatsTheLog, "made", 0)
    part = PartitionRanges("orders", 0, (AcquiredRange(0, 99, 1),), "T")
    cursor, first = RangeCursor(part), RepeatsTheLog(())
    first.position({KEY: (0, "T")})
    reader = Reader(ReadTask(partitions=(part,), kafka_config={}, poll_timeout_ms=60_000), first, [cursor])
    rows = SimpleNamespace(room=100, needs_timestamps=False, add=lambda *_: None)
    reader.begin(rows)
    with pytest.raises(ReadTimeout):
        for _ in range(1_000):
            reader._read_more(rows)
    assert cursor.position == 10, "the first ten were read"
    assert RepeatsTheLog.made > 1, "another client was tried"


class IdleConsumer:
    """A consumer that was given back."""

    def __init__(self, fault: str = "") -> None:
        self.config, self.idle_since_s, self.done = (), 0.0, list[str]()
        self.positions: dict[Any, Any] = {("orders", 0): (0, "T")}
        self._fault = fault

    def park(self) -> None:
        self._do("park")
        self.positions.clear()

    def close(self) -> None:
        self._do("close")

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what == self._fault:
            raise RuntimeError(f"can't {what}")


@pytest.mark.parametrize("fault", ["park", "close"])
def test_a_consumer_that_fails_to_end_keeps_no_other_open(fault, monkeypatch, caplog):
    monkeypatch.setattr(consumers, "PARK_AFTER_S", 0.0)
    monkeypatch.setattr(consumers, "CLOSE_AFTER_S", 0.0)
    cache, failing, other = ConsumerCache(), IdleConsumer(fault), IdleConsumer()
    with caplog.at_level(logging.WARNING):
        cache.give_back(failing)  # type: ignore[arg-type]
        wait_until(lambda: failing.done[-1:] == [fault], what="the first one fails")
        cache.give_back(other)  # type: ignore[arg-type]
        wait_until(lambda: other.done == ["park", "close"], what="the other one is parked and closed")
        wait_until(lambda: not cache._idle and cache._janitor is None, what="nothing is idle, and the thread ends")
    assert [record.getMessage() for record in caplog.records] == [
        f"an idle consumer is dropped: RuntimeError: can't {fault}"
    ]
