"""A sink decides (docs/protocol.md, "Outcomes of a sink"): what its rows said is staged on the plan, and takes effect
when the plan completes."""

from __future__ import annotations

import pytest

from coordinator.core.commands import AlterConfigs, StageRuns
from coordinator.core.record_state import RecordState
from coordinator.core.release_backoff import lot_of, release_delay_ms
from coordinator.core.runs import Run
from coordinator.protocol.messages import OutcomesStaged, PartitionOutcomes
from coordinator.protocol.values import Disposition
from tests.support.group_driver import SESSION_MS, GroupDriver, acknowledged, fetched, from_snapshot, offsets, ranges
from tests.support.quarantine import quarantined_record, started_trial
from tests.support.sink_driver import ACCEPT, DLQ, EXPLICIT, REJECT, RELEASE, batch, run_at, said, states

# --- outcomes take effect at completion


def test_nothing_happens_before_the_plan_completes() -> None:
    group, plan = batch(**DLQ)
    staged = group.stage(said(0, 3, ACCEPT), said(4, 5, RELEASE), said(6, 9, REJECT))
    assert staged == OutcomesStaged(staged=10, attempt=0)
    assert group.dump() == ["[0..9] ACQUIRED 1 0 1"]
    group.complete(plan)
    assert states(group) == ["[4..5] AVAILABLE 1", "[6..9] ARCHIVING 1"]
    assert group.partition().start_offset == 4


def test_rows_that_are_not_there_are_accepted_in_implicit_mode() -> None:
    group, plan = batch()
    group.stage(said(3, 3, RELEASE))
    group.complete(plan)
    assert states(group) == ["[3..3] AVAILABLE 1", "[4..9] ACKNOWLEDGED 1"]


def test_a_released_record_comes_back_with_its_count_plus_one() -> None:
    group, plan = batch()
    group.stage(said(3, 4, RELEASE))
    group.complete(plan)
    assert (run_at(group, 3).releases, run_at(group, 3).failures, run_at(group, 3).plan_id) == (1, 0, None)
    assert ranges(group.acquire(plan)) == [(3, 4, 2)]


def test_completing_again_changes_nothing() -> None:
    group, plan = batch()
    group.stage(said(3, 4, RELEASE))
    group.complete(plan)
    before = states(group)
    group.complete(plan)
    assert states(group) == before


def test_outcomes_of_several_partitions_are_staged_by_one_request() -> None:
    group = GroupDriver(records=5, partitions=2)
    group.join()
    plan = group.next().plan.plan_id
    group.use(plan)
    both = tuple(
        PartitionOutcomes(topic="orders", partition=p, runs=(said(p, p, RELEASE), said(4, 4, REJECT))) for p in (0, 1)
    )
    assert group.run(StageRuns(group_id="billing", partitions=both)) == OutcomesStaged(staged=4, attempt=0)
    group.complete(plan)
    assert [run_at(group, 0).state, group.partition(1).start_offset] == [RecordState.AVAILABLE, 1]
    assert group.partition(0).archived_total == group.partition(1).archived_total == 1


# --- delays


def test_a_release_with_a_delay_is_available_only_then() -> None:
    group, plan = batch(1)
    group.stage(said(0, 0, RELEASE, delay_ms=60_000))
    group.pass_time(20_000)
    group.complete(plan)
    assert group.acquire(plan).plan.plan_id == "", "counted from its staging"
    group.pass_time(39_999)
    group.join(process="m1-process-1")
    assert group.acquire(plan).plan.plan_id == ""
    group.pass_time(1)
    assert ranges(group.acquire(plan)) == [(0, 0, 2)]


def test_a_delayed_record_is_kept_from_share_consumers_too() -> None:
    group, plan = batch(1)
    group.stage(said(0, 0, RELEASE, delay_ms=10_000))
    group.complete(plan)
    group.join("c1", query=False)
    assert fetched(group, 10) == []
    group.pass_time(10_000)
    assert fetched(group, 10) == [(0, 0, 2)]


def test_a_delay_of_its_own_takes_the_place_of_the_groups_backoff() -> None:
    group, plan = batch(2, **{"share.release.backoff.ms": "60000"})
    group.stage(said(0, 0, RELEASE, delay_ms=0), said(1, 1, RELEASE, delay_ms=1_000))
    group.complete(plan)
    assert ranges(group.acquire(plan)) == [(0, 0, 2)]
    assert run_at(group, 1).not_before_ms == group.now_ms + 1_000


def test_the_groups_backoff_grows_with_each_release_within_its_jitter_and_up_to_its_maximum() -> None:
    configs = {
        "share.release.backoff.ms": "1000",
        "share.release.backoff.multiplier": "3",
        "share.release.backoff.max.ms": "5000",
        "share.delivery.count.limit": "10",
    }
    group, plan = batch(1, **configs)
    for release, middle_ms in ((1, 1_000), (2, 3_000), (3, 5_000)):
        group.stage(said(0, 0, RELEASE, release))
        group.complete(plan)
        waits_ms = (run_at(group, 0).not_before_ms or 0) - group.now_ms
        assert waits_ms == release_delay_ms(group.group.config, release, lot_of(0, group.now_ms))
        assert 0.8 * middle_ms <= waits_ms <= min(1.2 * middle_ms, 5_000)
        group.pass_time(waits_ms - 1)
        assert group.acquire(plan).plan.plan_id == ""
        group.pass_time(1)
        plan = group.acquire(plan).plan.plan_id
        group.use(plan)


def test_a_share_consumers_release_backs_off_too() -> None:
    group = GroupDriver(records=1, **{"share.release.backoff.ms": "1000", "share.release.backoff.jitter": "0"})
    group.join("c1", query=False)
    assert fetched(group, 10) == [(0, 0, 1)]
    assert acknowledged(group, 0, 0, 1, RELEASE) == {}
    assert fetched(group, 10) == []
    group.pass_time(1_000)
    assert fetched(group, 10) == [(0, 0, 2)]


def test_what_is_released_for_silence_backs_off_as_well() -> None:
    group, plan = batch(2, **EXPLICIT, **{"share.release.backoff.ms": "1000", "share.release.backoff.jitter": "0"})
    group.stage(said(0, 0, ACCEPT))
    group.complete(plan)
    assert run_at(group, 1).not_before_ms == group.now_ms + 1_000


# --- rejected, and given up


def test_a_rejected_record_waits_for_its_letter_with_what_it_says() -> None:
    group, plan = batch(3, **DLQ)
    group.stage(said(1, 1, REJECT, reason="no customer"))
    group.complete(plan)
    assert run_at(group, 1) == Run(RecordState.ARCHIVING, 1, disposition=Disposition.REJECTED, reason="no customer")
    assert group.partition().archived_total == 0
    group.file(1, 1)
    assert group.partition().archived_total == 1
    assert group.partition().start_offset == 3


def test_a_rejected_record_whose_letter_the_sink_wrote_is_archived_at_once() -> None:
    group, plan = batch(3, **DLQ)
    group.stage(said(1, 1, REJECT, letter=True))
    group.complete(plan)
    assert (group.partition().archived_total, group.partition().start_offset) == (1, 3)


def test_without_a_dead_letter_queue_a_rejected_record_is_archived() -> None:
    group, plan = batch(3)
    group.stage(said(1, 1, REJECT, reason="no customer"))
    group.complete(plan)
    assert (group.partition().archived_total, group.partition().start_offset) == (1, 3)


def test_releases_at_the_limit_give_the_record_up_with_its_disposition() -> None:
    group, plan = batch(1, **DLQ, **{"share.delivery.count.limit": "2"})
    group.stage(said(0, 0, RELEASE))
    group.complete(plan)
    plan = group.acquire(plan).plan.plan_id
    group.use(plan)
    group.stage(said(0, 0, RELEASE, 2, delay_ms=60_000))
    group.complete(plan)
    assert run_at(group, 0) == Run(RecordState.ARCHIVING, 2, disposition=Disposition.DELIVERY_LIMIT)


def test_a_share_consumers_record_that_expires_at_the_limit_waits_for_its_letter() -> None:
    group = GroupDriver(records=1, **DLQ, **{"share.delivery.count.limit": "2"})
    for _ in range(2):
        group.join("c1", query=False)
        fetched(group, 1)
        group.pass_time(SESSION_MS + 1)
    assert run_at(group, 0) == Run(RecordState.ARCHIVING, 2, disposition=Disposition.EXPIRED)


def test_what_a_share_consumer_rejects_waits_for_its_letter() -> None:
    group = GroupDriver(records=1, **DLQ)
    group.join("c1", query=False)
    fetched(group, 1)
    assert acknowledged(group, 0, 0, 1, REJECT) == {}
    assert run_at(group, 0) == Run(RecordState.ARCHIVING, 1, disposition=Disposition.REJECTED)


def test_a_failed_trial_waits_for_its_letter() -> None:
    group, plan = quarantined_record(records=10)
    group.run(AlterConfigs(configs={**group.group.configs, **DLQ}))
    trial = started_trial(group, plan)
    count = run_at(group, 0).delivery_count
    group.restart(trial)
    assert run_at(group, 0) == Run(RecordState.ARCHIVING, count, disposition=Disposition.DELIVERY_LIMIT)


# --- ARCHIVING in the window


def test_the_start_offset_does_not_pass_what_waits_for_its_letter_and_others_flow_on() -> None:
    group, plan = batch(10, **DLQ)
    group.ends[0] = 30
    group.stage(said(2, 3, REJECT))
    following = group.next(plan).plan.plan_id
    group.use(following)
    group.complete(following)
    partition = group.partition()
    assert (partition.start_offset, partition.end_offset) == (2, 30)
    assert partition.lag(30) == 2, "they are not delivered to completion"
    assert group.acquire(following).plan.plan_id == "", "nobody is given them again"
    group.file(2, 2)
    assert (partition.start_offset, partition.lag(30)) == (3, 1)
    group.file(3, 3)
    assert (partition.start_offset, partition.lag(30), partition.archived_total) == (30, 0, 2)


def test_what_waits_for_its_letter_holds_no_lock() -> None:
    group, plan = batch(10, **DLQ, **{"share.partition.max.record.locks": "100"})
    group.stage(said(0, 9, REJECT))
    group.ends[0] = 110
    assert offsets(group.next(plan)) == 100


def test_below_a_moved_log_start_it_stays_until_its_letter_is_filed() -> None:
    group, plan = batch(10, **DLQ)
    group.stage(said(2, 5, REJECT))
    group.complete(plan)
    group.move_log_start(4)
    assert states(group) == ["[2..5] ARCHIVING 1", "[6..9] ACKNOWLEDGED 1"]
    assert group.partition().start_offset == 4
    group.file(2, 4)
    assert states(group)[0] == "[5..5] ARCHIVING 1"
    from_snapshot(group)
    group.move_log_start(9)
    group.file(5, 5)
    assert (states(group), group.partition().start_offset) == ([], 10)
    assert group.partition().archived_total == 4


def test_a_letter_is_filed_of_the_delivery_that_it_is_about() -> None:
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 0, REJECT))
    group.complete(plan)
    group.file(0, 0, count=2)
    group.file(1, 2)
    assert states(group)[0] == "[0..0] ARCHIVING 1", "another delivery's, and records that wait for none"
    group.file(0, 2)
    group.file(0, 2)
    assert (group.partition().start_offset, group.partition().archived_total) == (3, 1)


def test_a_letter_of_a_partition_that_the_group_does_not_have_is_passed_over() -> None:
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 0, REJECT))
    group.complete(plan)
    before = len(group.log)
    group.file(0, 0, partition=9)
    assert (len(group.log), group.partition().archiving_count) == (before, 1)


def test_a_record_that_is_archiving_outlives_a_crash_and_a_snapshot() -> None:
    group, plan = batch(3, **DLQ)
    group.stage(said(1, 1, REJECT, reason="no customer"))
    group.complete(plan)
    group.crash()
    from_snapshot(group)
    assert (run_at(group, 1).disposition, run_at(group, 1).reason) == (Disposition.REJECTED, "no customer")
    assert group.partition().archiving_count == 1
    assert list(group.partition().runs.archiving) == [1]


# --- below the log start


@pytest.mark.parametrize("log_start", [4, 6])
@pytest.mark.parametrize("lost_lock", [False, True])
def test_what_is_released_below_the_log_start_is_archived(lost_lock: bool, log_start: int) -> None:
    """Retention took it while its batch ran: nobody can be given it again."""
    group, plan = batch(10)
    group.stage(said(0, 6, RELEASE))
    if lost_lock:
        group.pass_time(SESSION_MS + 1)
    group.move_log_start(log_start)
    if lost_lock:
        group.join()
    group.complete(plan)
    assert states(group) == [f"[{log_start}..6] AVAILABLE 1", "[7..9] ACKNOWLEDGED 1"]
    assert (group.partition().start_offset, group.partition().archived_total) == (log_start, log_start)


def test_what_the_log_took_before_it_could_come_back_is_told_with_the_next_plan() -> None:
    group, plan = batch(10)
    group.stage(said(0, 6, RELEASE))
    group.move_log_start(4)
    group.complete(plan)
    told = group.use(group.acquire(plan).plan.plan_id, fail_on_data_loss=False)
    assert [(o.first, o.last) for o in told.data_loss] == [(0, 3)]
    assert group.group.unreported_losses == ()


def test_what_explicit_mode_would_release_below_the_log_start_is_archived() -> None:
    group, plan = batch(10, **EXPLICIT, **{"share.release.backoff.ms": "1000"})
    group.stage(said(8, 9, ACCEPT))
    group.move_log_start(4)
    group.complete(plan)
    assert states(group) == ["[4..7] AVAILABLE 1", "[8..9] ACKNOWLEDGED 1"]


@pytest.mark.parametrize(("log_start", "left"), [(4, "[4..9] AVAILABLE 1"), (9, "[9..9] AVAILABLE 1")])
def test_a_plan_without_a_sink_is_given_back_above_the_log_start_only(log_start: int, left: str) -> None:
    group, plan = batch(10, **EXPLICIT)
    group.move_log_start(log_start)
    assert group.complete(plan).undecided
    assert states(group) == [left]


def test_what_is_rejected_below_the_log_start_waits_for_its_letter_all_the_same() -> None:
    group, plan = batch(10, **DLQ)
    group.stage(said(0, 1, REJECT), said(2, 3, ACCEPT))
    group.move_log_start(4)
    group.complete(plan)
    assert states(group) == ["[0..1] ARCHIVING 1"]
    group.file(0, 1)
    assert (states(group), group.partition().start_offset) == ([], 10)
