"""The backlog of dead letters: looked at in parts, in order, each record once."""

import pytest

from coordinator.core.commands import DeadLettersWritten
from coordinator.core.log_records import RunsChanged
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.protocol.values import Disposition, OffsetRange, SharePartitionKey
from coordinator.service.dead_letters import group_backlog
from coordinator.service.dead_letters.group_backlog import BEGINNING, Due, coalesced, look
from tests.support.group_driver import TOPIC_ID, GroupDriver
from tests.support.source_driver import run_transaction

REJECTED = Run(RecordState.ARCHIVING, 1, disposition=Disposition.REJECTED)
LIMIT = Run(RecordState.ARCHIVING, 5, disposition=Disposition.DELIVERY_LIMIT, reason="why")


@pytest.fixture
def group():
    driver = GroupDriver(partitions=2, records=100, **{"errors.deadletterqueue.topic.name": "dlq"})
    put(driver, 0, (3, 5, REJECTED), (6, 6, LIMIT), (40, 60, REJECTED))
    put(driver, 1, (0, 9, LIMIT))
    return driver


def put(driver, partition, *runs):
    driver.append((RunsChanged(topic_id=TOPIC_ID, partition=partition, runs=runs),))


def seen(backlog):
    return [(due.offsets.partition, due.offsets.first, due.offsets.last, due.delivery_count) for due in backlog.due]


def looked(group, begin=BEGINNING, wanted=lambda partition: True):
    return run_transaction(group, look(begin, wanted))


def test_a_look_returns_waiting_records_and_the_contents_of_their_dead_letters(group):
    backlog = looked(group)
    assert seen(backlog) == [(0, 3, 5, 1), (0, 6, 6, 5), (0, 40, 60, 1), (1, 0, 9, 5)]
    assert backlog.due[1][-2:] == (Disposition.DELIVERY_LIMIT, "why")
    assert backlog.due[0].topic == "orders"
    assert backlog.reached is None
    assert backlog.config.errors_deadletterqueue_topic_name == "dlq"


@pytest.mark.parametrize("most", [1, 2, 7, 31, 34, 35, 36])
def test_successive_looks_return_each_record_once(group, monkeypatch, most):
    monkeypatch.setattr(group_backlog, "MOST_RECORDS", most)
    found, place = [], BEGINNING
    while place is not None:
        backlog = looked(group, place)
        assert sum(due.offsets.size for due in backlog.due) <= most
        found += [(due.offsets.partition, n) for due in backlog.due for n in due.offsets.as_range()]
        place = backlog.reached
    assert found == [(0, n) for n in (3, 4, 5, 6, *range(40, 61))] + [(1, n) for n in range(10)]


def test_a_look_returns_a_bounded_number_of_runs(group, monkeypatch):
    monkeypatch.setattr(group_backlog, "MOST_RUNS", 2)
    first = looked(group)
    second = looked(group, first.reached)
    assert [seen(first), seen(second)] == [[(0, 3, 5, 1), (0, 6, 6, 5)], [(0, 40, 60, 1), (1, 0, 9, 5)]]


def test_partitions_that_are_not_wanted_are_left_out(group):
    assert seen(looked(group, wanted=lambda partition: partition == 1)) == [(1, 0, 9, 5)]


def test_a_look_continues_inside_a_run_that_changed_since(group):
    put(group, 0, (40, 45, Run(RecordState.ARCHIVED, 1)))
    assert seen(looked(group, (SharePartitionKey(TOPIC_ID, 0), 43))) == [(0, 46, 60, 1), (1, 0, 9, 5)]
    assert seen(looked(group, (SharePartitionKey(TOPIC_ID, 0), 50))) == [(0, 50, 60, 1), (1, 0, 9, 5)]


def test_a_missing_group_has_no_backlog():
    driver = GroupDriver(partitions=0)
    driver.group.incarnation = ""
    assert looked(driver) is None


def test_filed_dead_letters_archive_records_of_the_same_incarnation_only(group):
    letters = [DeadLettersWritten(offsets=OffsetRange(TOPIC_ID, 1, 0, 9), delivery_count=5)]
    run_transaction(group, group_backlog.mark_written("another", letters))
    assert group.partition(1).archiving_count == 10
    run_transaction(group, group_backlog.mark_written(group.group.incarnation, letters))
    assert group.partition(1).archiving_count == 0


def test_records_are_filed_in_ranges_of_one_delivery_count():
    def due(partition, count, reason=""):
        return Due("orders", OffsetRange(TOPIC_ID, partition, 0, 99), count, Disposition.REJECTED, reason)

    records = [(due(0, 1), 1), (due(0, 1, "x"), 2), (due(0, 2), 3), (due(0, 2), 5), (due(1, 2), 6)]
    assert [(*f.offsets[1:], f.delivery_count) for f in coalesced(records)] == [
        (0, 1, 2, 1),
        (0, 3, 3, 2),
        (0, 5, 5, 2),
        (1, 6, 6, 2),
    ]
