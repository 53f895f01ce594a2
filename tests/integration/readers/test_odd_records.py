"""Records that a Kafka log can have and a column can't: both readers read them, and show the same."""

import confluent_kafka
import pytest
from confluent_kafka import Producer

from coordinator.kafka.librdkafka import WITHOUT_A_GROUP
from coordinator.kafka.record_headers import headers_of
from share_source.executor.task_reader import read_task
from tests.support.raw_headers import produce_raw_headers
from tests.support.read_tasks import rows
from tests.support.share_messages import messages_of

pytestmark = pytest.mark.broker

ANY_TIME = {"message_timestamp_after_max_ms": 2**63 - 1, "retention_ms": -1}
LATEST_MS = (2**63 - 1) // 1000
ODD = (
    b"\xff\xfe",
    b"gr\xf6\xdfe",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\xe0\x80\x80",
    b"\xf4\x90\x80\x80",
    b"\xe9",
    b"a\xe4\xb8",
)
NAMES = (b"ok", *ODD, "größe 鍵 😀".encode())
SHOWN = ["ok", *["\ufffd"] * len(ODD), "größe 鍵 😀"]


def produce_at(kafka, name: str, *times_ms: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for time_ms in times_ms:
        producer.produce(name, b"x", partition=0, timestamp=time_ms)
    assert producer.flush(60) == 0


def test_a_message_has_any_time_and_a_column_null_for_the_latest(kafka, topic, task, reader):
    name, times = topic(**ANY_TIME), (1_700_000_000_000, LATEST_MS + 1, 2**62, LATEST_MS)
    produce_at(kafka, name, *times)
    asked = task({(name, 0): [(0, 3, 1)]})
    (batch,) = read_task(asked)
    batch.validate(full=True)
    assert batch.column("timestamp").cast("int64").to_pylist() == [times[0] * 1000, None, None, LATEST_MS * 1000]
    assert [message.timestamp() for message in messages_of(asked, reader)] == [(1, time_ms) for time_ms in times]


def test_a_header_name_that_is_no_text_is_replaced(kafka, topic, task, reader):
    name = topic()
    kafka.produce(name, ["before"], partition=0, headers=[("h", b"2")])
    produce_raw_headers(kafka.bootstrap, name, NAMES)
    asked = task({(name, 0): [(0, 1, 1)]}, include_headers=True)
    first, second = (row["headers"] for row in rows(asked))
    assert first == [{"key": "h", "value": b"2"}]
    assert second == [{"key": shown, "value": b"1"} for shown in SHOWN]
    _, message = messages_of(asked, reader)
    for _ in range(2):
        assert message.headers() == [(shown, b"1") for shown in SHOWN]


def test_code_that_ran_often_reads_headers_of_any_name(kafka, topic):
    """Python 3.11 leaves checks out of calls in code that ran often: the exception came up at a later line."""
    name, count = topic(), 40
    for _ in range(count):
        produce_raw_headers(kafka.bootstrap, name, NAMES)
    consumer = confluent_kafka.Consumer({**WITHOUT_A_GROUP, "bootstrap.servers": kafka.bootstrap})
    consumer.assign([confluent_kafka.TopicPartition(name, 0, 0)])
    found = [headers_of(message) for message in consumer.consume(count, 60)]
    consumer.close()
    assert found == [[(shown, b"1") for shown in SHOWN]] * count
