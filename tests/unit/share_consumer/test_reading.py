"""How a ShareConsumer reads an acquisition of several brokers; the readers are stubs."""

from __future__ import annotations

from typing import Any

import pytest

from share_consumer import reading
from share_source.errors import ReadTimeout
from share_source.executor.range_cursor import Key

TIMEOUT = ReadTimeout(topic="orders", partition=1, offset=0, last=4, timeout_ms=1000, reason="nothing")


class StubReader:
    """A reader whose reads bring something (True), nothing (False), or an error; the last one, if no True, again."""

    def __init__(self, *reads: bool | Exception, others_answer: bool = False, is_answered: bool = False) -> None:
        self.reads, self.others_answer, self.is_answered = list(reads), others_answer, is_answered
        self.has_begun = False
        self.given_up: dict[Key, list[tuple[int, int]]] = {}

    @property
    def done(self) -> bool:
        return not self.reads

    def begin(self, into: Any) -> None: ...

    def read_on(self, into: Any, until_s: float) -> bool:
        read = self.reads.pop(0) if len(self.reads) > 1 or self.reads[0] is True else self.reads[0]
        if isinstance(read, Exception):
            raise read
        self.has_begun |= read
        return read

    def give_up(self) -> None:
        if self.reads:
            self.given_up = {("orders", 1): [(0, 4)]}
            self.reads.clear()


def read(*readers: StubReader, patience_s: float = 0.0) -> None:
    reading._read_what_comes(readers, None, patience_s)  # type: ignore[arg-type]  # stubs


def test_once_records_are_read_a_silent_broker_is_given_up() -> None:
    first, silent, last = StubReader(True), StubReader(False), StubReader(False, True)
    read(silent, first, last, patience_s=0.001)
    assert silent.given_up and not first.given_up


def test_records_that_come_in_turns_are_all_read() -> None:
    slow, quick = StubReader(False, False, True, True), StubReader(True, True)
    read(slow, quick, patience_s=60.0)
    assert not slow.given_up and not quick.given_up


def test_after_its_time_a_reading_ends_with_what_has_come() -> None:
    flows, next_one = StubReader(True, True, True, True), StubReader(True)
    reading._read_what_comes([flows, next_one], None, 60.0, until_s=0.0)  # type: ignore  # stubs
    assert (flows.done, next_one.done) == (False, False) and flows.has_begun
    silent = StubReader(False, False, True, False)
    reading._read_what_comes([silent], None, 60.0, until_s=0.0)  # type: ignore  # stubs
    assert silent.has_begun, "it waits for the first record, however long"


def test_where_no_broker_answers_reading_waits_until_its_timeout() -> None:
    with pytest.raises(ReadTimeout):
        read(StubReader(False, False, False, TIMEOUT), StubReader(False))


def test_a_silent_broker_is_given_up_where_another_broker_answers() -> None:
    silent = StubReader(False, False, others_answer=True)
    read(silent)
    assert silent.given_up


def test_a_broker_that_answers_without_records_is_waited_for() -> None:
    """It refuses, or its log ends before the records: only the timeout of a task tells what to do."""
    answered = StubReader(False, False, False, TIMEOUT, others_answer=True, is_answered=True)
    with pytest.raises(ReadTimeout):
        read(answered)


def test_a_timeout_gives_up_its_own_reader_where_others_have_read() -> None:
    silent, flows = StubReader(TIMEOUT), StubReader(True, True, True)
    flows.has_begun = True
    read(silent, flows, patience_s=60.0)
    assert silent.given_up and not flows.given_up
