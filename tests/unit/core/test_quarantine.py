"""Quarantine: at the limit a query's record leaves its batch, is tried alone, and backs off."""

from __future__ import annotations

from tests.support.quarantine import quarantined_plan


def test_an_owner_whose_clock_is_behind_delays_no_record_beyond_its_backoff() -> None:
    group, plan = quarantined_plan()
    alone = group.next(plan).plan.plan_id
    group.start(alone)
    group.restart(alone)
    backoff_ms = group.partition().runs.first().run.delay_ms  # type: ignore[union-attr]
    group.now_ms -= 600_000
    group.crash()
    group.pass_time(0)
    group.join()
    assert not group.next(alone).plan.plan_id
    group.pass_time(backoff_ms)  # type: ignore[arg-type]
    assert group.next(alone).plan.plan_id
