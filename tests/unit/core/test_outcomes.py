"""A sink's outcomes take effect when the plan completes: accept, release with its delay, reject."""

from __future__ import annotations

import pytest

from coordinator.core.commands import StageRuns
from coordinator.core.record_state import RecordState
from coordinator.protocol.messages import PartitionOutcomes
from tests.support.group_driver import SESSION_MS, TOPIC_ID, UNSET, GroupDriver, acknowledged, fetched, ranges
from tests.support.sink_driver import ACCEPT, DLQ, EXPLICIT, REJECT, RELEASE, batch, run_at, said, states


def test_a_completion_counts_the_records_by_outcome_once() -> None:
    group, plan = batch(**DLQ)
    group.stage(said(0, 3, ACCEPT), said(4, 5, RELEASE), said(6, 6, REJECT))
    assert group.complete(plan).outcomes == {"accepted": 7, "released": 2, "rejected": 1}
    assert group.complete(plan).outcomes == {}


def test_a_completion_without_a_sink_counts_all_records_as_accepted() -> None:
    group, plan = batch()
    assert group.complete(plan).outcomes == {"accepted": 10}


def test_outcomes_of_several_partitions_are_staged_by_one_request() -> None:
    group = GroupDriver(records=5, partitions=2)
    group.join()
    plan = group.next().plan.plan_id
    group.start(plan)
    both = tuple(
        PartitionOutcomes(topic_id=TOPIC_ID, partition=p, runs=(said(p, p, RELEASE), said(4, 4, REJECT)))
        for p in (0, 1)
    )
    assert group.run(StageRuns(group_id="billing", partitions=both)).staged == 4
    group.complete(plan)
    assert [run_at(group, 0).state, group.partition(1).start_offset] == [RecordState.AVAILABLE, 1]
    assert group.partition(0).archived_total == group.partition(1).archived_total == 1


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


def test_a_rows_own_delay_replaces_the_groups_backoff() -> None:
    group, plan = batch(2, **{"share.release.backoff.ms": "60000"})
    group.stage(said(0, 0, RELEASE, delay_ms=0), said(1, 1, RELEASE, delay_ms=1_000))
    group.complete(plan)
    assert ranges(group.acquire(plan)) == [(0, 0, 2)]
    assert run_at(group, 1).not_before_ms == group.now_ms + 1_000


def test_a_share_consumers_release_backs_off_too() -> None:
    group = GroupDriver(records=1, **{"share.release.backoff.ms": "1000", "share.release.backoff.jitter": "0"})
    group.join("c1", query=False)
    assert fetched(group, 10) == [(0, 0, 1)]
    assert acknowledged(group, 0, 0, 1, RELEASE) == {}
    assert fetched(group, 10) == []
    group.pass_time(1_000)
    assert fetched(group, 10) == [(0, 0, 2)]


def test_by_default_a_querys_releases_wait_and_a_share_consumers_do_not() -> None:
    """A service is away for a minute: no record has used up its tries by then, with batches on end."""
    group, plan = batch(2, **UNSET)
    group.stage(said(0, 1, RELEASE))
    group.complete(plan)
    assert group.acquire(plan).plan.plan_id == ""
    waits_ms = (run_at(group, 0).not_before_ms or 0) - group.now_ms
    assert 8_000 <= waits_ms <= 12_000
    group.join("c1", query=False)
    group.pass_time(waits_ms)
    assert fetched(group, 10) == [(0, 1, 2)]
    assert acknowledged(group, 0, 1, 2, RELEASE) == {}
    assert fetched(group, 10) == [(0, 1, 3)], "as in Kafka"


def test_a_run_that_began_before_a_release_does_not_get_the_record() -> None:
    group, plan = batch(2)
    group.pass_time(1)
    began_ms = group.now_ms
    group.stage(said(0, 1, RELEASE))
    group.complete(plan)
    assert group.acquire(plan, began_ms=began_ms).plan.plan_id == "", "released at the moment at which it began"
    group.pass_time(10_000)
    assert group.acquire(plan, began_ms=began_ms).plan.plan_id == ""
    assert ranges(group.acquire(plan, began_ms=group.now_ms)) == [(0, 1, 2)]


def test_records_released_by_silence_back_off_too() -> None:
    group, plan = batch(2, **EXPLICIT, **{"share.release.backoff.ms": "1000", "share.release.backoff.jitter": "0"})
    group.stage(said(0, 0, ACCEPT))
    group.complete(plan)
    assert run_at(group, 1).not_before_ms == group.now_ms + 1_000


@pytest.mark.parametrize("log_start", [4, 6])
@pytest.mark.parametrize("lost_lock", [False, True])
def test_records_that_a_batch_releases_below_the_log_start_are_archived(lost_lock: bool, log_start: int) -> None:
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


def test_released_records_that_the_log_lost_are_reported_with_the_next_plan() -> None:
    group, plan = batch(10)
    group.stage(said(0, 6, RELEASE))
    group.move_log_start(4)
    group.complete(plan)
    told = group.start(group.acquire(plan).plan.plan_id, fail_on_data_loss=False)
    assert [(o.first, o.last) for o in told.data_loss] == [(0, 3)]
    assert group.group.unreported_losses == ()


def test_undecided_records_below_the_log_start_are_archived() -> None:
    group, plan = batch(10, **EXPLICIT, **{"share.release.backoff.ms": "1000"})
    group.stage(said(8, 9, ACCEPT))
    group.move_log_start(4)
    group.complete(plan)
    assert states(group) == ["[4..7] AVAILABLE 1", "[8..9] ACKNOWLEDGED 1"]


@pytest.mark.parametrize(("log_start", "left"), [(4, "[4..9] AVAILABLE 1"), (9, "[9..9] AVAILABLE 1")])
def test_a_plan_without_a_sink_is_returned_above_the_log_start_only(log_start: int, left: str) -> None:
    group, plan = batch(10, **EXPLICIT)
    group.move_log_start(log_start)
    assert group.complete(plan).undecided
    assert states(group) == [left]


def test_outcomes_take_effect_when_the_plan_completes() -> None:
    """The driver dies after the sink's commit and before Spark's: all is read again, and then decided once."""
    group, plan = batch(3, **DLQ)
    runs = said(0, 0, ACCEPT), said(1, 1, RELEASE), said(2, 2, REJECT)
    group.stage(*runs)
    assert group.dump() == ["[0..2] ACQUIRED 1 0 1"], "nothing yet"
    assert ranges(group.restart(plan)) == [(0, 2, 2)], "a sink that replaces its output has all of it again"
    group.stage(*(run._replace(delivery_count=2) for run in runs))
    group.complete(plan)
    assert states(group) == ["[1..1] AVAILABLE 2", "[2..2] ARCHIVING 2"]
