"""A sink's outcomes: what a release, a deferral and silence do beyond the stories of tests/scenarios."""

from __future__ import annotations

import msgspec
import pytest

from coordinator.core.staging import Verdict
from coordinator.protocol.errors import AcknowledgementModeDiffers, NothingDecided
from coordinator.protocol.messages import NextPlan
from coordinator.protocol.values import AcknowledgeType
from coordinator.service.runtime import transactions
from tests.support.group_driver import UNSET, GroupDriver, acknowledged, fetched, ranges, started_plan
from tests.support.quarantine import quarantined_record
from tests.support.sink_driver import ACCEPT, DLQ, EXPLICIT, IMPLICIT, RELEASE, batch, run_at, said
from tests.support.source_driver import facts, run_transaction


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


DEFER = AcknowledgeType.DEFER


def test_a_run_that_began_before_a_deferral_does_not_get_the_record() -> None:
    group, plan = batch(2)
    group.pass_time(1)
    began_ms = group.now_ms
    group.stage(said(0, 1, DEFER))
    group.complete(plan)
    assert ranges(group.acquire(plan, began_ms=began_ms)) == []
    assert ranges(group.acquire(plan, began_ms=began_ms + 1)) == [(0, 1, 2)]


# --- attempts that disagree, and other edges


def test_a_deferred_quarantined_record_keeps_its_stage() -> None:
    group, plan = quarantined_record()
    alone = group.next(plan)
    group.start(alone.plan.plan_id)
    group.stage(said(0, 0, DEFER, ranges(alone)[0][2]))
    group.complete(alone.plan.plan_id)
    run = run_at(group, 0)
    assert (run.quarantined, run.failures, run.releases) == (True, 5, 0)


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
