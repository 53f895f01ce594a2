"""The memory of log lines does not grow with their number in the past, and that of Python's reader not with the size of
the records."""

import logging
from typing import Any

import pytest
from confluent_kafka import Message

from coordinator.protocol import repeated_lines
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.values import AcquiredRange
from share_source.executor import consumers
from share_source.executor.consumers import HELD_BYTES, ConsumerPosition, KeptConsumer
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_cursor import RangeCursor
from share_source.executor.range_reader import Reader, ReadTask
from share_source.executor.record_batches import Rows

LARGE: list[dict[str, Any]] = [{"value": bytes(1 << 20)}, {"key": bytes(1 << 20)}, {"headers": [("h", bytes(1 << 20))]}]


def test_keys_of_log_lines_that_name_groups_are_forgotten(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(repeated_lines, "MOST_KEYS", 3)
    log = LogOnce(logging.getLogger("bounded"), lambda: 0.0)
    for n in range(10):
        log.warn(f"group {n}", "a line")
    log.warn("group 9", "a line")
    assert len(caplog.records) == 10 and len(log._known) == 3


def records_of(most_bytes: int, fields: dict[str, Any]) -> list[Message]:
    """Records of a MiB each, one more than have that many bytes."""
    return [
        Message(topic="orders", partition=0, offset=n, timestamp=(1, n), **fields)
        for n in range((most_bytes >> 20) + 1)
    ]


@pytest.mark.parametrize("large", LARGE, ids=lambda each: next(iter(each)))
def test_large_records_behind_a_partitions_end_are_not_kept(
    monkeypatch: pytest.MonkeyPatch, large: dict[str, Any]
) -> None:
    """The consumer still reads others, and the next task may want these."""
    left: list[Any] = []
    monkeypatch.setattr(consumers, "new_client", lambda *_: None)
    monkeypatch.setattr(KeptConsumer, "leave", lambda self, key: left.append(key))
    consumer, key = KeptConsumer(()), ("orders", 0)
    consumer.positions[key] = ConsumerPosition((0, ""))
    cursor = RangeCursor(PartitionRanges(*key, (AcquiredRange(0, 0, 1),)))
    reader = Reader(ReadTask(partitions=(), kafka_config={}), consumer, [cursor])
    rows = Rows(include_headers=False, digests={"orders": 1})
    for message in records_of(HELD_BYTES, large):
        assert not left
        reader._take(cursor, [message], rows, None)
        reader._seen(cursor, (message.offset() or 0) + 1)
    assert left == [key]
