"""A completion records how many records it decided, and whether it is evidence."""

from __future__ import annotations

from coordinator.core.log_records import PlanCompleted
from coordinator.core.record_codec import decode_record
from tests.support.group_driver import GroupDriver
from tests.support.sink_driver import ACCEPT, EXPLICIT, REJECT, RELEASE, batch, said


def decided_at_last(group: GroupDriver) -> int:
    """The number of records that the last completion in the log decided."""
    done = decode_record(group.log[-1])
    assert isinstance(done, PlanCompleted)
    return done.records


def test_a_completion_appends_its_count_of_decided_records() -> None:
    group, plan = batch(10)
    group.stage(said(0, 3, ACCEPT), said(4, 5, RELEASE), said(6, 9, REJECT))
    group.complete(plan)
    assert decided_at_last(group) == 8


def test_the_completion_of_a_returned_plan_appends_no_decided_record() -> None:
    group, plan = batch(3, **EXPLICIT)
    assert group.complete(plan).undecided
    assert decided_at_last(group) == 0


def test_a_completion_counts_the_records_of_all_partitions() -> None:
    group = GroupDriver(partitions=3)
    group.ends = {0: 5, 1: 10, 2: 20}
    group.join()
    group.complete(group.next().plan.plan_id)
    completed = decode_record(group.log[-1])
    assert isinstance(completed, PlanCompleted)
    assert completed.records == 35
