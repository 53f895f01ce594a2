"""A deferred record is given back without a try, a failure, or weight in the breaker on releases."""

from __future__ import annotations

import msgspec
import pytest

from coordinator.core.record_state import RecordState
from coordinator.core.release_breaker import JUDGED_FROM
from coordinator.core.staging import Verdict
from coordinator.protocol.values import AcknowledgeType
from tests.support.group_driver import SESSION_MS, GroupDriver, acknowledged, fetched, from_snapshot, ranges
from tests.support.quarantine import quarantined_record, started_trial
from tests.support.sink_driver import ACCEPT, DLQ, REJECT, RELEASE, batch, run_at, said

DEFER = AcknowledgeType.DEFER
ORDER = {"share.order": "partition"}


def test_a_deferred_record_comes_again_without_a_try() -> None:
    group, plan = batch(4)
    group.stage(said(0, 0, ACCEPT), said(1, 2, DEFER), said(3, 3, REJECT))
    assert group.complete(plan).outcomes == {"accepted": 1, "rejected": 1, "deferred": 2}
    run = run_at(group, 1)
    assert (run.state, run.tries, run.plan_id) == (RecordState.AVAILABLE, 0, None)
    assert ranges(group.acquire(plan)) == [(1, 2, 2)]


def test_deferrals_never_give_a_record_up() -> None:
    group, plan = batch(2, **{"share.delivery.count.limit": "2", **DLQ})
    for count in range(1, 6):
        group.stage(said(0, 0, DEFER, count), *([said(1, 1, ACCEPT)] if count == 1 else []))
        reply = group.next(plan)
        plan = reply.plan.plan_id
        group.start(plan)
    assert run_at(group, 0).tries == 0


def test_a_deferral_has_the_delay_of_its_row_alone() -> None:
    group, plan = batch(2, **{"share.release.backoff.ms": "10000"})
    group.stage(said(0, 0, DEFER), said(1, 1, DEFER)._replace(delay_ms=60_000))
    group.complete(plan)
    assert ranges(group.acquire(plan)) == [(0, 0, 2)]
    assert run_at(group, 1).not_before_ms == group.now_ms + 60_000


def test_a_run_that_began_before_a_deferral_does_not_get_the_record() -> None:
    group, plan = batch(2)
    group.pass_time(1)
    began_ms = group.now_ms
    group.stage(said(0, 1, DEFER))
    group.complete(plan)
    assert ranges(group.acquire(plan, began_ms=began_ms)) == []
    assert ranges(group.acquire(plan, began_ms=began_ms + 1)) == [(0, 1, 2)]


def test_deferred_records_follow_a_release_in_an_ordered_group() -> None:
    group, plan = batch(6, **{**ORDER, "share.release.backoff.ms": "10000", "share.release.backoff.jitter": "0"})
    group.stage(said(0, 1, ACCEPT), said(2, 2, RELEASE), said(3, 5, DEFER))
    assert ranges(group.next(plan)) == []
    group.pass_time(10_000)
    assert ranges(group.acquire(plan)) == [(2, 5, 2)]
    assert [run_at(group, offset).tries for offset in (2, 3)] == [1, 0]


def test_a_deferral_with_a_delay_holds_up_its_partition() -> None:
    group, plan = batch(3, **ORDER)
    group.stage(said(0, 0, DEFER)._replace(delay_ms=5_000), said(1, 2, DEFER))
    assert ranges(group.next(plan)) == []
    group.pass_time(5_000)
    assert ranges(group.acquire(plan)) == [(0, 2, 2)]


# --- attempts that disagree, and other edges


@pytest.mark.parametrize("other", [ACCEPT, RELEASE, REJECT])
def test_attempts_that_disagree_about_a_deferral_release_the_record(other: int) -> None:
    for first, last in ((DEFER, other), (other, DEFER)):
        group, plan = batch(2)
        group.stage(said(0, 0, first))
        group.restart(plan)
        group.stage(said(0, 0, last, 2))
        assert group.complete(plan).outcomes["released"] == 1


def test_a_replay_reads_deferred_records_again_which_it_may_accept() -> None:
    group, plan = batch(2)
    group.stage(said(0, 1, DEFER), replaces=True)
    assert ranges(group.restart(plan)) == [(0, 1, 2)]
    group.stage(said(0, 1, ACCEPT, 2), replaces=True)
    assert group.complete(plan).outcomes == {"accepted": 2}


def test_the_last_attempt_alone_defers_if_its_target_replaces() -> None:
    group, plan = batch(1)
    group.stage(said(0, 0, ACCEPT), replaces=True)
    group.restart(plan)
    group.stage(said(0, 0, DEFER, 2), replaces=True)
    assert group.complete(plan).outcomes == {"deferred": 1}


def test_two_sinks_that_disagree_about_a_deferral_release_the_record() -> None:
    group, plan = batch(1)
    group.stage(said(0, 0, DEFER))
    group.stage(said(0, 0, ACCEPT))
    assert group.complete(plan).outcomes == {"released": 1}


def test_a_deferred_record_is_decided_in_explicit_mode() -> None:
    group, plan = batch(2, **{"share.acknowledgement.mode": "explicit"})
    group.stage(said(0, 0, DEFER))
    assert group.complete(plan).outcomes == {"released": 1, "deferred": 1}
    assert [run_at(group, offset).tries for offset in (0, 1)] == [0, 1]


def test_a_deferred_record_below_the_log_start_is_lost() -> None:
    group, plan = batch(3)
    group.stage(said(0, 2, DEFER))
    group.move_log_start(2)
    assert group.complete(plan).outcomes == {"deferred": 1}
    assert group.partition().start_offset == 2


def test_a_deferred_quarantined_record_keeps_its_stage() -> None:
    group, plan = quarantined_record()
    alone = group.next(plan)
    group.start(alone.plan.plan_id)
    group.stage(said(0, 0, DEFER, ranges(alone)[0][2]))
    group.complete(alone.plan.plan_id)
    run = run_at(group, 0)
    assert (run.quarantined, run.failures, run.releases) == (True, 5, 0)


def test_a_deferred_trial_gives_nothing_up_and_keeps_the_evidence() -> None:
    group, plan = quarantined_record()
    alone = group.next(plan)
    group.start(alone.plan.plan_id)
    group.restart(alone.plan.plan_id)
    group.ends[0] = 10
    group.complete(alone.plan.plan_id)
    trial = started_trial(group, alone.plan.plan_id)
    count = run_at(group, 0).delivery_count
    group.stage(said(0, 0, DEFER, count))
    group.complete(trial)
    assert group.acquire(trial).plan.trial, "on trial again, with the evidence of the same batch"


def test_a_record_whose_lock_was_lost_may_be_deferred() -> None:
    group, plan = batch(1)
    group.stage(said(0, 0, DEFER))
    group.pass_time(SESSION_MS + 1)
    group.join()
    failures = run_at(group, 0).failures
    assert group.complete(plan).outcomes == {"deferred": 1}
    assert (run_at(group, 0).tries, run_at(group, 0).plan_id) == (failures, None)


def test_a_staged_deferral_outlives_the_coordinator() -> None:
    group, plan = batch(1)
    group.stage(said(0, 0, DEFER)._replace(delay_ms=5_000))
    from_snapshot(group)
    group.complete(plan)
    assert run_at(group, 0).not_before_ms == group.now_ms + 5_000


# --- the breaker


SLOW = {"share.release.backoff.ms": "10000", "share.release.backoff.jitter": "0"}


def test_batches_of_deferred_records_alone_open_the_breaker() -> None:
    group, plan = batch(20, **SLOW)
    group.stage(said(0, 19, DEFER))
    group.complete(plan)
    found = group.group.members["m1"].breaker
    assert found is not None and found.pauses == 1 and found.released == 20 > JUDGED_FROM
    assert ranges(group.acquire(plan)) == []


def test_deferred_records_have_no_weight_beside_others() -> None:
    group, plan = batch(20, **SLOW)
    group.stage(said(0, 0, ACCEPT), said(1, 19, DEFER))
    group.complete(plan)
    assert group.group.members["m1"].breaker is None
    group, plan = batch(20, **SLOW)
    group.stage(said(0, 0, RELEASE), said(1, 19, DEFER))
    group.complete(plan)
    found = group.group.members["m1"].breaker
    assert found is not None and (found.pauses, found.released, found.records) == (0, 1, 1)


def test_deferrals_with_delays_of_their_own_open_no_breaker() -> None:
    group, plan = batch(20, **SLOW)
    group.stage(said(0, 19, DEFER)._replace(delay_ms=1_000))
    group.complete(plan)
    assert group.group.members["m1"].breaker is None


# --- who may say it


def test_a_share_consumer_can_not_defer() -> None:
    group = GroupDriver(records=3)
    group.join("c1", query=False)
    fetched(group, 3)
    assert acknowledged(group, 0, 2, 1, DEFER) == {"T:0": "INVALID_REQUEST"}
    assert group.partition().acquired_count == 3


def test_a_stored_outcome_is_one_that_a_sink_can_give() -> None:
    for outcome in range(-1, 8):
        data = msgspec.msgpack.encode(Verdict(1, outcome))  # type: ignore[arg-type]
        if outcome in (0, 1, 2, 3, 5):
            assert msgspec.msgpack.decode(data, type=Verdict).outcome == outcome
        else:
            with pytest.raises(msgspec.ValidationError):
                msgspec.msgpack.decode(data, type=Verdict)
