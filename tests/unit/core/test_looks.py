"""Looks at records in flight, plans and measures: each row says all that is known; and a member that is released."""

from __future__ import annotations

import pytest

from coordinator.core.commands.administer import HELD_UNTIL, AlterStartOffsets
from coordinator.core.isolation import Stage
from coordinator.core.log_records import PlanAcquired, RunsChanged
from coordinator.core.looks import measures
from coordinator.core.looks import shown_runs as runs_look
from coordinator.core.looks.measures import GroupMeasures, MeasureGroup, PartitionMeasures
from coordinator.core.looks.shown_runs import MOST_WINDOWS
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.protocol.admin_messages import (
    Altered,
    Effect,
    ListInFlight,
    ListPlans,
    ListWindows,
    ReleaseMember,
    RunInFlight,
    Window,
)
from coordinator.protocol.errors import MemberNotFound
from coordinator.protocol.messages import JoinGroup, RecordCounts
from coordinator.protocol.values import AcknowledgeType
from tests.kip932.consumers import LOCK_MS, ShareConsumers
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, started_plan
from tests.support.sink_driver import REJECT, RELEASE, said

BILLING = {"group_id": "billing"}
BEGUN_MS = GroupDriver().now_ms
HERE = {"topic": "orders", "topic_id": TOPIC_ID, "partition": 0}
FRESH = {"delivery_count": 1, "failures": 0, "releases": 0}


def runs_of(group: GroupDriver) -> list[RunInFlight]:
    return list(group.run(ListInFlight(**BILLING)).runs)


@pytest.fixture
def consumers() -> ShareConsumers:
    """c1 has released record 0, rejected 1, holds 2 to 9, and 7 ms later works on 3."""
    group = ShareConsumers(errors_deadletterqueue_topic_name="dlq", share_isolation_level="read_committed")
    group.run(JoinGroup(**BILLING, member_id="c1", process_id="p", query=False, client_id="etl", client_host="host-1"))
    group.epochs["c1"] += 1
    group.fetch("c1", 10)
    group.acknowledge(AcknowledgeType.RELEASE, 0)
    group.acknowledge(AcknowledgeType.REJECT, 1)
    group.pass_time(7)
    group.signal(3, hint="page 2")
    return group


def test_a_run_in_flight_is_listed_with_all_known_fields(consumers):
    held = {"plan_id": "i.1", "member_id": "c1", "client_id": "etl", "client_host": "host-1", "since_ms": BEGUN_MS}
    acquired = {**HERE, **FRESH, **held, "state": "ACQUIRED", "lock_deadline_ms": BEGUN_MS + LOCK_MS}
    signals = {"first_signal_ms": BEGUN_MS + 7, "last_signal_ms": BEGUN_MS + 7, "hint": "page 2"}
    stale_ms = consumers.group.config.group_share_in_progress_staleness_threshold_ms
    assert runs_of(consumers) == [
        RunInFlight(**{**HERE, **FRESH, "first": 0, "last": 0, "state": "AVAILABLE", "releases": 1}),
        RunInFlight(
            **{**HERE, **FRESH, "first": 1, "last": 1, "state": "ARCHIVING"}, stage="given up", disposition="rejected"
        ),
        RunInFlight(**acquired, first=2, last=2),
        RunInFlight(
            **{**acquired, **signals, "state": "IN_PROGRESS", "lock_deadline_ms": BEGUN_MS + 7 + stale_ms},
            first=3,
            last=3,
        ),
        RunInFlight(**acquired, first=4, last=9),
    ]


def test_runs_are_listed_alike_by_pages_and_by_windows(consumers):
    runs = runs_of(consumers)
    for cursor, run in zip([None, *((TOPIC_ID, 0, run.first) for run in runs[1:])], runs, strict=True):
        assert consumers.run(ListInFlight(**BILLING, cursor=cursor, limit=1)).runs == (run,)
    window = Window(topic_id=TOPIC_ID, partition=0, first=0, last=9, limit=5)
    pages = consumers.run(ListWindows(**BILLING, windows=(window,) * MOST_WINDOWS)).pages
    assert len(pages) == MOST_WINDOWS and pages[0].runs == tuple(runs)


def test_runs_are_listed_of_one_member_or_of_an_age(consumers):
    def listed(**filters) -> list[int]:
        return [run.first for run in consumers.run(ListInFlight(**BILLING, **filters)).runs]

    assert listed(member_id="c1") == [2, 3, 4]
    assert listed(progress_staleness_ms=6) == [2, 4], "3 has a signal of now"
    assert listed(progress_staleness_ms=7) == listed(held_longer_than_ms=7) == []
    consumers.pass_time(1)
    assert listed(progress_staleness_ms=0) == [2, 3, 4]
    assert listed(held_longer_than_ms=7) == [2, 3, 4]
    consumers.fetch("c2")
    consumers.pass_time(1)
    assert listed(member_id="c2", progress_staleness_ms=0) == [0, 10]


def test_a_decided_run_is_listed_with_its_reason_and_next_time():
    group, plan = started_plan(3, **{"errors.deadletterqueue.topic.name": "dlq"})
    group.stage(said(0, 0, REJECT, reason="no customer"), said(1, 2, RELEASE, delay_ms=30_000))
    group.complete(plan)
    assert [(run.reason, run.not_before_ms) for run in runs_of(group)] == [
        ("no customer", None),
        ("", group.now_ms + 30_000),
    ]


def test_a_plan_is_listed_without_partitions_that_it_lost():
    """Another query took the records of one, an administrator deleted the offsets of another."""
    group = GroupDriver(records=10, partitions=3)
    group.join()
    group.start(group.acquire().plan.plan_id)
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    group.acquire(member="m2", limit=1)
    taken = [p for p in range(3) if not group.partition(p).runs.carried.get(1)]
    assert len(taken) == 1
    deleted = (taken[0] + 1) % 3
    group.run(AlterStartOffsets(starts=((TOPIC_ID, deleted, None),), execute=True, force=True))
    plan, _ = group.run(ListPlans(**BILLING)).plans
    assert (plan.records, plan.held, plan.stage) == (30, 10, "normal")


@pytest.mark.parametrize(("sliced", "stage"), [(1, "sliced"), (2, "normal")])
def test_a_plans_stage_is_that_of_its_first_runs(sliced, stage, monkeypatch):
    monkeypatch.setattr(runs_look, "LOOKED_AT_OF_A_PLAN", 2)
    group, _ = started_plan(3)
    runs = ((n, n, Run(RecordState.ACQUIRED, 3, 3 if n == sliced else 0, releases=n, plan_id=1)) for n in range(3))
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=tuple(runs))])
    (plan,) = group.run(ListPlans(**BILLING)).plans
    assert plan.stage == stage


def test_a_groups_measures_are_those_of_its_runs(consumers):
    partition = {"topic": "orders", "partition": 0, "start_offset": 0, "delivery_complete": 0}
    assert consumers.run(MeasureGroup(**BILLING)) == GroupMeasures(
        state="STABLE",
        read_committed=True,
        members=(0, 3),
        oldest_ms=7,
        isolated={},
        slowed=0,
        ending={},
        waiting=0,
        longest_wait_ms=0,
        records=RecordCounts(reached=10, still_there=10),
        paused=(),
        limits={},
        partitions=(PartitionMeasures(**partition, in_flight=10, runs=5, acquired=8, archiving=1),),
    )


def oldest_ms(group: GroupDriver) -> int:
    return group.run(MeasureGroup(**BILLING)).oldest_ms


def test_records_whose_lock_has_ended_have_no_age_as_held_ones():
    group = ShareConsumers()
    group.fetch("c1", 10)
    group.wait(LOCK_MS)
    assert oldest_ms(group) == LOCK_MS
    group.wait(1)
    assert (group.states(), oldest_ms(group)) == (["0-9 AVAILABLE 1"], 0)


@pytest.mark.parametrize(("runs", "is_held"), [(2, False), (3, True)])
def test_a_plan_with_very_many_runs_counts_as_held(runs, is_held, monkeypatch):
    """To look at all of them would take too long. The lock of each has ended."""
    monkeypatch.setattr(measures, "MOST_LOOKED_AT", 3)
    group = ShareConsumers(end=runs)
    group.fetch("c1")
    lost = tuple((n, n, Run(RecordState.AVAILABLE, 1, failures=n, plan_id=1)) for n in range(runs))
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=lost)])
    group.pass_time(7)
    assert oldest_ms(group) == (7 if is_held else 0)


def isolated(group: GroupDriver) -> dict[Stage, int]:
    return dict(group.run(MeasureGroup(**BILLING)).isolated)


def test_a_measure_counts_isolated_records_among_the_first_runs(monkeypatch):
    """Of each partition as many; of the quarantined ones, which are kept apart, more."""
    group = GroupDriver(partitions=2)
    tried_twice = Run(RecordState.AVAILABLE, 2, failures=2)
    aside = Run(RecordState.AVAILABLE, 5, failures=5, quarantined=True)
    runs = tuple((n, n + 1, (tried_twice, aside)[n // 6]._replace(releases=n // 2)) for n in range(0, 12, 2))
    group.append(RunsChanged(topic_id=TOPIC_ID, partition=p, runs=runs) for p in range(2))
    assert isolated(group) == {Stage.SLICED: 2 * 3 * 2, Stage.QUARANTINED: 2 * 3 * 2}
    monkeypatch.setattr(measures, "MOST_SLICED", 1)
    monkeypatch.setattr(measures, "MOST_ISOLATED", 2)
    assert isolated(group) == {Stage.SLICED: 2 * 1 * 2, Stage.QUARANTINED: 2 * 2 * 2}


def test_the_trials_of_all_queries_are_measured():
    group = GroupDriver()
    for number, member in ((1, "m1"), (2, "m2")):
        epoch = group.join(member)
        plan = {"plan_id": number, "member_id": member, "member_epoch": epoch, "acquired_ms": group.now_ms}
        on_trial = (number, number, Run(RecordState.ACQUIRED, 6, failures=5, plan_id=number, quarantined=True))
        group.append(
            [
                PlanAcquired(**plan, trial=True, ranges=((TOPIC_ID, 0, ((number, number),)),)),
                RunsChanged(topic_id=TOPIC_ID, partition=0, runs=(on_trial,)),
            ]
        )
    assert isolated(group) == {Stage.TRIAL: 2}


def test_a_released_members_records_are_counted_and_others_get_them(consumers):
    def release(*, execute: bool) -> Altered:
        altered = consumers.run(ReleaseMember(**BILLING, member_id="c1", execute=execute))
        assert isinstance(altered, Altered)
        return altered

    def effect(held: int, after: str) -> tuple[Effect, ...]:
        return (Effect(what="records that member c1 (etl, a process on host-1) holds", before=str(held), after=after),)

    before = consumers.dump()
    note, after = HELD_UNTIL.format(count=7), "7 available to others, 1 kept for it for a while, since it works on them"
    assert release(execute=False) == Altered(executed=False, effects=effect(8, after), notes=(note,))
    assert consumers.dump() == before, "a look changes nothing"
    assert release(execute=True) == Altered(executed=True, effects=effect(8, after), notes=(note,))
    assert [r[:2] for r in consumers.fetch("c2")] == [(0, 0), (2, 2), (4, 9), (10, 99)], "3 has a grace"
    first, *_ = runs_of(consumers)
    assert (first.first, first.failures, first.releases) == (0, 0, 1)
    assert (consumers.partition().runs.at(4).run.failures) == 1, "as by a timeout"
    gone = "The member has no session, and holds nothing."
    assert release(execute=True) == Altered(executed=True, effects=effect(0, "0 available to others"), notes=(gone,))
    with pytest.raises(MemberNotFound):
        consumers.run(ReleaseMember(**BILLING, member_id="c9", execute=True))
