"""◆ Tries, slices, setting aside and trials: a bad record costs itself, an outage costs nothing."""

from __future__ import annotations

from coordinator.core.commands import Expire
from tests.support.group_driver import SESSION_MS, GroupDriver, acknowledged, fetched, ranges, started_plan
from tests.support.quarantine import quarantined_record, started_trial
from tests.support.sink_driver import RELEASE, run_at, said


def test_limits_compare_tries_never_the_delivery_count() -> None:
    group = GroupDriver(records=10)
    for _ in range(20):
        group.join()
        group.next()
    group.pass_time(SESSION_MS + 1)
    group.join("c1", query=False)
    assert fetched(group, 10) == [(0, 9, 21)], "not throttled: no try was made"
    group.pass_time(31_000)
    assert group.dump() == ["[0..9] AVAILABLE 21 1 2"], "not archived either"


def test_the_cut_comes_first() -> None:
    group, plan = started_plan(10_000)
    group.restart(plan)
    assert ranges(group.restart(plan)) == [(0, 2153, 3)]
    assert group.dump()[1] == "[2154..3999] AVAILABLE 2 2 -", "count unchanged, number cleared"


def test_isolation_looks_at_failures_only() -> None:
    group = GroupDriver(records=10, **{"share.delivery.count.limit": "10"})
    group.join("c1", query=False)
    for count in range(1, 7):
        for first, last, _ in fetched(group, 10):
            assert acknowledged(group, first, last, count, 2) == {}
            if first != 0 or last != 9:
                break
    group.run(Expire())
    group.join()
    first = ranges(group.next())[0]
    assert first[1] - first[0] > 0, "released, never failed: not cut"


def test_a_delivery_is_one_failure_at_most() -> None:
    group, plan = started_plan()
    group.pass_time(SESSION_MS + 1)
    group.restart(plan)
    assert group.dump() == ["[0..99] ACQUIRED 2 1 1"], "the lost lock and the replay are one delivery's end"


def test_an_isolated_slice_takes_no_fresh_records() -> None:
    group, plan = started_plan(10_000)
    for _ in range(3):
        group.restart(plan)
    assert ranges(group.next(plan)) == [(46, 91, 4)]


def test_a_failure_at_the_limit_sets_aside() -> None:
    group, _ = quarantined_record()
    assert group.partition().archived_total == 0


def test_no_trial_without_evidence() -> None:
    group, plan = quarantined_record()
    for _ in range(12):
        taken = group.next(plan)
        assert not taken.plan.trial
        assert taken.plan.plan_id, "nothing else is there: alone"
        plan = taken.plan.plan_id
        group.use(plan)
        group.restart(plan)
        group.pass_time(31_000)
    assert group.partition().archived_total == 0


def test_failed_trial_archives_and_uses_up_evidence() -> None:
    group, plan = quarantined_record(records=10)
    trial = started_trial(group, plan)
    assert [o.reason for o in group.restart(trial).left_out] == ["archived"]
    assert group.partition().archived_total == 1
    assert not group.group.members["m1"].evidence


def test_a_trial_is_judged_when_its_query_comes_back() -> None:
    group, plan = quarantined_record(records=10)
    trial = started_trial(group, plan)
    group.pass_time(SESSION_MS + 1)
    assert group.partition().archived_total == 0, "Spark may have committed it"
    group.restart(trial)
    assert group.partition().archived_total == 1


def test_a_second_trial_lost_is_a_failed_one() -> None:
    group, plan = quarantined_record(records=10)
    started_trial(group, plan)
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    group.ends[0] = 12
    other = group.acquire(member="m2")
    group.use(other.plan.plan_id, "m2")
    second = group.next(other.plan.plan_id, "m2")
    assert second.plan.trial
    group.use(second.plan.plan_id, "m2")
    group.pass_time(SESSION_MS + 1)
    assert group.partition().archived_total == 1


def test_setting_aside_makes_all_evidence_old() -> None:
    group, plan = started_plan(2, **{"share.acquire.mode": "record_limit"})
    group.ends[0] = 3
    group.join("m2")
    late = group.acquire(member="m2").plan.plan_id
    group.use(late, "m2")
    for _ in range(5):
        group.restart(plan)
    group.complete(late, "m2")
    assert not group.group.members["m2"].evidence, "its batch began before the record was set aside"


def test_what_failed_among_others_fails_alone_before_its_trial() -> None:
    group, plan = started_plan(3, **{"share.delivery.count.limit": "2"})
    group.restart(plan)
    assert ranges(group.restart(plan)) == []
    first = group.next(plan)
    group.use(first.plan.plan_id)
    second = group.next(first.plan.plan_id)
    assert group.group.members["m1"].evidence
    assert ranges(second) == [(1, 1, 3)]
    assert not second.plan.trial
    group.use(second.plan.plan_id)
    group.restart(second.plan.plan_id)
    assert group.partition().archived_total == 0
    assert not group.group.members["m1"].evidence, "an outage may have begun"


def test_a_receipt_of_an_older_delivery_is_refused() -> None:
    group = GroupDriver(records=10)
    group.join("c1", query=False)
    fetched(group, 10)
    group.pass_time(31_000)
    fetched(group, 10)
    assert acknowledged(group, 0, 9, 1, 1) == {"T:0": "INVALID_RECORD_STATE"}
    assert acknowledged(group, 0, 9, 2, 1) == {}
    assert group.partition().start_offset == 10


def test_a_consumers_record_is_archived_at_the_limit() -> None:
    group = GroupDriver(records=1)
    group.join("c1", query=False)
    for count in range(1, 6):
        assert fetched(group, 1) == [(0, 0, count)]
        group.pass_time(31_000)
        group.join("c1", process="c1-process-1", query=False)
    assert group.partition().archived_total == 1


def test_failures_give_nothing_up_that_a_query_releases() -> None:
    """Four deployments killed the query in mid-batch; then its sink has no time: released as often as the limit."""
    group, plan = started_plan(1)
    for _ in range(4):
        group.restart(plan)
    for release in range(1, 6):
        assert group.partition().archived_total == 0, f"before release {release}"
        group.stage(said(0, 0, RELEASE, run_at(group, 0).delivery_count))
        following = group.next(plan).plan.plan_id
        if following:
            group.use(following)
            plan = following
    assert release == 5
    assert group.partition().archived_total == 1


def test_a_record_that_was_set_aside_and_is_released_is_as_any_released_one() -> None:
    """An outage set it aside; alone, it is answered for: later. On trial or not, it waits for its delay, however long,
    and comes alone. If it fails again it is set aside again."""
    for trial in (False, True):
        group, plan = quarantined_record(records=10 if trial else 1)
        if trial:
            plan = started_trial(group, plan)
        else:
            group.pass_time(31_000)
            plan = group.next(plan).plan.plan_id
            group.use(plan)
        count = run_at(group, 0).delivery_count
        group.stage(said(0, 0, RELEASE, count, delay_ms=120_000))
        group.ends[0] = 10
        for waited_ms in (0, 60_000):
            group.pass_time(waited_ms)
            group.join()
            following = group.next(plan)
            assert (0, 0, count + 1) not in ranges(following), f"{waited_ms} ms are not the delay"
            if following.plan.plan_id:
                plan = following.plan.plan_id
                group.use(plan)
        group.complete(plan)
        group.ends[0] = 12
        group.pass_time(60_000)
        group.join()
        alone = group.acquire(plan)
        assert (ranges(alone), alone.plan.trial) == ([(0, 0, count + 1)], False)
        group.use(alone.plan.plan_id)
        group.restart(alone.plan.plan_id)
        assert run_at(group, 0).failed_alone_ms == group.now_ms
        assert group.partition().archived_total == 0


def test_equal_neighbours_are_one_run() -> None:
    group = GroupDriver(records=10)
    group.join("c1", query=False)
    fetched(group, 10)
    for offset in (5, 6):
        assert acknowledged(group, offset, offset, 1, 1) == {}
    assert group.dump() == ["[0..4] ACQUIRED 1 0 1", "[5..6] ACKNOWLEDGED 1 0 -", "[7..9] ACQUIRED 1 0 1"]
