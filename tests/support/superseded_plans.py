"""A plan that a stopped driver was given, and another plan that its successor was given instead."""

from __future__ import annotations

import contextlib

from tests.support.group_driver import SESSION_MS, GroupDriver

MANY = 10
"""The number of superseded plans above which recovery is checked once, at the end."""


def successor_with_another_plan(plans: int = 1) -> tuple[GroupDriver, str, str]:
    """m1 completed i.1; its driver was given i.2 and stopped. Its successors were given others, and started none.
    The group, i.2, and the newest plan id."""
    group = GroupDriver(records=100)
    group.join()
    first = group.acquire(limit=60).plan.plan_id
    group.start(first)
    logged = group.next(first).plan.plan_id
    newest = logged
    with group.unchecked() if plans > MANY else contextlib.nullcontext():
        for _ in range(plans):
            take_records_away(group)
            group.join()
            newest = group.acquire(first, limit=30).plan.plan_id
    assert (first, logged) == ("i.1", "i.2") and group.group.members["m1"].newest is not None
    return group, logged, newest


def take_records_away(group: GroupDriver) -> None:
    """m1's session ends; another member acquires what m1 held, and its session ends too."""
    group.pass_time(SESSION_MS + 1)
    group.join("other")
    group.acquire(member="other", limit=None)
    group.pass_time(SESSION_MS + 1)
