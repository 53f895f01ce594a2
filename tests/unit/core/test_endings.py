"""A query that keeps ending: what its processes say when they end, and what is shown of those that say nothing."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.core.looks.ending_queries import TOLD_MS
from coordinator.protocol.messages import DescribeGroup, LeaveGroup, QueryEnding, ReportEnding
from tests.support.group_driver import SESSION_MS, GroupDriver, from_snapshot, started_plan
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


def test_each_process_counts_once_and_its_newest_error_is_shown() -> None:
    group, plan = started_plan(10)
    began_ms = group.now_ms
    for _ in range(3):
        say(group)
        say(group, DENIED)
        group.pass_time(60_000)
        group.restart(plan)
    found = ending(group)
    assert found is not None and (found.error, found.times, found.runs) == (DENIED[0], 3, True)
    assert (found.first_ms, found.last_ms) == (began_ms, began_ms + 120_000)


def test_the_same_word_again_writes_nothing() -> None:
    group, _ = started_plan(10)
    say(group)
    written = len(group.log)
    say(group)
    assert len(group.log) == written


def test_a_completed_batch_ends_the_story() -> None:
    group, plan = started_plan(10)
    say(group)
    group.restart(plan)
    group.complete(plan)
    assert ending(group) is None


@pytest.mark.parametrize("starts", [1, 2, 3, 4, 9])
def test_processes_that_end_without_a_word_are_shown_from_the_third(starts: int) -> None:
    group, plan = started_plan(10)
    for _ in range(starts - 1):
        group.pass_time(10_000)
        group.restart(plan)
    found = ending(group)
    assert (found is not None and (found.error, found.times, found.runs)) == (starts > 3 and ("", starts - 1, True))


def test_a_word_is_not_left_to_a_process_that_said_nothing() -> None:
    group, plan = started_plan(10)
    say(group)
    for _ in range(3):
        group.restart(plan)
    assert times(group) == ("", 3)


def test_a_restart_with_nothing_to_complete_is_no_end() -> None:
    group, plan = started_plan(10)
    group.complete(plan)
    for _ in range(9):
        group.join()
    assert ending(group) is None


def test_a_process_that_runs_after_one_end_is_not_shown() -> None:
    group, plan = started_plan(10)
    say(group)
    group.restart(plan)
    assert ending(group) is None


def test_a_process_that_lives_longer_than_its_session_has_not_ended() -> None:
    group, _ = started_plan(10)
    say(group)
    for _ in range(3):
        group.pass_time(SESSION_MS - 1_000)
        group.join("m1", process="m1-process-1")
    assert ending(group) is None


def test_each_refused_join_is_an_end() -> None:
    group, _ = started_plan(10)
    group.run(LeaveGroup(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"]))
    for _ in range(4):
        say(group, member_epoch=None)
    assert times(group) == (MISSING[0], 4)


def test_a_refused_second_start_does_not_end_the_process_that_runs() -> None:
    group, _ = started_plan(10)
    say(group, member_epoch=None, process_id="another")
    assert ending(group) is None
    group.pass_time(SESSION_MS + 1_000)
    assert times(group) == (MISSING[0], 1)


def test_a_join_that_is_refused_after_its_epoch_was_given_counts_once() -> None:
    group, plan = started_plan(10)
    for _ in range(2):
        say(group, member_epoch=None, process_id=group.group.members["m1"].process_id)
        assert ending(group) is not None, "no other process runs"
        group.restart(plan)
    assert times(group) == (MISSING[0], 2)


def test_a_query_that_never_joined_has_nothing_to_say() -> None:
    group, _ = started_plan(10)
    say(group, member="m2")
    say(group, member="m2", member_epoch=7)
    assert times(group) == ("", 0) and "m2" not in group.group.members


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


def test_a_tasks_error_is_an_end_once_no_process_runs() -> None:
    group, plan = started_plan(10)
    say(group, DENIED, is_over=False)
    assert ending(group) is None, "Spark may try the task again"
    group.pass_time(SESSION_MS + 1_000)
    assert times(group) == (DENIED[0], 1)
    group.restart(plan)
    assert ending(group) is None
    say(group, DENIED, is_over=False)
    group.restart(plan)
    assert times(group) == (DENIED[0], 2)


def test_a_tasks_error_is_no_end_once_its_batch_was_staged() -> None:
    group, _ = started_plan(10)
    say(group, DENIED, is_over=False)
    group.stage(said(0, 9, ACCEPT))
    group.pass_time(SESSION_MS + 1_000)
    assert ending(group) is None, "the query was stopped"


def test_a_query_that_is_gone_is_shown_for_a_day() -> None:
    group, _ = started_plan(10)
    say(group)
    group.pass_time(TOLD_MS)
    assert times(group) == (MISSING[0], 1)
    group.pass_time(1)
    assert ending(group) is None


def test_the_ends_outlive_their_coordinator_and_its_log() -> None:
    group, plan = started_plan(10)
    for _ in range(4):
        say(group)
        group.restart(plan)
    group.crash()
    assert times(group) == (MISSING[0], 4)
    from_snapshot(group)
    assert times(group) == (MISSING[0], 4)
