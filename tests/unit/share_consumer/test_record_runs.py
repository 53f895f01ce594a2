"""The records of an acquisition as runs, and the offsets of it that have no record."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from coordinator.protocol.messages import PartitionPlan
from coordinator.protocol.values import AcknowledgeType, AcquiredRange
from share_consumer.message import Message
from share_consumer.record_runs import RunCollector, split
from tests.support.share_members import run_of

ORDERS = ("orders", 0)
GAP, RELEASE = AcknowledgeType.GAP, AcknowledgeType.RELEASE


def collector(*ranges: tuple[int, int, int]) -> RunCollector:
    plan = PartitionPlan(
        topic="orders", topic_id="T", partition=0, ranges=tuple(AcquiredRange(*each) for each in ranges)
    )
    return RunCollector([plan])


def add(into: RunCollector, *offsets: int, runs: tuple[tuple[int, int], ...] = ()) -> None:
    read = [confluent_kafka.Message(topic="orders", partition=0, offset=offset, value=b"v") for offset in offsets]
    into.add(ORDERS, read, list(runs or [(1, len(read))]), [])


def runs(of: RunCollector) -> list[tuple[int, int, int]]:
    return [(run.first, run.last, run.delivery_count) for run in of.runs()]


def test_neighbours_of_one_delivery_count_are_one_run() -> None:
    found = collector((0, 9, 1), (10, 12, 2))
    add(found, 0, 1, 2)
    add(found, 3, 4, 5, 7, 9)
    add(found, 10, 11, 12, runs=((2, 3),))
    assert runs(found) == [(0, 5, 1), (7, 7, 1), (9, 9, 1), (10, 12, 2)]
    assert [m.delivery_count() for run in found.runs() for m in run.messages] == [1] * 8 + [2] * 3
    assert len(found) == 11


@pytest.mark.parametrize(
    ("offsets", "lost", "unread"),
    [
        ((0, 1, 2, 5, 6), [], []),
        ((), [], [(0, 2, GAP), (5, 6, GAP)]),
        ((1, 5), [], [(0, 0, GAP), (2, 2, GAP), (6, 6, GAP)]),
        ((2, 6), [(0, 0), (5, 5)], [(0, 0, RELEASE), (1, 1, GAP), (5, 5, RELEASE)]),
        ((5,), [(0, 6)], [(0, 2, RELEASE), (6, 6, RELEASE)]),
    ],
)
def test_each_acquired_offset_is_a_record_a_gap_or_lost(offsets, lost, unread):
    found = collector((0, 2, 1), (5, 6, 3))
    counts = [1 if at < 5 else 3 for at in offsets]
    if offsets:
        add(found, *offsets, runs=tuple((count, counts.count(count)) for count in sorted(set(counts))))
    missing = found.unread(found._partitions.values(), {ORDERS: lost})
    assert [(each.range.first, each.range.last, each.kind) for each in missing] == unread
    assert all(each.range.delivery_count == (1 if each.range.last < 5 else 3) for each in missing)


def test_a_part_of_a_run_is_taken_once() -> None:
    run = run_of(10, 5)
    part = run.part(2)
    for _ in range(2):
        run.skip_to(part.last + 1)
    assert [m.offset() for m in part.messages] == [10, 11]
    assert [m.offset() for m in run.messages] == [12, 13, 14]
    assert [m.offset() for m in run.part(9).messages] == [12, 13, 14]


def test_a_message_has_every_method_of_confluents_message() -> None:
    read = confluent_kafka.Message(
        topic="orders", partition=3, offset=7, key=b"k", value=b"v", headers=[("h", b"1")], timestamp=(1, 5)
    )
    message = Message(read, 4)
    assert isinstance(message, confluent_kafka.Message) and type(message).__name__ == "Message"
    missing = [name for name in dir(read) if not name.startswith("__") and not hasattr(message, name)]
    assert not missing, "each method of confluent's"
    same = [name for name in dir(read) if not name.startswith(("__", "set_", "delivery_count"))]
    assert [getattr(message, name)() for name in same] == [getattr(read, name)() for name in same]
    assert (message.delivery_count(), len(message)) == (4, len(read))
    message.set_value("text")
    message.set_key(None)
    assert (message.value(), message.key()) == ("text", None)


@pytest.mark.parametrize(
    ("left", "read", "rest"),
    [
        ({}, [(0, 4, 1), (7, 9, 2)], []),
        ({ORDERS: 0}, [], [(0, 4, 1), (7, 9, 2)]),
        ({ORDERS: 3}, [(0, 2, 1)], [(3, 4, 1), (7, 9, 2)]),
        ({ORDERS: 5}, [(0, 4, 1)], [(7, 9, 2)]),
        ({ORDERS: 6}, [(0, 4, 1)], [(7, 9, 2)]),
        ({ORDERS: 8}, [(0, 4, 1), (7, 7, 2)], [(8, 9, 2)]),
    ],
)
def test_each_offset_is_in_what_was_read_or_in_the_rest(left: Any, read: Any, rest: Any) -> None:
    ranges = (AcquiredRange(0, 4, 1), AcquiredRange(7, 9, 2))
    plan = PartitionPlan(topic="orders", topic_id="T", partition=0, ranges=ranges)
    assert tuple([tuple(held) for part in of for held in part.ranges] for of in split((plan,), left)) == (read, rest)
