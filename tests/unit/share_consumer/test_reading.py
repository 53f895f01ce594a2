"""How a ShareConsumer reads from several brokers, and which partitions it leaves out; the readers are stubs."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from coordinator.protocol.messages import PartitionPlan
from coordinator.protocol.repeated_lines import Outage
from coordinator.protocol.values import AcquiredRange
from share_consumer import reading
from share_consumer.silent_partitions import SilentPartitions
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


RANGES = (AcquiredRange(0, 4, 1),)
ONE, OTHER = (PartitionPlan(topic="orders", topic_id="T", partition=at, ranges=RANGES) for at in range(2))


@pytest.fixture
def silent() -> SilentPartitions:
    return SilentPartitions(Outage(logging.getLogger(__name__), "the brokers", clock=lambda: 100.0))


def test_a_partition_is_left_out_for_longer_each_time(silent: SilentPartitions) -> None:
    pauses = []
    for _ in range(7):
        silent.gave_up(ONE, 100.0, 3.0)
        pauses.append(next(s for s in range(1, 100) if not silent.now(100.0 + s)))
    assert pauses == [1, 2, 4, 8, 16, 16, 16]


def test_a_slow_broker_gets_more_time_each_time_up_to_48_s(silent: SilentPartitions) -> None:
    given = []
    for _ in range(6):
        given.append(silent.patience_s((OTHER, ONE)))
        silent.gave_up(ONE, 100.0, 3.0)
    assert given == [3, 6, 12, 24, 48, 48]
    assert silent.patience_s((OTHER,)) == 3


def test_a_read_resets_the_patience_of_its_partition(silent: SilentPartitions) -> None:
    silent.gave_up(ONE, 100.0, 3.0)
    silent.gave_up(OTHER, 100.0, 3.0)
    assert silent.now(100.5) == (("T", 0), ("T", 1))
    assert silent.now(101.0) == ()
    silent.read(ONE)
    assert (silent.patience_s((ONE,)), silent.patience_s((OTHER,))) == (3, 6)


def test_an_outage_and_its_end_are_logged_once(silent: SilentPartitions, caplog: pytest.LogCaptureFixture) -> None:
    for plan in (ONE, OTHER, ONE):
        silent.gave_up(plan, 100.0, 3.0)
    silent.read(ONE)
    silent.read(OTHER)
    silent.read(OTHER)
    found = [record.getMessage() for record in caplog.records]
    assert found == ["the brokers: no answer for 3 s: orders-0", "the brokers: answers again after 3 s"]
