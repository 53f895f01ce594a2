"""The breaker on releases: a query whose service is away acquires later and less, and uses up no tries meanwhile."""

from __future__ import annotations

import pytest

from coordinator.core.commands import AlterConfigs
from coordinator.core.looks.description import describe_group
from coordinator.core.looks.measures import MeasureGroup
from coordinator.core.release_breaker import PROBE_RECORDS, SHORTEST_PAUSE_MS, TRIES_KEPT_MS, Breaker
from coordinator.protocol.messages import LeaveGroup
from coordinator.protocol.values import OutcomeRun
from tests.support.group_driver import UNSET, GroupDriver, from_snapshot, offsets, ranges
from tests.support.sink_driver import ACCEPT, DLQ, EXPLICIT, REJECT, RELEASE, batch, run_at, said, states

FIRST_MS = 10_000
STEADY = {"share.release.backoff.ms": str(FIRST_MS), "share.release.backoff.jitter": "0"}
SPOILT = ("share.release.breaker.ratio=1", "share.release.backoff.ms=0", "share.release.backoff.max.ms=0")


def breaker(group: GroupDriver, member: str = "m1") -> Breaker:
    found = group.group.members[member].breaker
    assert found is not None
    return found


def opened(records: int = 40, **configs: str) -> tuple[GroupDriver, str]:
    """m1's sink released all records, so that its breaker is open; the group, and the completed plan's id."""
    group, plan = batch(records, **{**STEADY, **configs})
    group.stage(said(0, records - 1, RELEASE))
    group.complete(plan)
    return group, plan


def deliver(group: GroupDriver, start: str, outcome: int | None, member: str = "m1") -> str:
    """One batch of the member after the plan ``start``, whose sink decides all of its records so; the id of its plan,
    and ``start`` if there is none."""
    reply = group.acquire(start, member)
    plan = reply.plan.plan_id
    if not plan:
        return start
    group.start(plan, member)
    if outcome is not None:
        runs = [said(first, last, outcome, count) for first, last, count in ranges(reply)]
        group.stage(*runs)
    group.complete(plan, member)
    return plan


def most_releases(group: GroupDriver) -> int:
    return max((run.releases for _, _, run in group.partition().runs), default=0)


def outage(group: GroupDriver, plan: str, ms: int, members: tuple[str, ...] = ("m1",), step_ms: int = 1_000) -> str:
    """The service is away for so long; every sink releases all that it gets. The last plan of the first member."""
    plans = dict.fromkeys(members, "") | {members[0]: plan}
    until_ms = group.now_ms + ms
    while group.now_ms < until_ms:
        for member in members:
            group.join(member, process="kept")
            plans[member] = deliver(group, plans[member], RELEASE, member)
        group.pass_time(step_ms)
    return plans[members[0]]


# --- the breaker: later acquisitions, fewer of them, tries kept


def test_an_outage_of_an_hour_uses_up_one_try() -> None:
    group, plan = opened()
    with group.unchecked():
        plan = outage(group, plan, 3_600_000)
        assert most_releases(group) == 1
        assert group.partition().archived_total == 0
        group.pass_time(300_000)
        group.join("m1", process="kept")
        plan = deliver(group, plan, ACCEPT)
        assert deliver(group, plan, ACCEPT) != plan
    assert group.partition().counts.accepted == 40
    assert group.group.members["m1"].breaker is None


def test_pauses_grow_as_the_backoff_of_a_release() -> None:
    group, plan = opened()
    for pause_ms in (10_000, 20_000, 40_000):
        assert breaker(group).until_ms - group.now_ms == pause_ms
        group.pass_time(pause_ms - 1)
        assert group.acquire(plan).plan.plan_id == ""
        group.pass_time(1)
        group.join("m1", process="kept")
        plan = deliver(group, plan, RELEASE)
    for _ in range(3):
        group.pass_time(300_000)
        group.join("m1", process="kept")
        plan = deliver(group, plan, RELEASE)
    assert breaker(group).until_ms - group.now_ms == 300_000


def test_while_it_is_open_a_plan_is_small_then_large_again() -> None:
    group, plan = opened(40)
    group.ends[0] = 1_040
    group.pass_time(FIRST_MS)
    reply = group.acquire(plan)
    assert ranges(reply) == [(0, 4, 2), (40, 44, 1)], "half of them came back, half are fresh"
    assert offsets(reply) == PROBE_RECORDS
    group.start(reply.plan.plan_id)
    assert offsets(group.next(reply.plan.plan_id)) == 1_030


def test_a_small_limit_of_the_query_holds_while_it_is_open() -> None:
    group, plan = opened(40)
    group.pass_time(FIRST_MS)
    assert ranges(group.acquire(plan, limit=3)) == [(0, 0, 2)]


def test_records_that_are_bad_for_good_hold_up_no_others() -> None:
    group, plan = opened(40)
    group.ends[0] = 60
    group.pass_time(FIRST_MS)
    reply = group.acquire(plan)
    group.start(reply.plan.plan_id)
    group.stage(said(0, 4, RELEASE, 2), said(40, 44, ACCEPT))
    group.complete(reply.plan.plan_id)
    assert group.group.members["m1"].breaker is None


# --- when it opens, and when not


@pytest.mark.parametrize(
    ("rows", "is_open"),
    [
        ([said(0, 39, RELEASE)], True),
        ([said(0, 20, RELEASE)], True),
        ([said(0, 19, RELEASE)], False),
        ([said(0, 8, RELEASE)], False),
        ([said(0, 39, REJECT)], False),
        ([said(0, 39, RELEASE, delay_ms=5_000)], False),
        ([], False),
    ],
)
def test_it_opens_when_sinks_release_most_of_a_plan(rows: list[object], is_open: bool) -> None:
    group, plan = batch(40, **STEADY)
    group.stage(*rows)  # type: ignore[arg-type]
    group.complete(plan)
    assert (describe_group(group.group).members[0].breaker is not None) == is_open


@pytest.mark.parametrize("gone", ["stopped", "nothing in flight"])
def test_a_query_that_acquires_nothing_is_not_described_as_slowed(gone: str) -> None:
    group, _ = opened(40)
    assert [slowed(group), group.run(MeasureGroup(group_id="billing")).slowed] == [["m1"], 1]
    if gone == "stopped":
        group.run(LeaveGroup(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"]))
    else:
        group.move_log_start(group.partition().end_offset)
    assert group.group.members["m1"].breaker is not None
    assert [slowed(group), group.run(MeasureGroup(group_id="billing")).slowed] == [[], 0]


def slowed(group: GroupDriver) -> list[str]:
    return [member.member_id for member in describe_group(group.group).members if member.breaker is not None]


def test_silence_in_explicit_mode_is_a_release() -> None:
    group, plan = batch(40, **STEADY, **EXPLICIT)
    group.stage(said(0, 0, ACCEPT))
    group.complete(plan)
    assert (breaker(group).released, breaker(group).records) == (39, 40)


def test_a_batch_that_no_sink_has_ever_decided_changes_nothing() -> None:
    group, plan = batch(40, **STEADY, **EXPLICIT)
    assert group.complete(plan).undecided
    assert group.group.members["m1"].breaker is None


def test_a_veto_of_an_earlier_attempt_says_nothing_of_the_service() -> None:
    group, plan = batch(40, **STEADY)
    group.stage(said(0, 39, RELEASE))
    group.restart(plan)
    group.stage(said(0, 39, ACCEPT, 2))
    group.complete(plan)
    assert states(group) == ["[0..39] AVAILABLE 2"]
    assert group.group.members["m1"].breaker is None


@pytest.mark.parametrize("said_last", [RELEASE, ACCEPT])
def test_commits_that_contradict_each_other_say_nothing_of_the_service(said_last: int) -> None:
    group, plan = batch(40, **STEADY)
    group.stage(said(0, 39, ACCEPT if said_last == RELEASE else RELEASE))
    group.stage(said(0, 39, said_last))
    group.complete(plan)
    assert states(group) == ["[0..39] AVAILABLE 1"]
    assert group.group.members["m1"].breaker is None


def test_rows_that_contradict_each_other_say_nothing_of_the_service() -> None:
    group, plan = batch(40, **STEADY)
    group.stage(OutcomeRun(0, 39, 1, RELEASE, divided=True))
    group.complete(plan)
    assert states(group) == ["[0..39] AVAILABLE 1"]
    assert group.group.members["m1"].breaker is None


def test_small_batches_add_up() -> None:
    """A topic with three records a batch: nothing but releases, in plans on end."""
    group = GroupDriver(records=3, **STEADY)
    group.join()
    plan = deliver(group, "", RELEASE)
    for more in (6, 9):
        group.ends[0] = more
        plan = deliver(group, plan, RELEASE)
    assert breaker(group).pauses == 0
    group.ends[0] = 12
    deliver(group, plan, RELEASE)
    assert (breaker(group).pauses, breaker(group).released) == (1, 12)


def test_one_batch_that_goes_well_begins_the_count_anew() -> None:
    group = GroupDriver(records=9, **STEADY)
    group.join()
    plan = deliver(group, "", RELEASE)
    group.ends[0] = 10
    plan = deliver(group, plan, ACCEPT)
    group.ends[0] = 19
    deliver(group, plan, RELEASE)
    assert (breaker(group).pauses, breaker(group).released) == (0, 9)


@pytest.mark.parametrize("config", SPOILT)
def test_a_group_may_do_without_it(config: str) -> None:
    key, _, value = config.partition("=")
    group, plan = opened(40, **{key: value})
    assert group.group.members["m1"].breaker is None
    group.pass_time(FIRST_MS)
    assert offsets(group.acquire(plan)) == 40


@pytest.mark.parametrize("config", SPOILT)
def test_a_config_that_is_altered_ends_it_at_once(config: str) -> None:
    group, plan = opened(40)
    key, _, value = config.partition("=")
    group.run(AlterConfigs(configs={key: value}))
    assert describe_group(group.group).members[0].breaker is None
    group.ends[0] = 140
    assert ranges(group.acquire(plan)) == [(40, 139, 1)], "at once, and as many as ever"


def test_by_default_it_is_there() -> None:
    group, plan = batch(40, **UNSET)
    group.stage(said(0, 39, RELEASE))
    group.complete(plan)
    assert 8_000 <= breaker(group).until_ms - group.now_ms <= 12_000


# --- outcomes while it is open


def test_rejects_and_accepts_are_as_ever_and_close_it() -> None:
    group, plan = opened(40, **DLQ)
    group.pass_time(FIRST_MS)
    reply = group.acquire(plan)
    group.start(reply.plan.plan_id)
    group.stage(said(0, 1, REJECT, 2), said(2, 2, ACCEPT, 2), said(3, 4, RELEASE, 2))
    group.complete(reply.plan.plan_id)
    assert states(group)[:2] == ["[0..1] ARCHIVING 2", "[2..2] ACKNOWLEDGED 2"]
    assert run_at(group, 3).releases == 1, "acquired while it was open"
    assert group.group.members["m1"].breaker is None


def test_a_released_record_of_an_open_breaker_waits_its_own_time_too() -> None:
    """Another query gets it no earlier, and an AvailableNow run that began before does not get it."""
    group, plan = opened(40)
    group.pass_time(FIRST_MS)
    deliver(group, plan, RELEASE)
    assert run_at(group, 0).not_before_ms == group.now_ms + 2 * FIRST_MS


def test_after_a_day_of_pauses_releases_use_up_tries_again() -> None:
    """Everything ends: a queue of nothing but records that no sink accepts is given up."""
    group, plan = opened(5, **DLQ)
    assert group.group.members["m1"].breaker == Breaker(5, 5), "too few to say anything yet"
    with group.unchecked():
        plan = outage(group, plan, TRIES_KEPT_MS // 2, step_ms=60_000)
        assert most_releases(group) == 2
        outage(group, plan, TRIES_KEPT_MS, step_ms=60_000)
    assert group.partition().archiving_count == 5


def test_short_pauses_end_the_keeping_of_tries_too() -> None:
    short = {"share.release.backoff.ms": "1", "share.release.backoff.max.ms": "1"}
    group, plan = opened(40, **short)
    group.pass_time(1)
    deliver(group, plan, RELEASE)
    assert breaker(group).paused_ms == 2 * SHORTEST_PAUSE_MS


# --- several queries


def test_a_second_query_of_the_service_uses_up_no_further_try() -> None:
    members = tuple(f"m{number}" for number in range(1, 9))
    group, plan = opened()
    with group.unchecked():
        outage(group, plan, 600_000, members)
        assert most_releases(group) == 1
        assert group.partition().archived_total == 0
        assert breaker(group, "m2").paused_ms > SHORTEST_PAUSE_MS


def test_a_query_whose_service_is_there_is_not_slowed() -> None:
    group, _ = opened(40)
    group.join("m2")
    group.ends[0] = 140
    plan = deliver(group, "", ACCEPT, "m2")
    assert group.group.members["m2"].breaker is None
    group.pass_time(FIRST_MS)
    assert offsets(group.acquire(plan, "m2")) == 40


def test_the_breaker_of_a_query_that_is_gone_says_nothing_to_others() -> None:
    group, _ = opened(40)
    group.run(LeaveGroup(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"]))
    group.join("m2")
    group.ends[0] = 140
    deliver(group, "", RELEASE, "m2")
    assert breaker(group, "m2").paused_ms == FIRST_MS
    assert run_at(group, 100).releases == 1


# --- crashes, restarts, clocks


def test_it_survives_a_takeover_a_snapshot_and_a_restart_of_the_query() -> None:
    group, plan = opened(40)
    before = breaker(group)
    group.crash()
    group.join(process="m1-again")
    assert breaker(group) == before
    from_snapshot(group)
    group.join(process="m1-again")
    assert breaker(group) == before
    assert group.acquire(plan).plan.plan_id == ""
    group.pass_time(FIRST_MS)
    assert ranges(group.acquire(plan)) == [(0, 4, 2)]


def test_a_completion_that_is_sent_again_is_counted_once() -> None:
    group, plan = opened(40)
    before = breaker(group)
    group.pass_time(1_000)
    group.complete(plan)
    assert breaker(group) == before


def test_a_crash_before_the_append_judges_the_batch_later() -> None:
    group, plan = batch(40, **STEADY)
    group.stage(said(0, 39, RELEASE))
    log = list(group.log)
    group.complete(plan)
    group.log = log
    group.crash()
    group.join(process="m1-process-1")
    assert group.group.members["m1"].breaker is None
    group.complete(plan)
    assert breaker(group).pauses == 1
    assert most_releases(group) == 1


def test_a_replay_of_a_small_batch_keeps_its_tries() -> None:
    group, plan = opened(40)
    group.pass_time(FIRST_MS)
    reply = group.acquire(plan)
    probe = reply.plan.plan_id
    group.start(probe)
    group.crash()
    group.restart(probe)
    group.stage(*(said(first, last, RELEASE, count + 1) for first, last, count in ranges(reply)))
    group.complete(probe)
    assert (most_releases(group), breaker(group).pauses) == (1, 2)


def test_a_pause_of_another_clock_is_over() -> None:
    group, plan = opened(40)
    group.now_ms -= 3_600_000
    group.crash()
    group.join(process="m1-again")
    group.ends[0] = 50
    assert ranges(group.acquire(plan)) == [(40, 49, 1)]
    deliver(group, plan, RELEASE)
    assert breaker(group).since_ms <= group.now_ms


def test_losses_are_reported_during_a_pause_and_say_nothing_of_the_service() -> None:
    group, plan = opened(40)
    before = breaker(group)
    group.move_log_start(10)
    reply = group.acquire(plan)
    assert (reply.plan.plan_id != "", offsets(reply)) == (True, 0)
    told = group.start(reply.plan.plan_id, fail_on_data_loss=False)
    assert [(lost.first, lost.last) for lost in told.data_loss] == [(0, 9)]
    group.complete(reply.plan.plan_id)
    assert breaker(group) == before
