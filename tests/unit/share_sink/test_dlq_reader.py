"""The reader of a dead letter topic beside a client that begins at the log's start again behind a damaged batch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordinator.kafka.librdkafka import Silence
from share_sink.errors import DeadLettersNotRead
from share_sink.redrive import dlq_reader

DAMAGED_FIRST, AFTER, END = 20, 30, 50
MOST_POLLS = 1_000


@dataclass
class Answer:
    """A record, or the error of the damaged batch."""

    at: int

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._BAD_MSG) if self.at == DAMAGED_FIRST else None


class Client:
    """Answers each assignment with the log from its start, ``repeats`` times, and then from the asked offset."""

    def __init__(self, repeats: float) -> None:
        self.repeats, self.polls = repeats, 0
        self.answers: list[Answer] = []

    def assign(self, partitions: Any) -> None:
        self.answers = [Answer(at) for at in range(DAMAGED_FIRST + 1)]

    def incremental_unassign(self, partitions: Any) -> None:
        self.answers = []

    def incremental_assign(self, partitions: Any) -> None:
        self.repeats -= 1
        if self.repeats >= 0 or partitions[0].offset < AFTER:
            self.assign(partitions)
        else:
            self.answers = [Answer(at) for at in range(AFTER, END)]

    def consume(self, most: int, timeout_s: float) -> list[Answer]:
        self.polls += 1
        assert self.polls < MOST_POLLS, "the topic is read for ever"
        found, self.answers = self.answers[:most], self.answers[most:]
        return found


def read(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seconds, asked = itertools.count(), []
    monkeypatch.setattr(dlq_reader, "Silence", lambda: Silence(lambda: next(seconds)))
    monkeypatch.setattr(dlq_reader, "end_of_batch", lambda *_: asked.append(1) or AFTER)
    try:
        return [each.offset() for each in dlq_reader._read(client, "dlq", {0: (0, END)}, lambda: pytest.fail("asked"))]
    finally:
        assert len(asked) == 1, "the batch's end is found once"


def test_a_client_that_repeats_the_log_for_ever_is_an_error(monkeypatch):
    with pytest.raises(DeadLettersNotRead, match="no record for 60 s"):
        read(Client(float("inf")), monkeypatch)


def test_what_a_client_repeats_behind_a_damaged_batch_is_read_once(monkeypatch):
    assert read(Client(9), monkeypatch) == [*range(DAMAGED_FIRST), *range(AFTER, END)]


def test_the_ends_are_asked_again_while_a_leader_changes() -> None:
    answers = iter([KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)), (3, 7)])

    class Asked:
        def get_watermark_offsets(self, partition: Any, timeout_s: float) -> tuple[int, int]:
            answer = next(answers)
            if isinstance(answer, KafkaException):
                raise answer
            return answer

    assert dlq_reader._ends(Asked(), "dlq", 1) == {0: (3, 7)}
