"""The reader of dead letters' originals beside a client that begins at the log's start again behind a damaged batch."""

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError

from coordinator.dead_letters import source_records
from coordinator.dead_letters.source_records import AbsenceReason, Absent, SourceRecordReader
from coordinator.kafka.librdkafka import Silence
from coordinator.protocol.errors import BrokerNotReachable

DAMAGED_FIRST, AFTER, END = 20, 30, 50
MOST_POLLS = 1_000


@dataclass
class Answer:
    """A record, or the error of the damaged batch."""

    at: int

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._BAD_MSG) if self.at == DAMAGED_FIRST else None

    def key(self) -> None: ...
    def headers(self) -> None: ...

    def value(self) -> bytes:
        return b"%d" % self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


class Client:
    """Answers its first assignment rightly, and each later one with the log from its start, unless ``is_right``."""

    polls = 0

    def __init__(self, *, is_right: bool) -> None:
        self.is_right, self.has_begun = is_right, False
        self.answers: list[Answer] = []

    def assign(self, partitions: Any) -> None:
        at = partitions[0].offset if self.is_right or not self.has_begun else 0
        at = DAMAGED_FIRST if DAMAGED_FIRST <= at < AFTER else at
        self.answers, self.has_begun = (
            [Answer(each) for each in range(at, DAMAGED_FIRST + 1 if at < AFTER else END)],
            True,
        )

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        return 0, END

    def list_topics(self, topic: str, timeout: float) -> Any:
        partitions = type("Topic", (), {"error": None, "partitions": {0: None}})
        return type("Topics", (), {"topics": {topic: partitions}})

    def consume(self, most: int, timeout_s: float) -> list[Answer]:
        Client.polls += 1
        assert Client.polls < MOST_POLLS, "the log is read for ever"
        found, self.answers = self.answers[:most], self.answers[most:]
        return found

    def unassign(self) -> None: ...
    def close(self) -> None: ...


def read(monkeypatch: pytest.MonkeyPatch, *offsets: int, is_right: bool) -> list[Any]:
    seconds = itertools.count()
    monkeypatch.setattr(Client, "polls", 0)
    monkeypatch.setattr(source_records, "Silence", lambda: Silence(lambda: next(seconds)))
    monkeypatch.setattr(source_records, "end_of_batch", lambda *_: AFTER)
    monkeypatch.setattr(source_records, "new_client", lambda *_: Client(is_right=is_right))
    return list(SourceRecordReader("broker:9092", {}).read("orders", 0, offsets))


def test_each_reading_of_a_damaged_batch_has_a_new_client(monkeypatch):
    found = read(monkeypatch, 5, 19, 20, 29, 31, is_right=False)
    assert [each.offset for each in found] == [5, 19, 20, 29, 31]
    assert [each.offset for each in found if isinstance(each, Absent)] == [20, 29]
    assert {each.why for each in found if isinstance(each, Absent)} == {AbsenceReason.DAMAGED}


def test_a_client_that_repeats_the_log_for_ever_is_an_error(monkeypatch):
    monkeypatch.setattr(SourceRecordReader, "drop_consumer", lambda *_: None)  # the client stays the same
    with pytest.raises(BrokerNotReachable, match="_BAD_MSG"):
        read(monkeypatch, 5, 25, is_right=False)
