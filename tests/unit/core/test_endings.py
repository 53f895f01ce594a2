"""A query that keeps ending: what its processes say when they end, and what is shown of those that say nothing."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.protocol.messages import DescribeGroup, QueryEnding, ReportEnding
from tests.support.group_driver import GroupDriver, started_plan
from tests.support.sink_driver import ACCEPT, said

MISSING = ("DeadLetterTopicMissing", "Dead letter topic dlq does not exist.")
DENIED = ("ReadDenied", "Executors may not read the topic orders.")
DRIVER = {"client_host": "host-1", "client_pid": 4711}


def say(group: GroupDriver, error: tuple[str, str] = MISSING, member: str = "m1", **fields: Any) -> None:
    of = {"member_id": member, "member_epoch": group.epochs.get(member), **fields}
    group.run(ReportEnding(group_id="billing", error=error[0], text=error[1], **of))


def say_as_sink(group: GroupDriver, checkpoint: str = "") -> None:
    say(group, member="", member_epoch=None, checkpoint=checkpoint, **DRIVER)


def ending(group: GroupDriver, member: str = "m1") -> QueryEnding | None:
    described = group.run(DescribeGroup(group_id="billing"))
    return next(each.ending for each in described.members if each.member_id == member)


def times(group: GroupDriver, member: str = "m1") -> tuple[str, int]:
    found = ending(group, member)
    return ("", 0) if found is None else (found.error, found.times)


def test_a_query_that_ends_with_a_named_error_is_shown_at_once() -> None:
    group, _ = started_plan(10)
    say(group)
    assert ending(group) == QueryEnding(
        times=1, first_ms=group.now_ms, last_ms=group.now_ms, error=MISSING[0], text=MISSING[1]
    )


def test_the_same_word_again_writes_nothing() -> None:
    group, _ = started_plan(10)
    say(group)
    written = len(group.log)
    say(group)
    assert len(group.log) == written


def test_a_fenced_process_does_not_speak_for_its_successor() -> None:
    group, plan = started_plan(10)
    group.restart(plan)
    say(group, DENIED)
    say(group, MISSING, member_epoch=1)
    assert times(group) == (DENIED[0], 2)


@pytest.mark.parametrize(
    ("checkpoint", "names"), [("", ("", "")), ("ckpt/m2", ("", MISSING[0])), ("ckpt/m3", ("", ""))]
)
def test_a_sink_speaks_for_the_query_of_its_driver(checkpoint: str, names: tuple[str, str]) -> None:
    group = GroupDriver(records=100)
    group.join("m1", **DRIVER)
    group.start(group.next(member="m1", limit=10).plan.plan_id, "m1")
    say_as_sink(group)
    assert times(group) == (MISSING[0], 1), "the driver has one query"
    group.complete("i.1")
    group.join("m2", **DRIVER)
    for member, before, first in (("m1", "i.1", 10), ("m2", "", 20)):
        group.start(group.acquire(before, member, 10).plan.plan_id, member)
        group.stage(said(first, first, ACCEPT), checkpoint=f"ckpt/{member}")
    say_as_sink(group, checkpoint)
    assert (times(group)[0], times(group, "m2")[0]) == names


def test_a_sink_of_another_driver_says_nothing() -> None:
    group, _ = started_plan(10)
    say(group, member="", member_epoch=None, client_host="host-2", client_pid=0)
    say_as_sink(group)
    assert ending(group) is None
