"""Explicit mode, too many rejects, and what counts as processed (docs/protocol.md, "Outcomes of a sink")."""

from __future__ import annotations

import pytest

from coordinator.core.record_state import RecordState
from coordinator.core.records import PlanCompleted, decode_record
from coordinator.core.runs import Run
from coordinator.protocol.errors import TooManyRejects
from coordinator.protocol.messages import OutcomesStaged
from coordinator.protocol.values import AcknowledgeType, Disposition, OffsetRange
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, from_snapshot, ranges
from tests.support.sink_driver import ACCEPT, DLQ, EXPLICIT, REJECT, RELEASE, batch, run_at, said, states

# --- explicit mode


def test_explicit_mode_releases_what_no_sink_decided() -> None:
    group, plan = batch(10, **EXPLICIT)
    group.stage(said(2, 4, ACCEPT))
    group.complete(plan)
    assert states(group) == ["[0..1] AVAILABLE 1", "[2..4] ACKNOWLEDGED 1", "[5..9] AVAILABLE 1"]
    assert run_at(group, 0).releases == 1


def test_what_the_log_does_not_hold_is_archived_instead_of_released() -> None:
    group, plan = batch(10, **EXPLICIT)
    group.stage(said(0, 3, ACCEPT), said(8, 9, RELEASE))
    gaps = tuple(OffsetRange(topic_id=TOPIC_ID, partition=0, first=f, last=last) for f, last in ((3, 4), (6, 9)))
    group.complete(plan, gaps=gaps)
    assert states(group) == ["[5..5] AVAILABLE 1", "[6..7] ARCHIVED 1", "[8..9] AVAILABLE 1"]


def test_gaps_are_archived_also_after_the_lock_was_lost() -> None:
    group, plan = batch(10, **EXPLICIT)
    group.stage(said(0, 3, ACCEPT))
    group.pass_time(SESSION_MS + 1)
    group.join()
    group.complete(plan, gaps=(OffsetRange(topic_id=TOPIC_ID, partition=0, first=4, last=9),))
    assert (group.partition().start_offset, group.partition().archived_total) == (10, 6)


def test_without_any_sink_the_plan_is_given_back_and_no_try_is_counted() -> None:
    group, plan = batch(10, **EXPLICIT)
    assert group.complete(plan).undecided
    assert group.dump() == ["[0..9] AVAILABLE 1 0 -"]
    assert run_at(group, 0).tries == 0
    assert not group.complete(plan).undecided, "twice is harmless"
    assert ranges(group.acquire(plan)) == [(0, 9, 2)], "the same records"


def test_a_query_without_a_sink_never_burns_its_deliveries() -> None:
    group, plan = batch(10, **EXPLICIT, **DLQ)
    for _ in range(20):
        assert group.complete(plan).undecided
        group.join()
        plan = group.acquire(plan).plan.plan_id
        group.use(plan)
    assert group.dump() == [f"[0..9] ACQUIRED 21 0 {plan.removeprefix('i.')}"]


def test_a_batch_in_which_there_was_nothing_is_not_the_one_to_fail_for() -> None:
    group, plan = batch(3, **EXPLICIT)
    gaps = (OffsetRange(topic_id=TOPIC_ID, partition=0, first=0, last=2),)
    assert not group.complete(plan, gaps=gaps, processed=False).undecided
    assert group.partition().start_offset == 3


def test_a_plan_of_which_nothing_is_left_is_not_the_one_to_fail_for() -> None:
    group, plan = batch(3, **EXPLICIT)
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    group.acquire(member="m2")
    group.restart(plan)
    assert not group.complete(plan).undecided


def test_a_sink_that_had_nothing_to_say_is_a_sink() -> None:
    group, plan = batch(10, **EXPLICIT)
    assert group.stage() == OutcomesStaged()
    assert not group.complete(plan).undecided
    assert run_at(group, 0).releases == 1


def test_a_sink_all_of_whose_rows_are_stale_is_a_sink() -> None:
    group, plan = batch(10, **EXPLICIT)
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    group.use(group.acquire(member="m2", limit=10).plan.plan_id, "m2")
    assert group.stage(said(0, 9, ACCEPT)).stale == 10
    group.join()
    assert not group.complete(plan).undecided


def test_that_a_sink_decides_outlives_a_crash_and_a_snapshot() -> None:
    group, plan = batch(10, **EXPLICIT)
    group.stage()
    group.crash()
    from_snapshot(group)
    assert not group.complete(plan).undecided


def test_once_a_sink_has_decided_its_silence_counts() -> None:
    group, plan = batch(10, **EXPLICIT)
    group.stage(said(0, 9, ACCEPT))
    group.ends[0] = 20
    plan = group.next(plan).plan.plan_id
    group.use(plan)
    assert not group.complete(plan).undecided
    assert run_at(group, 10).releases == 1


def test_in_explicit_mode_silence_gives_a_record_up_at_the_limit() -> None:
    group, plan = batch(1, **EXPLICIT, **DLQ, **{"share.delivery.count.limit": "2"})
    for _ in range(2):
        group.stage()
        group.complete(plan)
        if run_at(group, 0).state == RecordState.AVAILABLE:
            plan = group.acquire(plan).plan.plan_id
            group.use(plan)
    assert run_at(group, 0) == Run(RecordState.ARCHIVING, 2, disposition=Disposition.UNDECIDED)


# --- too many rejects

HALF = {**DLQ, "errors.deadletterqueue.max.reject.ratio": "0.5"}


def test_too_many_rejects_are_refused_by_name_and_nothing_is_staged() -> None:
    group, plan = batch(200, **HALF)
    with pytest.raises(TooManyRejects, match=r"group billing: 101 of the last 200 .* = 0\.5 allows"):
        group.stage(said(0, 98, ACCEPT), said(99, 199, REJECT))
    group.complete(plan)
    assert group.partition().start_offset == 200
    assert (group.group.decided, group.group.rejected) == (0, 0)


def test_as_many_rejects_as_the_ratio_are_allowed() -> None:
    group, _ = batch(200, **HALF)
    assert group.stage(said(0, 99, ACCEPT), said(100, 199, REJECT)).staged == 200


def test_few_records_tell_nothing_about_a_ratio() -> None:
    group, _ = batch(200, **HALF)
    assert group.stage(said(0, 98, REJECT)).staged == 99
    with pytest.raises(TooManyRejects):
        group.stage(said(99, 99, REJECT))
    assert group.stage(said(99, 197, ACCEPT)).staged == 99, "what rejects nothing passes"
    assert (group.group.decided, group.group.rejected) == (198, 99)
    with pytest.raises(TooManyRejects):
        group.stage(said(198, 199, REJECT))


def test_the_window_outlives_a_crash_and_a_snapshot() -> None:
    group, _ = batch(200, **HALF)
    group.stage(said(0, 89, REJECT))
    group.crash()
    from_snapshot(group)
    assert (group.group.decided, group.group.rejected) == (90, 90)
    with pytest.raises(TooManyRejects):
        group.stage(said(90, 99, REJECT))


def test_the_window_forgets() -> None:
    group = GroupDriver(records=100_000, **HALF)
    group.join()
    plan = group.next(limit=None).plan.plan_id
    group.use(plan)
    group.stage(said(0, 39_999, ACCEPT))
    assert group.group.decided <= 10_000
    for first in (40_000, 42_000, 44_000, 46_000):
        group.stage(said(first, first + 1_999, REJECT))
        if group.group.rejected > 0.4 * group.group.decided:
            break
    with pytest.raises(TooManyRejects):
        group.stage(said(50_000, 59_999, REJECT))


def test_the_window_is_halved_when_it_is_full() -> None:
    group = GroupDriver(records=10_001, **DLQ)
    group.join()
    group.use(group.next(limit=None).plan.plan_id)
    group.stage(said(0, 5_999, ACCEPT), said(6_000, 9_999, REJECT))
    assert (group.group.decided, group.group.rejected) == (10_000, 4_000)
    group.stage(said(10_000, 10_000, REJECT))
    assert (group.group.decided, group.group.rejected) == (5_000, 2_000)


def test_the_breaker_is_off_by_default() -> None:
    group, _ = batch(1_000, **DLQ)
    assert group.stage(said(0, 999, REJECT)).staged == 1_000


# --- evidence


def decided_at_last(group: GroupDriver) -> int:
    """What the last completion in the log says."""
    done = decode_record(group.log[-1])
    assert isinstance(done, PlanCompleted)
    return done.records


@pytest.mark.parametrize(
    ("outcome", "evidence"), [(ACCEPT, True), (REJECT, True), (RELEASE, False)], ids=lambda value: str(value)
)
def test_what_is_accepted_or_rejected_was_processed_and_what_is_released_was_not(
    outcome: AcknowledgeType, evidence: bool
) -> None:
    group, plan = batch(1)
    group.stage(said(0, 0, outcome))
    group.complete(plan)
    assert group.group.members["m1"].evidence is evidence


def test_a_completion_says_how_many_records_it_decided() -> None:
    group, plan = batch(10)
    group.stage(said(0, 3, ACCEPT), said(4, 5, RELEASE), said(6, 9, REJECT))
    group.complete(plan)
    assert decided_at_last(group) == 8


def test_a_completion_without_a_sink_says_how_many_records_it_accepted() -> None:
    group = GroupDriver(records=5, partitions=2)
    group.join()
    plan = group.next().plan.plan_id
    group.use(plan)
    group.complete(plan)
    assert decided_at_last(group) == 10


def test_neither_gaps_nor_silence_in_explicit_mode_is_evidence() -> None:
    group, plan = batch(3, **EXPLICIT)
    group.stage()
    group.complete(plan, gaps=(OffsetRange(topic_id=TOPIC_ID, partition=0, first=0, last=1),))
    assert not group.group.members["m1"].evidence


def test_a_plan_that_is_given_back_is_no_evidence() -> None:
    group, plan = batch(3, **EXPLICIT)
    group.complete(plan)
    assert not group.group.members["m1"].evidence
