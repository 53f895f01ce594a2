"""Groups with a quarantined record: what tests of poison begin with."""

from __future__ import annotations

from tests.support.group_driver import GroupDriver, offsets, ranges, started_plan


def quarantined_record(limit: int = 5, records: int = 1) -> tuple[GroupDriver, str]:
    """The only record fails until it is quarantined; then ``records`` - 1 more arrive. The group, and m1's plan."""
    group, plan = started_plan(1, **{"share.delivery.count.limit": str(limit)})
    for _ in range(limit):
        reclaimed = group.restart(plan)
    assert ranges(reclaimed) == []
    assert group.dump() == [f"[0..0] AVAILABLE {limit} {limit} -"], "quarantined, not archived"
    group.ends[0] = records
    return group, plan


def quarantined_plan(records: int = 1, limit: int = 5, **configs: str) -> tuple[GroupDriver, str]:
    """A plan of ``records`` records fails until all of them are quarantined. Returns the group, and the plan's id."""
    group, plan = started_plan(records, **{"share.delivery.count.limit": str(limit), **configs})
    for _ in range(limit):
        group.restart(plan)
    assert not offsets(group.start(plan))
    return group, plan


def started_trial(group: GroupDriver, plan: str) -> str:
    """Completes other records, so that the quarantined one goes on trial. Returns the trial's plan id."""
    other = group.next(plan)
    assert ranges(other) == [(1, 9, 1)]
    group.start(other.plan.plan_id)
    trial = group.next(other.plan.plan_id)
    assert trial.plan.trial
    assert [r[:2] for r in ranges(trial)] == [(0, 0)]
    group.start(trial.plan.plan_id)
    return trial.plan.plan_id
