"""A replayed plan without the records that can't be read."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from coordinator.kafka import damaged_batch
from coordinator.kafka.damaged_batch import Damage, end_of_batch
from coordinator.protocol.errors import BrokerNotReachable
from coordinator.protocol.messages import PartitionPlan
from coordinator.protocol.values import AcquiredRange
from share_source.driver import damaged_records
from share_source.driver.damaged_records import MOST_OFFSETS, damaged_offsets, without
from share_source.executor import range_reader, task_reader
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_cursor import RangeCursor
from share_source.executor.range_reader import Reader, ReadTask

FOUND = {("orders", 0): [Damage(20, 29, -199, "changed on the disk")]}


def plan(*ranges: tuple[int, int, int]) -> PartitionPlan:
    return PartitionPlan(
        topic="orders", topic_id="T", partition=0, ranges=tuple(AcquiredRange(*each) for each in ranges)
    )


def task(*ranges: tuple[int, int, int]) -> ReadTask:
    part = PartitionRanges("orders", 0, tuple(AcquiredRange(*each) for each in ranges))
    return ReadTask(partitions=(part,), kafka_config={})


@pytest.mark.parametrize(
    ("ranges", "kept"),
    [
        ([(0, 49, 2)], [(0, 19, 2), (30, 49, 2)]),
        ([(20, 29, 2)], []),
        ([(0, 19, 2), (30, 49, 3)], [(0, 19, 2), (30, 49, 3)]),
        ([(0, 22, 2), (27, 49, 3)], [(0, 19, 2), (30, 49, 3)]),
    ],
)
def test_tasks_read_what_lies_beside_the_damage(ranges, kept) -> None:
    assert without([plan(*ranges)], FOUND) == ((plan(*kept),) if kept else ())


@pytest.mark.parametrize(
    ("ranges", "found"),
    [([(0, 49, 2)], FOUND), ([(0, 49, 1)], {}), ([(0, MOST_OFFSETS - 1, 2)], FOUND), ([(0, MOST_OFFSETS, 2)], {})],
    ids=["replayed", "first delivery", "the most", "too many"],
)
def test_only_a_replay_that_is_not_too_large_is_looked_through(monkeypatch, ranges, found) -> None:
    monkeypatch.setattr(damaged_records, "pass_through", lambda asked, *_: {} if asked.fail_on_damage else FOUND)
    assert damaged_offsets(task(*ranges)) == found


def test_a_driver_that_cannot_read_leaves_it_to_the_tasks(monkeypatch) -> None:
    def away(*_: object) -> None:
        raise BrokerNotReachable(addresses="none", timeout_ms=1, reason="away")

    monkeypatch.setattr(damaged_records, "pass_through", away)
    assert damaged_offsets(task((0, 9, 2))) == {}


class Clock:
    """A monotonic clock that goes on by what is done: each look at a damaged batch takes ten seconds."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class EndlessDamage(Reader):
    """Finds one damaged batch after the other, far below the offsets at which the ranges end."""

    def __init__(self, clock: Clock, cursor: RangeCursor) -> None:
        super().__init__(task(), SimpleNamespace(positions={}, refused=""), [cursor])  # type: ignore[arg-type]
        self.clock = clock

    def begin(self, rows: Any) -> None:
        """Does nothing: no record was prefetched."""

    def _read_more(self, rows: Any) -> None:
        self.clock.now_s += 10.0
        found = self.damaged.setdefault(("orders", 0), [])
        assert len(found) < 50, "the driver reads on and on"
        found.append(Damage(len(found), len(found), -199, "changed on the disk"))


def test_a_driver_looks_through_damaged_batches_for_a_minute_at_most() -> None:
    clock, replayed = Clock(), task((0, 9_999, 2))
    reader = EndlessDamage(clock, RangeCursor(replayed.partitions[0]))
    fakes = {"time": clock, "open_readers": lambda *_: nullcontext([reader]), "_rows": lambda *_: rows}
    rows, log = SimpleNamespace(room=1), mock.Mock()
    with mock.patch.object(range_reader, "time", clock), mock.patch.multiple(task_reader, logger=log, **fakes):
        found = damaged_offsets(replayed)
    assert len(found["orders", 0]) == 6, "those are rejected"
    assert reader.done and reader.given_up, "the tasks read the others"
    text, after_s = log.warning.call_args.args
    assert (text.startswith("the scan for damaged records stopped after"), after_s) == (True, 60.0)


def test_the_search_for_a_batches_end_stops_with_the_look(monkeypatch) -> None:
    """Each question to a broker that does not answer takes ten seconds."""
    clock = Clock()

    class Silent:
        def assign(self, _: object) -> None: ...
        def close(self) -> None: ...

        def poll(self, timeout_s: float) -> None:
            clock.now_s += timeout_s

    monkeypatch.setattr(damaged_batch, "time", clock)
    assert end_of_batch(Silent, ("orders", 0), 0, 0, 100, until_s=3.0) is None  # type: ignore[arg-type]
    assert clock.now_s == 3.0
