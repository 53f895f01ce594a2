"""The partitions that a ShareConsumer leaves out of its questions: for how long, and what the log says."""

from __future__ import annotations

import logging

import pytest

from coordinator.protocol.messages import PartitionPlan
from coordinator.protocol.repeated_lines import Outage
from coordinator.protocol.values import AcquiredRange
from share_consumer.silent_partitions import SilentPartitions

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
    assert [record.getMessage() for record in caplog.records] == [
        "the brokers: no answer for 3 s: orders-0",
        "the brokers: answers again after 3 s",
    ]
