"""A deferred record is given back without a try, a failure, or weight in the breaker on releases."""

from __future__ import annotations

import msgspec
import pytest

from coordinator.core.staging import Verdict
from coordinator.protocol.values import AcknowledgeType
from tests.support.group_driver import GroupDriver, acknowledged, fetched, ranges
from tests.support.quarantine import quarantined_record
from tests.support.sink_driver import batch, run_at, said

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
