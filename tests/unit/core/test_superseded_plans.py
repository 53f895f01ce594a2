"""◆ A plan that was given up and then found in Spark's log is started empty: a driver that had been stopped logged it
after its successor had asked for the next one. What nobody ever read is in nobody's way."""

from __future__ import annotations

import pytest

from coordinator.protocol.errors import FencedMemberEpoch, ForeignPlan, StalePlan
from tests.support.group_driver import SESSION_MS, from_snapshot, ranges
from tests.support.superseded_plans import successor_with_another_plan


def test_a_superseded_plan_starts_empty_and_its_successor_is_returned() -> None:
    group, logged, newest = successor_with_another_plan()
    assert newest == "i.4" and group.dump() == ["[60..99] ACQUIRED 3 0 4"], "at most what was asked for, in whole runs"
    group.join()
    taken = group.start(logged)
    assert (taken.plan.plan_id, taken.plan.partitions, taken.data_loss) == (logged, (), ())
    assert group.dump() == ["[60..99] AVAILABLE 3 0 -"], "its count unchanged, no failure"
    assert not {2, 4} & set(group.group.plans), "nobody carries either"
    assert ranges(group.next(logged, limit=None)) == [(60, 99, 4)]
    assert group.group.last_plan_id == 5, "numbers never fall"


def test_a_repeated_start_changes_nothing() -> None:
    group, logged, _ = successor_with_another_plan()
    taken = group.start(logged)
    before = group.dump()
    assert group.start(logged) == taken
    assert ranges(group.restart(logged)) == [], "nor in a later process"
    assert group.dump() == before


def test_a_superseded_plan_outlives_the_coordinator() -> None:
    group, logged, _ = successor_with_another_plan(plans=2)
    from_snapshot(group)
    group.restart(logged)
    from_snapshot(group)
    group.crash()
    assert ranges(group.restart(logged)) == []
    assert ranges(group.next(logged, limit=None)) == [(60, 99, 6)]


def test_any_superseded_plan_can_be_started_as_the_logged_plan() -> None:
    group, logged, newest = successor_with_another_plan(plans=3)
    assert newest == "i.8"
    group.start("i.4")
    for refused in (logged, "i.6", newest):
        with pytest.raises(StalePlan):
            group.start(refused)


def test_of_two_drivers_on_one_checkpoint_the_first_to_start_wins() -> None:
    group, logged, newest = successor_with_another_plan()
    group.start(newest)
    with pytest.raises(StalePlan):
        group.start(logged)
    group, logged, newest = successor_with_another_plan()
    group.start(logged)
    with pytest.raises(StalePlan):
        group.start(newest)
    following = group.next(logged).plan.plan_id
    for refused in (logged, newest):
        with pytest.raises(StalePlan):
            group.start(refused)
    group.start(following)


def test_a_plan_that_reported_its_loss_was_in_sparks_log() -> None:
    """Nobody read it, since its query failed by name: but it was about to."""
    group, logged, newest = successor_with_another_plan()
    group.move_log_start(70)
    assert group.start(newest, fail_on_data_loss=True).data_loss
    with pytest.raises(StalePlan):
        group.start(logged)


def test_another_members_plan_id_is_refused() -> None:
    group, _, newest = successor_with_another_plan()
    assert newest == "i.4"
    with pytest.raises(StalePlan):
        group.start("i.3")


def test_the_last_hundred_superseded_plans_are_known() -> None:
    group, logged, _ = successor_with_another_plan(plans=101)
    with pytest.raises(StalePlan):
        group.start(logged)
    group.start("i.4")


def test_older_processes_plans_and_incarnations_are_refused() -> None:
    group, logged, newest = successor_with_another_plan()
    for refused in ("i.1", "i.5"):
        with pytest.raises(StalePlan):
            group.start(refused)
    with pytest.raises(ForeignPlan):
        group.start("other-life.2")
    with pytest.raises(StalePlan):
        group.complete(logged)
    group.epochs["m1"] -= 1
    for fenced in (logged, newest):
        with pytest.raises(FencedMemberEpoch):
            group.start(fenced)


def test_losses_since_the_plan_was_superseded_are_reported_once() -> None:
    """Of what took its place, held or not."""
    for lapsed in (False, True):
        group, logged, _ = successor_with_another_plan()
        if lapsed:
            group.pass_time(SESSION_MS + 1)
        group.move_log_start(70)
        group.join()
        told = group.start(logged, fail_on_data_loss=True)
        assert [(o.first, o.last, o.reason) for o in told.data_loss] == [(60, 69, "data_loss")]
        assert group.start(logged, fail_on_data_loss=True) == told, "to whoever asks in this epoch"
        after = group.restart(logged, fail_on_data_loss=True)
        assert (after.data_loss, after.plan.partitions) == ((), ())
        assert ranges(group.next(logged, limit=None)) == [(70, 99, 4)]


def test_a_superseded_plan_is_started_unless_its_query_fails_for_a_loss() -> None:
    for loss, fail, used in ((False, True, True), (True, False, True), (True, True, False)):
        group, logged, _ = successor_with_another_plan()
        group.log_starts[0] = 70 if loss else 0  # only the start of the plan notices
        assert bool(group.start(logged, fail_on_data_loss=fail).data_loss) == loss
        newest = group.group.members["m1"].newest
        assert newest is not None and newest.started == used


def test_a_completed_plan_has_no_superseded_plans() -> None:
    group, logged, newest = successor_with_another_plan()
    group.complete(newest)
    with pytest.raises(StalePlan):
        group.start(logged)


def test_a_deleted_topic_of_a_superseded_plan_is_a_loss() -> None:
    group, logged, _ = successor_with_another_plan()
    member = group.group.members["m1"]
    assert group.group.plan_partitions(member, logged) == {("T", 0)}, "what the service has to ask the broker for"
    told = group.start(logged, deleted_topic_ids=frozenset({"T"}))
    assert [(o.first, o.last) for o in told.data_loss] == [(60, 99)]
    assert group.partition().archived_total == 40
