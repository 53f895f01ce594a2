"""◆ Attempts at a batch: the last one counts, its silence too; an older one can only veto."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from coordinator.core.log_records import PlanStaged
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import decode_record
from coordinator.protocol.errors import BatchNotNamed, BatchReclaimed
from coordinator.protocol.messages import OutcomesStaged
from coordinator.protocol.values import AcknowledgeType
from tests.support.group_driver import GroupDriver
from tests.support.sink_driver import ACCEPT, DLQ, EXPLICIT, REJECT, RELEASE, batch, run_at, said


def test_a_commit_without_rows_in_explicit_mode_is_appended_once_an_attempt() -> None:
    group, plan = batch(2, **EXPLICIT)
    appended = []
    for _ in range(2):
        for _ in range(2):
            before = len(group.log)
            group.silent()
            appended.append(len(group.log) - before)
        group.restart(plan)
    assert appended == [1, 0, 1, 0]


def explicit_attempts(group: GroupDriver, member: str = "m1") -> tuple[int, ...]:
    plan = group.group.members[member].newest
    assert plan is not None
    return plan.explicit_attempts


def test_a_commit_without_rows_that_names_no_plan_says_nothing() -> None:
    """Where it would have to say something it is refused: an output that skips a batch which it has may lack records
    that this attempt released. Spark's id of a query is no proof: a thread has none, or another query's."""
    ways: tuple[dict[str, Any], ...] = (
        {"replaces": True},
        {"has_target": False},
        {"acknowledgement_mode": "implicit"},
        {},
    )
    for query_id, fields in product(("", "q", "another"), ways):
        group, plan = batch(1, **EXPLICIT)
        group.join("m2")
        group.ends[0] = 2
        group.start(group.acquire(member="m2").plan.plan_id, "m2", acknowledgement_mode="implicit")
        group.stage(said(0, 0, ACCEPT), query_id="q")
        group.restart(plan)
        before = len(group.log)
        if fields:
            assert group.stage(query_id=query_id, **fields) == OutcomesStaged()
        else:
            with pytest.raises(BatchNotNamed):
                group.stage(query_id=query_id)
        assert len(group.log) == before
        assert explicit_attempts(group) == (0,)


def test_a_replaced_process_is_refused_without_rows_as_well() -> None:
    group, plan = batch(1, **EXPLICIT)
    epoch = group.epochs["m1"]
    group.restart(plan)
    with pytest.raises(BatchReclaimed):
        group.stage(plans={plan: epoch})


def test_only_a_changed_query_id_of_a_sink_is_appended() -> None:
    group, _ = batch(2)
    written = []
    for query_id in ("q", "q", "", "r"):
        group.stage(said(0, 1, ACCEPT), query_id=query_id)
        record = decode_record(group.log[-1])
        assert isinstance(record, PlanStaged)
        written.append((record.query_id, group.group.members["m1"].query_id))
    assert written == [("q", "q"), (None, "q"), (None, "q"), ("r", "r")]


def test_a_repeated_request_changes_nothing_but_delays() -> None:
    group, plan = batch()
    runs = said(0, 3, ACCEPT), said(4, 5, RELEASE, delay_ms=10_000), said(6, 9, REJECT, reason="bad")
    group.stage(*runs)
    once = [record for record in snapshot_of(group.group) if isinstance(record, PlanStaged)]
    assert group.stage(*runs).staged == 10
    assert [record for record in snapshot_of(group.group) if isinstance(record, PlanStaged)] == once
    group.pass_time(5_000)
    group.stage(*runs)
    group.complete(plan)
    assert run_at(group, 4).not_before_ms == group.now_ms + 10_000
    assert group.partition().archived_total == 4


@pytest.mark.parametrize("outcome", [RELEASE, REJECT])
def test_rows_of_an_earlier_attempt_are_refused_after_a_reported_loss(outcome: AcknowledgeType) -> None:
    """The driver that read the batch was stopped; the next one failed for lost data (failOnDataLoss) and read nothing.
    The first one goes on: if its commit were answered, its batch would be committed, and its outcomes lost."""
    group = GroupDriver(records=20, **DLQ)
    group.join("m1")
    plan = group.next(limit=10).plan.plan_id
    group.start(plan)
    group.join("m2")
    group.start(group.next("", "m2").plan.plan_id, "m2")  # another query, whose batch sinks may decide
    group.move_log_start(5)
    assert group.restart(plan, "m1", fail_on_data_loss=True).data_loss
    before = group.dump()
    with pytest.raises(BatchReclaimed):
        group.stage(said(0, 6, ACCEPT), said(7, 7, outcome), said(8, 9, ACCEPT))
    assert group.dump() == before
    assert group.stage(said(10, 19, ACCEPT)).staged == 10, "the other query's rows"


def test_the_last_two_explicit_attempts_are_kept() -> None:
    group, plan = batch(1, **EXPLICIT)
    for count in (1, 2, 3):
        group.stage(said(0, 0, ACCEPT, count))
        group.stage(said(0, 0, ACCEPT, count))
        if count < 3:
            group.restart(plan)
    assert explicit_attempts(group) == (1, 2)
