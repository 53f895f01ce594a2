"""How many records a ShareConsumer acquires ahead of its program, and when."""

from __future__ import annotations

import pytest

from share_consumer.pace import (
    AHEAD_BYTES,
    AHEAD_RECORDS,
    AHEAD_S,
    BACKLOG_RECORDS,
    FULL_ANSWERS,
    MOST_READ_S,
    Pace,
    Question,
)

LOCK_S = 30.0


class Program:
    """A program that needs ``each_s`` seconds for a record, and a group that is behind."""

    def __init__(self, each_s: float, *, most: int = 500, bytes_each: float = 200, lock_s: float = LOCK_S) -> None:
        self.pace, self.each_s, self.now_s = Pace(most), each_s, 100.0
        self.most, self.bytes_each, self.lock_s, self.took_s = most, bytes_each, lock_s, 0.01

    def poll(self, *, asked: int | None = None, came: int | None = None) -> None:
        """A poll with an answer, and the work on what it returned."""
        self.pace.polled(self.now_s)
        asked = self.most if asked is None else asked
        self.pace.answered(asked, asked if came is None else came, self.bytes_each, self.lock_s, self.took_s)
        self.pace.returned(self.most, self.now_s)

    def work(self) -> None:
        self.now_s += self.most * self.each_s

    def asks(self, left: int = 0) -> Question | None:
        return self.pace.next_question(left, self.now_s)

    def steady(self, polls: int = BACKLOG_RECORDS // 500) -> Program:
        for _ in range(polls):
            self.poll()
            self.work()
        self.poll()
        return self


def test_nothing_is_asked_ahead_before_several_full_answers() -> None:
    program = Program(0.0001, most=BACKLOG_RECORDS)
    for _ in range(FULL_ANSWERS - 1):
        program.poll()
        assert program.asks() is None
        program.work()
    program.poll()
    assert program.asks() is not None
    program.work()
    program.poll(came=BACKLOG_RECORDS - 1)
    assert program.asks() is None, "the group is not behind"


def test_a_fast_program_gets_more_each_time() -> None:
    program = Program(0.000001)
    asked = []
    for _ in range(12):
        program.poll(asked=asked[-1] if any(asked) else None)
        asked.append(question.records if (question := program.asks()) else 0)
        program.work()
    assert asked[:5] == [0, 0, 0, 64_000, AHEAD_RECORDS]
    assert max(asked) == asked[-1] == AHEAD_RECORDS


def test_records_wait_for_as_long_as_a_program_takes_for_them() -> None:
    question = Program(0.0002).steady(10).asks()
    assert question is not None and question.records == pytest.approx(AHEAD_S / 0.0002, rel=0.01)


def test_a_slow_program_gets_one_polls_records_shortly_before_it_needs_them() -> None:
    program = Program(0.005).steady()
    question = program.asks()
    assert question is not None
    assert question.records == 500
    assert question.at_s == pytest.approx(program.now_s + 500 * 0.005 - AHEAD_S)


@pytest.mark.parametrize(("took_s", "ahead_s"), [(0.3, 0.9), (9.0, 1.5), (0.01, AHEAD_S)])
def test_slow_answers_are_requested_earlier(took_s: float, ahead_s: float) -> None:
    """A 20th of the lock is the limit."""
    program = Program(0.005)
    program.took_s = took_s
    question = program.steady().asks()
    assert question is not None and question.at_s == pytest.approx(program.now_s + 500 * 0.005 - ahead_s)


def test_a_very_slow_program_gets_no_records_ahead() -> None:
    assert Program(0.02).steady().asks() is None


def test_nothing_is_acquired_ahead_while_half_of_the_amount_waits() -> None:
    program = Program(0.0001).steady(10)
    assert program.asks(left=1_251) is None
    question = program.asks(left=1_250)
    assert question is not None and question.records == 1_250


@pytest.mark.parametrize(("bytes_each", "records"), [(AHEAD_BYTES / 10, 10), (2 * AHEAD_BYTES, 1)])
def test_large_records_are_few(bytes_each: float, records: int) -> None:
    question = Program(0.000001, bytes_each=bytes_each).steady(10).asks()
    assert question is not None and question.records == records


def test_a_short_lock_is_not_spent_on_waiting() -> None:
    question = Program(0.0001, most=10, lock_s=1.0).steady(BACKLOG_RECORDS // 10).asks()
    assert question is not None and question.records == pytest.approx(0.05 / 0.0001, rel=0.01)


def test_no_more_is_asked_for_than_is_read_in_a_while() -> None:
    program = Program(0.0).steady()
    quick = program.asks()
    program.pace.answered(500, 500, 200, LOCK_S, 0.11, 0.1)
    slow = program.asks()
    assert quick is not None and slow is not None
    assert slow.records == 500 * MOST_READ_S / 0.1 < quick.records
