"""Explicit acknowledgement mode: what no sink decided is released (docs/trust/protocol.md, "Outcomes of a sink")."""

from __future__ import annotations

import pytest

from coordinator.protocol.errors import AcknowledgementModeDiffers, NothingDecided
from coordinator.protocol.messages import NextPlan
from coordinator.service.runtime import transactions
from tests.support.group_driver import ranges, started_plan
from tests.support.sink_driver import ACCEPT, DLQ, EXPLICIT, IMPLICIT, batch, run_at, said
from tests.support.source_driver import facts, run_transaction


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
