"""Quarantine: at the limit a query's record leaves its batch, is tried alone, and backs off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.core.commands import AcquirePlan, AlterConfigs
from coordinator.core.record_state import RecordState
from coordinator.protocol.admin_messages import ListInFlight
from coordinator.protocol.messages import LeaveGroup, PartitionBounds, PlanReply
from tests.kip932.consumers import ShareConsumers
from tests.support.group_driver import (
    SESSION_MS,
    TOPIC_ID,
    GroupDriver,
    acknowledged,
    fetched,
    offsets,
    ranges,
    started_plan,
)
from tests.support.quarantine import quarantined_plan, quarantined_record, started_trial
from tests.support.sink_driver import ACCEPT, RELEASE, run_at, said

DEAD_LETTERS: dict[str, Any] = {"errors_deadletterqueue_topic_name": "dead", "share_poison_solo_timeout_ms": 600_000}


def test_a_consumer_gets_a_quarantined_record_alone_after_its_backoff() -> None:
    group, plan = quarantined_plan(records=2, limit=2)
    alone = group.next(plan).plan.plan_id
    group.start(alone)
    group.restart(alone)
    group.join("c1", query=False)
    backs_off, other = group.partition().runs
    assert backs_off.run.not_before_ms == group.now_ms + 1_000
    assert [r[:2] for r in fetched(group, 10)] == [(other.first, other.first)], "one of them, alone"
    assert fetched(group, 10) == [], "the other still backs off"
    group.pass_time(1_000)
    assert [r[:2] for r in fetched(group, 10)] == [(backs_off.first, backs_off.first)]


@pytest.mark.parametrize(("held", "taken"), [(99, 1), (100, 0)])
def test_a_quarantined_record_needs_a_free_lock(held: int, taken: int) -> None:
    group, plan = quarantined_plan()
    group.run(AlterConfigs(configs={"share.partition.max.record.locks": "100"}))
    group.complete(plan)
    group.ends[0] = held + 1
    group.join("c1", query=False)
    assert [r[:2] for r in fetched(group, held)] == [(1, held)]
    assert offsets(group.acquire(plan)) == taken


@pytest.mark.parametrize(("waited_ms", "taken"), [(999, 0), (1_000, 1)])
def test_a_backoff_ends_at_its_time(waited_ms: int, taken: int) -> None:
    group, plan = quarantined_plan()
    alone = group.next(plan).plan.plan_id
    group.start(alone)
    group.restart(alone)
    group.pass_time(waited_ms)
    assert offsets(group.next(alone)) == taken


def test_the_least_recently_tried_partition_is_next() -> None:
    group = GroupDriver(records=1, partitions=3, **{"share.delivery.count.limit": "2"})
    group.join()
    plan = group.next().plan.plan_id
    group.start(plan)
    for _ in range(2):
        group.restart(plan)
    tried = []
    for _ in range(6):
        alone = group.next(plan)
        plan = alone.plan.plan_id
        tried.append(alone.plan.partitions[0].partition)
        group.start(plan)
        group.restart(plan)
        group.pass_time(10_000)
    assert tried[:3] == [0, 1, 2], "none was tried yet: the partition whose turn it is"
    assert tried[3:] == tried[:3]


def bound(partition: int, end: int) -> PartitionBounds:
    return PartitionBounds(topic_id=TOPIC_ID, partition=partition, log_start=0, end=end)


def test_no_quarantined_record_beyond_the_log_end_is_acquired() -> None:
    group, plan = quarantined_plan()
    group.complete(plan)
    reply = group.run(
        AcquirePlan(
            group_id="billing", member_id="m1", member_epoch=group.epochs["m1"], start=plan, bounds=(bound(0, 0),)
        )
    )
    assert reply == PlanReply()


def test_a_record_that_never_failed_alone_is_not_on_trial() -> None:
    group, plan = quarantined_plan(records=2, limit=2)
    group.group.config = replace(group.group.config, **DEAD_LETTERS)
    group.now_ms += 10**9
    group.join()
    assert not group.next(plan).plan.trial


def test_the_least_recently_tried_record_is_next() -> None:
    group, plan = quarantined_plan(records=3, limit=2)
    tried = []
    for _ in range(3):
        alone = group.next(plan)
        plan = alone.plan.plan_id
        tried.append(ranges(alone)[0][0])
        group.start(plan)
        group.restart(plan)
        group.pass_time(5)
    assert tried == [0, 1, 2]


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


def test_the_record_that_failed_first_is_tried_again_first() -> None:
    """Two queries try one each; the first to fail is the first to be tried again."""
    group, plan = quarantined_plan(records=2, limit=2)
    group.join("m2")
    first = group.next(plan)
    group.start(first.plan.plan_id)
    group.now_ms += 10
    second = group.acquire(member="m2")
    group.start(second.plan.plan_id, "m2")
    assert (ranges(first)[0][0], ranges(second)[0][0]) == (0, 1)
    for number, member in ((second.plan.plan_id, "m2"), (first.plan.plan_id, "m1")):
        group.now_ms += 10
        group.restart(number, member)
    group.now_ms += 10_000
    assert ranges(group.next(first.plan.plan_id))[0][0] == 1


def alter(group: GroupDriver, limit: int) -> None:
    group.run(AlterConfigs(configs={"share.delivery.count.limit": str(limit)}))


def released_often(times: int) -> GroupDriver:
    """One record that a consumer gave back so often."""
    group = GroupDriver(records=1, **{"share.delivery.count.limit": "10"})
    group.join("c1", query=False)
    for count in range(1, times + 1):
        assert fetched(group, 1) == [(0, 0, count)]
        assert acknowledged(group, 0, 0, count, RELEASE) == {}
    return group


def test_a_lower_limit_quarantines_no_record_that_never_failed() -> None:
    group = released_often(3)
    alter(group, 3)
    group.join()
    group.next()
    group.pass_time(SESSION_MS + 1)
    assert group.dump() == ["[0..0] AVAILABLE 4 0 4"], "nobody read the plan: no failure, so it keeps its number"
    assert list(group.partition().runs.quarantined()) == []


def test_releases_count_among_the_tries_of_a_record_that_fails() -> None:
    group = released_often(3)
    alter(group, 4)
    group.join()
    plan = group.next().plan.plan_id
    group.start(plan)
    back = group.restart(plan)
    assert (ranges(back), [out.reason for out in back.left_out]) == ([], ["quarantined"])
    assert group.dump() == ["[0..0] AVAILABLE 4 1 -"], "three releases and a failure: quarantined"


def test_a_lost_lock_at_the_limit_quarantines_too() -> None:
    group = released_often(3)
    alter(group, 4)
    group.join()
    group.start(group.next().plan.plan_id)
    group.pass_time(SESSION_MS + 1)
    assert len(list(group.partition().runs.quarantined())) == 1
    assert group.partition().archived_total == 0


def group_start(group: GroupDriver) -> str:
    return group.group.plan_id_text(group.group.members["m2"].completed)


def test_another_failure_alone_keeps_evidence() -> None:
    """Only the first time makes evidence old; an outage can begin no more than once for a record."""
    group, plan = quarantined_record()
    since_ms = group.partition().runs.first().run.failed_alone_ms  # type: ignore[union-attr]
    for _ in range(2):
        alone = group.next(plan).plan.plan_id
        group.start(alone)
        group.ends[0] += 3
        group.join("m2")
        good = group.acquire(group_start(group), "m2").plan.plan_id
        group.start(good, "m2")
        group.restart(alone)
        group.complete(good, "m2")
        assert group.group.members["m2"].evidence, "it still stands"
        assert group.partition().runs.first().run.failed_alone_ms == since_ms  # type: ignore[union-attr]
        plan = alone
        group.pass_time(31_000)


def test_the_backoff_doubles_with_each_failure_alone() -> None:
    group, plan = quarantined_record()
    waits = []
    for _ in range(7):
        plan = group.next(plan).plan.plan_id
        group.start(plan)
        group.restart(plan)
        waits.append(group.partition().runs.first().run.not_before_ms - group.now_ms)  # type: ignore[union-attr, operator]
        group.pass_time(31_000)
        group.join()
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]


@pytest.mark.parametrize("leaves", [True, False])
def test_a_query_that_leaves_during_a_lone_try_fails_the_record(leaves: bool) -> None:
    """As a replay would say it: aside still, with its first backoff, and no trial is lost."""
    group, plan = quarantined_record()
    group.start(group.next(plan).plan.plan_id)
    if leaves:
        group.run(LeaveGroup(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"]))
    else:
        group.pass_time(SESSION_MS + 1)
    alone = group.partition().runs.first()
    assert alone is not None
    run = alone.run
    assert (run.state, run.failures, run.plan_id, run.trials_lost) == (RecordState.AVAILABLE, 6, None, 0)
    assert (run.last_tried_ms, run.not_before_ms) == (group.now_ms, group.now_ms + 1_000)
    assert not group.group.may_rest(group.now_ms), "its backoff is to be waited for"
    assert group.group.may_rest(group.now_ms + 1_000)


def test_a_failure_at_the_limit_quarantines() -> None:
    group, _ = quarantined_record()
    assert group.partition().archived_total == 0


def test_failures_archive_no_record_that_a_query_releases() -> None:
    """Four deployments killed the query in mid-batch; then its sink has no time: released as often as the limit."""
    group, plan = started_plan(1)
    for _ in range(4):
        group.restart(plan)
    for release in range(1, 6):
        assert group.partition().archived_total == 0, f"before release {release}"
        group.stage(said(0, 0, RELEASE, run_at(group, 0).delivery_count))
        following = group.next(plan).plan.plan_id
        if following:
            group.start(following)
            plan = following
    assert release == 5
    assert group.partition().archived_total == 1


def test_a_released_record_leaves_quarantine() -> None:
    """An outage quarantined it; alone, it is answered for: later. On trial or not, it waits for its delay, however
    long, and comes alone. If it fails again it is quarantined again."""
    for trial in (False, True):
        group, plan = quarantined_record(records=10 if trial else 1)
        if trial:
            plan = started_trial(group, plan)
        else:
            group.pass_time(31_000)
            plan = group.next(plan).plan.plan_id
            group.start(plan)
        count = run_at(group, 0).delivery_count
        group.stage(said(0, 0, RELEASE, count, delay_ms=120_000))
        group.ends[0] = 10
        for waited_ms in (0, 60_000):
            group.pass_time(waited_ms)
            group.join()
            following = group.next(plan)
            assert (0, 0, count + 1) not in ranges(following), f"{waited_ms} ms are not the delay"
            if following.plan.plan_id:
                plan = following.plan.plan_id
                group.start(plan)
        group.complete(plan)
        group.ends[0] = 12
        group.pass_time(60_000)
        group.join()
        alone = group.acquire(plan)
        assert (ranges(alone), alone.plan.trial) == ([(0, 0, count + 1)], False)
        group.start(alone.plan.plan_id)
        group.restart(alone.plan.plan_id)
        assert run_at(group, 0).failed_alone_ms == group.now_ms
        assert group.partition().archived_total == 0


def test_records_released_from_quarantine_are_one_run_again() -> None:
    """Nothing of their tries alone is left, each of which was at another time."""
    group, plan = quarantined_plan(records=2, limit=2)
    group.join("m2")
    first = group.next(plan).plan.plan_id
    group.start(first)
    group.now_ms += 10
    second = group.acquire(member="m2").plan.plan_id
    group.start(second, "m2")
    group.stage(said(0, 1, RELEASE, 3))
    group.complete(first)
    group.complete(second, "m2")
    assert group.dump() == ["[0..1] AVAILABLE 3 2 -"]


def test_no_count_of_failures_archives_a_querys_record() -> None:
    """KIP-932, In-flight records: ours differs for Spark's queries. At the limit their record is quarantined, to be
    delivered alone, since a batch that fails says nothing of each record in it; only a failed trial archives it."""
    group = ShareConsumers(end=1, share_delivery_count_limit=2)
    group.join("q")
    number = group.acquire(member="q").plan.plan_id
    group.start(number, "q")
    for _ in range(2):
        group.restart(number, "q")
    assert group.states() == ["0 AVAILABLE 2"]
    (run,) = group.run(ListInFlight(group_id="billing")).runs
    assert run.stage == "failed alone"


def test_a_session_that_ends_before_the_start_quarantines_no_record() -> None:
    """Record 0 has failed three times beside another one, and was released twice: five tries. A plan that was acquired
    and never started is no try, and no failure alone."""
    group, plan = started_plan(2, **{"share.delivery.count.limit": "5"})
    for _ in range(3):
        group.restart(plan)
    group.stage(said(0, 0, RELEASE, 4), said(1, 1, ACCEPT, 4))
    for count in (5, 6):
        group.complete(plan)
        plan = group.acquire(plan).plan.plan_id
        if count == 5:
            group.start(plan)
            group.stage(said(0, 0, RELEASE, 5))
    before = run_at(group, 0)
    group.pass_time(SESSION_MS + 1)
    after = run_at(group, 0)
    assert (after.state, after.quarantined, after.failed_alone_ms) == (RecordState.AVAILABLE, False, None)
    assert (after.failures, after.releases) == (before.failures, before.releases) == (3, 2)
