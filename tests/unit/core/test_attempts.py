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
from tests.support.group_driver import GroupDriver, from_snapshot, ranges
from tests.support.sink_driver import ACCEPT, DLQ, EXPLICIT, REJECT, RELEASE, batch, run_at, said, states


@pytest.mark.parametrize(
    ("outcomes", "after"),
    [
        ((REJECT, REJECT, REJECT), ["[0..0] ARCHIVING 3"]),
        ((REJECT, None, REJECT), ["[0..0] ARCHIVING 3"]),
        ((None, None, REJECT), ["[0..0] ARCHIVING 3"]),
        ((ACCEPT, REJECT, REJECT), ["[0..0] AVAILABLE 3"]),
        ((REJECT, ACCEPT, REJECT), ["[0..0] AVAILABLE 3"]),
        ((ACCEPT, REJECT, None), ["[0..0] AVAILABLE 3"]),
        ((REJECT, ACCEPT, None), ["[0..0] AVAILABLE 3"]),
        ((ACCEPT, None, ACCEPT), []),
    ],
)
def test_each_explicit_outcome_of_three_attempts_can_veto(
    outcomes: tuple[AcknowledgeType | None, ...], after: list[str]
) -> None:
    """Each explicit outcome can veto; silence counts only where it is the last attempt's."""
    group, plan = batch(1, **DLQ)
    for count, outcome in enumerate(outcomes, 1):
        if outcome is not None:
            group.stage(said(0, 0, outcome, count))
        if count < len(outcomes):
            group.restart(plan)
    group.complete(plan)
    assert states(group) == after


@pytest.mark.parametrize(
    ("attempts", "after"),
    [
        ([(ACCEPT, ACCEPT), (None, ACCEPT), (ACCEPT, ACCEPT)], ["[0..0] AVAILABLE 3", "[1..1] ACKNOWLEDGED 3"]),
        ([(None, ACCEPT), (REJECT, ACCEPT)], ["[0..0] AVAILABLE 2", "[1..1] ACKNOWLEDGED 2"]),
        ([(None, ACCEPT), (RELEASE, ACCEPT)], ["[0..0] AVAILABLE 2", "[1..1] ACKNOWLEDGED 2"]),
        ([(None, None), (RELEASE, None), (RELEASE, ACCEPT)], ["[0..1] AVAILABLE 3"]),
        ([(ACCEPT, ACCEPT), (None, None), (ACCEPT, ACCEPT)], []),
        ([(None, None), (None, None), (ACCEPT, ACCEPT)], []),
    ],
    ids=str,
)
def test_in_explicit_mode_an_attempt_releases_the_records_it_passes_over(
    attempts: list[tuple[AcknowledgeType | None, ...]], after: list[str]
) -> None:
    """Attempts at two records; one in which nothing at all is said had no sink that got so far."""
    group, plan = batch(2, **EXPLICIT)
    for count, outcomes in enumerate(attempts, 1):
        if count > 1:
            group.restart(plan)
        rows = [said(offset, offset, what, count) for offset, what in enumerate(outcomes) if what is not None]
        if rows:
            group.stage(*rows)
    group.complete(plan)
    assert states(group) == after


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


def test_the_last_two_explicit_attempts_are_kept() -> None:
    group, plan = batch(1, **EXPLICIT)
    for count in (1, 2, 3):
        group.stage(said(0, 0, ACCEPT, count))
        group.stage(said(0, 0, ACCEPT, count))
        if count < 3:
            group.restart(plan)
    assert explicit_attempts(group) == (1, 2)


def test_a_commit_without_rows_counts_for_the_plan_that_it_names() -> None:
    group, plan = batch(1, **EXPLICIT)
    group.stage(said(0, 0, ACCEPT))
    group.restart(plan)
    group.silent()
    assert explicit_attempts(group) == (0, 1)


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


def test_rows_name_their_query_and_count_for_no_other() -> None:
    group, _ = batch(1, **EXPLICIT)
    group.join("m2")
    group.ends[0] = 2
    group.start(group.acquire(member="m2").plan.plan_id, "m2")
    group.stage(said(0, 0, ACCEPT), query_id="q")
    assert (explicit_attempts(group), explicit_attempts(group, "m2")) == ((0,), ())


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


def test_only_released_records_are_delayed() -> None:
    group, _ = batch(3)
    group.stage(*(said(n, n, outcome, delay_ms=5) for n, outcome in enumerate((ACCEPT, RELEASE, REJECT))))
    staged = next(record for record in snapshot_of(group.group) if isinstance(record, PlanStaged))
    (_, _, runs), *_ = staged.partitions
    assert [verdict.not_before_ms for _, _, verdict in runs] == [None, group.now_ms + 5, None]


def test_the_last_attempts_outcome_counts() -> None:
    """With the last attempt's reason and delay."""
    group, plan = batch(2, **DLQ)
    group.stage(said(0, 0, REJECT, reason="at first"), said(1, 1, RELEASE, delay_ms=1_000))
    group.restart(plan)
    group.stage(said(0, 0, REJECT, 2, reason="at last"), said(1, 1, RELEASE, 2, delay_ms=9_000))
    group.complete(plan)
    assert run_at(group, 0).reason == "at last"
    assert run_at(group, 1).not_before_ms == group.now_ms + 9_000


def test_attempts_that_disagree_release_the_record() -> None:
    for first, last in ((ACCEPT, REJECT), (REJECT, ACCEPT), (ACCEPT, RELEASE), (RELEASE, REJECT)):
        group, plan = batch(1, **DLQ)
        group.stage(said(0, 0, first))
        group.restart(plan)
        group.stage(said(0, 0, last, 2))
        group.complete(plan)
        assert states(group) == ["[0..0] AVAILABLE 2"], "one attempt's output has it, the other's has not"
        assert ranges(group.acquire(plan)) == [(0, 0, 3)]


def test_silence_of_the_last_attempt_is_an_outcome() -> None:
    """The first attempt rejected; the second, which Spark committed, had no such row: its output has the record."""
    for configs, outcome in product(({}, EXPLICIT), (ACCEPT, REJECT, RELEASE)):
        group, plan = batch(1, **DLQ, **configs)
        group.stage(said(0, 0, outcome))
        group.restart(plan)
        group.complete(plan)
        accepted = not configs and outcome == ACCEPT
        assert states(group) == ([] if accepted else ["[0..0] AVAILABLE 2"])


def test_an_older_attempt_that_agrees_with_silence_vetoes_nothing() -> None:
    group, plan = batch(1, **DLQ)
    group.stage(said(0, 0, ACCEPT))
    group.restart(plan)
    group.complete(plan)
    assert group.partition().start_offset == 1


def test_a_record_that_an_older_explicit_attempt_passed_over_is_released() -> None:
    """A target that skips a known batch keeps the older attempt's output, which lacks the record. The same holds after
    a load, where that attempt's sink staged nothing at all, and when the last attempt's request is repeated."""
    for rows in ((said(1, 1, ACCEPT),), ()):
        group, plan = batch(2, **DLQ, **EXPLICIT)
        group.stage(*rows) if rows else group.silent()
        group.restart(plan)
        from_snapshot(group)
        group.join()
        group.start(plan)
        for _ in range(2):
            group.stage(said(0, 0, ACCEPT, 3), *(row._replace(delivery_count=3) for row in rows))
        group.complete(plan)
        assert run_at(group, 0).state.name == "AVAILABLE"


def test_a_record_accepted_and_then_passed_over_in_explicit_mode_is_released() -> None:
    group, plan = batch(2, **EXPLICIT)
    group.stage(said(0, 1, ACCEPT))
    group.restart(plan)
    group.stage(said(1, 1, ACCEPT, 2))
    group.restart(plan)
    group.stage(said(0, 1, ACCEPT, 3))
    group.complete(plan)
    assert states(group) == ["[0..0] AVAILABLE 3", "[1..1] ACKNOWLEDGED 3"]


def test_an_older_attempt_without_a_commit_vetoes_nothing() -> None:
    """The driver died before the commit, and a target that skips is written to after the sink's commit."""
    group, plan = batch(2, **EXPLICIT)
    group.restart(plan)
    group.stage(said(0, 1, ACCEPT, 2))
    group.stage(said(0, 1, ACCEPT, 2))
    group.complete(plan)
    assert group.partition().start_offset == 2


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
