"""A completion records how many records it decided, and whether it is evidence."""

from __future__ import annotations

import pytest

from coordinator.core.log_records import PlanCompleted
from coordinator.core.record_codec import decode_record
from coordinator.protocol.values import AcknowledgeType, OffsetRange
from tests.support.group_driver import TOPIC_ID, GroupDriver
from tests.support.sink_driver import ACCEPT, EXPLICIT, REJECT, RELEASE, batch, said


@pytest.mark.parametrize(
    ("outcome", "evidence"), [(ACCEPT, True), (REJECT, True), (RELEASE, False)], ids=lambda value: str(value)
)
def test_only_accepted_and_rejected_records_are_evidence(outcome: AcknowledgeType, evidence: bool) -> None:
    group, plan = batch(1)
    group.stage(said(0, 0, outcome))
    group.complete(plan)
    assert group.group.members["m1"].evidence is evidence


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


def test_neither_gaps_nor_silence_in_explicit_mode_is_evidence() -> None:
    group, plan = batch(3, **EXPLICIT)
    group.silent()
    group.complete(plan, gaps=(OffsetRange(topic_id=TOPIC_ID, partition=0, first=0, last=1),))
    assert not group.group.members["m1"].evidence


def test_a_returned_plan_is_no_evidence() -> None:
    group, plan = batch(3, **EXPLICIT)
    group.complete(plan)
    assert not group.group.members["m1"].evidence


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
