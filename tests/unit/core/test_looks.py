"""Looks at records in flight, plans and measures: each row says all that is known; and a member that is released."""

from __future__ import annotations

import pytest

from coordinator.core.commands.administer import HELD_UNTIL
from coordinator.core.commands.measure_group import GroupMeasures, MeasureGroup, PartitionMeasures
from coordinator.core.isolation import Stage
from coordinator.protocol.admin_messages import (
    Altered,
    Effect,
    ListInFlight,
    ListPlans,
    PlanInFlight,
    ReleaseMember,
    RunInFlight,
)
from coordinator.protocol.errors import MemberNotFound
from coordinator.protocol.messages import JoinGroup
from coordinator.protocol.values import AcknowledgeType
from tests.kip932.consumers import LOCK_MS, ShareConsumers
from tests.support.group_driver import TOPIC_ID, GroupDriver, started_plan
from tests.support.quarantine import quarantined_record, started_trial

BILLING = {"group_id": "billing"}
BEGUN_MS = GroupDriver().now_ms
HERE = {"topic": "orders", "topic_id": TOPIC_ID, "partition": 0}
FRESH = {"delivery_count": 1, "failures": 0, "releases": 0}


def runs_of(group: GroupDriver) -> list[RunInFlight]:
    return list(group.run(ListInFlight(**BILLING)).runs)


@pytest.fixture
def consumers() -> ShareConsumers:
    """c1 has released record 0, rejected 1, holds 2 to 9, and 7 ms later works on 3."""
    group = ShareConsumers(errors_deadletterqueue_topic_name="dlq")
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


def test_a_groups_measures_are_those_of_its_runs(consumers):
    partition = {"topic": "orders", "partition": 0, "start_offset": 0, "delivery_complete": 0}
    assert consumers.run(MeasureGroup(**BILLING)) == GroupMeasures(
        state="STABLE",
        read_committed=False,
        members=(0, 3),
        oldest_ms=7,
        isolated={},
        partitions=(PartitionMeasures(**partition, in_flight=10, runs=5, acquired=8, archiving=1),),
    )


def test_a_released_members_records_are_counted_and_others_get_them(consumers):
    def release(*, execute: bool) -> Altered:
        altered = consumers.run(ReleaseMember(**BILLING, member_id="c1", execute=execute))
        assert isinstance(altered, Altered)
        return altered

    def effect(held: int) -> tuple[Effect, ...]:
        return (Effect(what="records that member c1 holds", before=str(held), after="0, available to others"),)

    before = consumers.dump()
    note = HELD_UNTIL.format(count=8)
    assert release(execute=False) == Altered(executed=False, effects=effect(8), notes=(note,))
    assert consumers.dump() == before, "a look changes nothing"
    assert release(execute=True) == Altered(executed=True, effects=effect(8), notes=(note,))
    assert [r[:2] for r in consumers.fetch("c2")] == [(0, 0), (2, 2), (4, 9), (10, 99)], "3 has a grace"
    gone = "The member has no session, and holds nothing."
    assert release(execute=True) == Altered(executed=True, effects=effect(0), notes=(gone,))
    with pytest.raises(MemberNotFound):
        consumers.run(ReleaseMember(**BILLING, member_id="c9", execute=True))


@pytest.mark.parametrize(("lock_ends", "count"), [(False, 7), (True, 3)])
def test_a_dry_run_counts_the_records_that_a_release_changes(lock_ends, count):
    """Records whose lock has ended still carry the id of their plan, and are not held."""
    group = ShareConsumers(end=20, share_acquire_mode="record_limit")
    group.fetch("c1", max_records=7)
    if lock_ends:
        group.wait(LOCK_MS + 1)
        group.fetch("c1", max_records=3)
    asked = {**BILLING, "member_id": "c1"}
    (dry,) = group.run(ReleaseMember(**asked)).effects
    assert (dry.before, group.partition().acquired_count) == (str(count), count)
    assert group.run(ReleaseMember(**asked, execute=True)).effects == (dry,)
    assert group.partition().acquired_count == 0


def test_the_stages_of_a_quarantined_record_and_of_its_trial_are_shown():
    group, plan = quarantined_record(limit=3, records=10)
    (run,) = runs_of(group)
    assert (run.state, run.stage, run.failures, run.plan_id, run.member_id) == ("AVAILABLE", "failed alone", 3, "", "")
    assert group.run(MeasureGroup(**BILLING)).isolated == {Stage.FAILED_ALONE: 1}
    trial = started_trial(group, plan)
    (listed,) = group.run(ListPlans(**BILLING)).plans
    assert listed == PlanInFlight(
        plan_id=trial,
        member_id="m1",
        query_id="",
        state="started",
        acquired_ms=group.now_ms,
        records=1,
        held=1,
        attempt=0,
        stage="trial",
        evidence=listed.evidence,
    )
    assert [(run.first, run.stage, run.state) for run in runs_of(group)] == [(0, "trial", "ACQUIRED")]
    measures = group.run(MeasureGroup(**BILLING))
    assert (measures.isolated[Stage.TRIAL], measures.members, measures.oldest_ms) == (1, (1, 0), 0)


def test_records_count_as_sliced_until_their_plan_completes():
    group, _ = started_plan(10, **{"share.delivery.count.limit": "5"})
    group.ends[0] = 18
    group.join("m2")
    failing = group.next(member="m2").plan.plan_id
    group.start(failing, "m2")
    assert group.run(MeasureGroup(**BILLING)).isolated == {}
    for _ in range(3):
        group.restart(failing, "m2")
    assert group.run(MeasureGroup(**BILLING)).isolated == {Stage.SLICED: 8}
    group.complete(failing, "m2")
    assert group.run(MeasureGroup(**BILLING)).isolated == {}
