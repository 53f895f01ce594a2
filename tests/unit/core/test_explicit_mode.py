"""Explicit acknowledgement mode: what no sink decided is released (docs/trust/protocol.md, "Outcomes of a sink")."""

from __future__ import annotations

import pytest

from coordinator.core.commands import AlterConfigs
from coordinator.protocol.errors import AcknowledgementModeDiffers, NothingDecided
from coordinator.protocol.messages import NextPlan
from coordinator.protocol.values import OffsetRange
from coordinator.service.runtime import transactions
from tests.support.group_driver import SESSION_MS, TOPIC_ID, from_snapshot, ranges, started_plan
from tests.support.sink_driver import ACCEPT, DLQ, EXPLICIT, IMPLICIT, batch, run_at, said, states
from tests.support.source_driver import facts, run_transaction


def test_a_sink_without_rows_in_an_implicit_attempt_counts_as_a_sink() -> None:
    """The mode is altered, the next attempt dies before its sink's commit, and Spark's log holds the batch: the driver
    of the first attempt wrote it although it was fenced."""
    group, plan = batch(3, **IMPLICIT)
    assert group.silent().staged == 0
    group.run(AlterConfigs(configs=EXPLICIT))
    group.restart(plan)
    assert not group.complete(plan).undecided
    assert states(group) == ["[0..2] AVAILABLE 2"], "released, since no sink of the last attempt mentioned them"


def test_an_empty_batch_without_a_sink_does_not_fail() -> None:
    group, plan = batch(3, **EXPLICIT)
    gaps = (OffsetRange(topic_id=TOPIC_ID, partition=0, first=0, last=2),)
    assert not group.complete(plan, gaps=gaps, processed=False).undecided
    assert group.partition().start_offset == 3


def test_a_commit_of_stale_rows_is_a_sink() -> None:
    group, plan = batch(10, **EXPLICIT)
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    group.start(group.acquire(member="m2", limit=10).plan.plan_id, "m2")
    assert group.stage(said(0, 9, ACCEPT), plans={plan: group.epochs["m1"]}).stale == 10
    group.join()
    assert not group.complete(plan).undecided


def test_explicit_mode_releases_undecided_records() -> None:
    group, plan = batch(3, **EXPLICIT)
    group.stage(said(1, 1, ACCEPT))
    group.complete(plan)
    assert states(group) == ["[0..0] AVAILABLE 1", "[1..1] ACKNOWLEDGED 1", "[2..2] AVAILABLE 1"]
    assert run_at(group, 0).releases == 1


def test_an_attempt_keeps_the_acknowledgement_mode_of_its_start() -> None:
    """The batch passed 5 to 9 over, they are in no output, and Spark committed it; or no sink said anything at all.
    Before the plan is completed the query is started again with the other mode, or another query is. Or the other way
    round: they are in the output."""
    rows = said(0, 4, ACCEPT)
    for began, then, outcomes, after in (
        (EXPLICIT, IMPLICIT, [rows], ["[5..9] AVAILABLE 1"]),
        (EXPLICIT, IMPLICIT, [], ["[0..9] AVAILABLE 1"]),
        (IMPLICIT, EXPLICIT, [rows], []),
        (IMPLICIT, EXPLICIT, [], []),
    ):
        for starts in ("m1", "m2"):
            group, plan = batch(10, **began)
            for outcome in outcomes:
                group.stage(outcome)
            group.join(starts)
            group.run(AlterConfigs(configs=then))
            from_snapshot(group)
            group.join()
            group.complete(plan)
            assert states(group) == after


def test_a_query_keeps_its_own_mode_when_another_query_sets_the_groups() -> None:
    group, plan = batch(2, **EXPLICIT)
    group.complete(plan)
    plan = group.acquire(plan).plan.plan_id
    group.run(AlterConfigs(configs=IMPLICIT))  # another query of the group begins
    group.start(plan, acknowledgement_mode="explicit")
    group.stage(said(0, 0, ACCEPT, 2))
    group.complete(plan)
    assert states(group) == ["[1..1] AVAILABLE 2"]


def test_a_sink_that_names_another_mode_than_its_batchs_is_refused() -> None:
    """The mode belongs to who acquires. A sink without rows, of no known batch, is refused where every batch that may
    be meant has the other mode."""
    for began, own in ((IMPLICIT, "explicit"), (EXPLICIT, "implicit")):
        for commit in (
            lambda group, **mode: group.stage(said(0, 0, ACCEPT), **mode),
            lambda group, **mode: group.silent(**mode),
            lambda group, **mode: group.stage(**mode),
        ):
            group, _ = batch(2, **began)
            before = len(group.log)
            with pytest.raises(AcknowledgementModeDiffers, match=f"mode={own}"):
                commit(group, acknowledgement_mode=own)
            assert len(group.log) == before


def test_a_sink_without_rows_changes_nothing_of_another_querys_batch() -> None:
    """m2's query has a sink, in the mode of its source; m1's has none, in a group with the other mode."""
    for began, own in ((IMPLICIT, "explicit"), (EXPLICIT, "implicit")):
        group, plan = batch(10, **began)
        group.join("m2")
        group.ends[0] = 20
        group.start(group.acquire(member="m2").plan.plan_id, "m2", acknowledgement_mode=own)
        group.silent("m2", acknowledgement_mode=own)
        group.stage(acknowledgement_mode=own, replaces=True)
        assert group.complete(plan).undecided == (own == "implicit")
        assert states(group)[0].startswith("[10..19]" if own == "explicit" else "[0..9] AVAILABLE")


def test_a_record_undecided_in_explicit_mode_stays_released_in_implicit_mode() -> None:
    """The first attempt's output, which a target keeps that skips a batch it knows, has 0 alone; the driver died before
    Spark's commit, and the query is started again in implicit mode. What a later attempt says of 2 and 3 is no help: 2
    was passed over, and 3 since it was named."""
    group, plan = batch(4, **EXPLICIT)
    group.stage(said(0, 0, ACCEPT), said(3, 3, ACCEPT))
    group.restart(plan)
    group.stage(said(0, 0, ACCEPT, 2))
    group.run(AlterConfigs(configs=IMPLICIT))
    group.restart(plan)
    group.stage(said(2, 2, ACCEPT, 3))
    group.complete(plan)
    assert states(group) == ["[1..3] AVAILABLE 3"]


def test_gaps_are_found_before_undecided_offsets_are_released() -> None:
    group, plan = batch(3, **EXPLICIT)
    group.stage(said(0, 0, ACCEPT))
    group.complete(plan, gaps=(OffsetRange(topic_id=TOPIC_ID, partition=0, first=1, last=1),))
    assert states(group) == ["[2..2] AVAILABLE 1"]


def test_explicit_mode_without_a_sink_fails_by_name_and_counts_no_try() -> None:
    group, plan = started_plan(3, **EXPLICIT, **DLQ)
    for _ in range(10):
        asked = NextPlan(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"], start=plan)
        with pytest.raises(NothingDecided):
            run_transaction(group, transactions.next_plan(asked, facts(group)))
        assert run_at(group, 0).tries == 0
        group.join()
        again = group.acquire(plan)
        assert [r[:2] for r in ranges(again)] == [(0, 2)], "the same records"
        plan = again.plan.plan_id
        group.start(plan)
