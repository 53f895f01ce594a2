"""What an acquisition takes, and what it passes over: limits on ranges, ends of logs, backoffs, turns, dead letters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.core.commands import AcquireForConsumer, AcquirePlan, AlterConfigs, acquire_plan
from coordinator.protocol.messages import AckBatch, Acknowledge, PartitionAcks, PartitionBounds, PlanReply
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

RELEASE = 2
# No config sets these yet: the queue is not built. The core's rule is.
DEAD_LETTERS: dict[str, Any] = {"errors_deadletterqueue_topic_name": "dead", "share_poison_solo_timeout_ms": 600_000}


def acquired(group: GroupDriver, *bounds: PartitionBounds, most: int | None = 4_000) -> PlanReply:
    """m1's next plan of just these partitions."""
    reply = group.run(AcquirePlan(member_id="m1", member_epoch=group.epochs["m1"], max_records=most, bounds=bounds))
    assert isinstance(reply, PlanReply)
    return reply


def bound(partition: int, end: int) -> PartitionBounds:
    return PartitionBounds(topic_id=TOPIC_ID, partition=partition, log_start=0, end=end)


def scattered(records: int, **configs: str) -> GroupDriver:
    """Every other record was given back: as many runs as records."""
    group = GroupDriver(records=records, **configs)
    group.join("c1", query=False)
    fetched(group, records)
    for offset in range(0, records, 2):
        assert acknowledged(group, offset, offset, 1, RELEASE) == {}
    group.join()
    return group


def test_a_partition_that_the_group_has_no_start_offset_for_gives_nothing() -> None:
    group = GroupDriver(records=10)
    group.join()
    assert acquired(group, bound(7, 10)) == PlanReply()
    assert acquired(group) == PlanReply()
    assert ranges(acquired(group, bound(7, 10), bound(0, 10))) == [(0, 9, 1)]


def test_nothing_at_or_beyond_the_end_is_taken_again() -> None:
    """AvailableNow takes what was there when it began; a last stable offset can stand still."""
    group = scattered(10)
    assert ranges(acquired(group, bound(0, 5))) == [(0, 0, 2), (2, 2, 2), (4, 4, 2)]
    group = GroupDriver(records=10)
    group.join("c1", query=False)
    fetched(group, 10)
    acknowledged(group, 0, 9, 1, RELEASE)
    group.join()
    assert ranges(acquired(group, bound(0, 5))) == [(0, 4, 2)], "a run is cut at the end"


def test_a_plan_has_no_more_ranges_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquire_plan, "MAX_RANGES", 3)
    group = scattered(10)
    group.ends[0] = 20
    assert ranges(group.next()) == [(0, 0, 2), (2, 2, 2), (4, 4, 2)]
    fresh = GroupDriver(records=10, partitions=5)
    fresh.join()
    assert offsets(fresh.next()) == 30


def test_plans_take_turns_at_the_partitions() -> None:
    """Of three partitions each is the first in every third plan, so that none is always the last."""
    group = GroupDriver(records=100, partitions=3, **{"share.acquire.mode": "record_limit"})
    group.join("c1", query=False)
    bounds = group.bounds()
    for _ in bounds:
        group.run(
            AcquireForConsumer(group_id="billing", member_id="c1", member_epoch=1, max_records=100, bounds=bounds)
        )
    group.pass_time(SESSION_MS + 1)
    group.join()
    first, plan = [], ""
    for _ in range(3):
        taken = group.next(plan, limit=10)
        first.append(taken.plan.partitions[0].partition)
        plan = taken.plan.plan_id
        group.use(plan)
    assert sorted(first) == [0, 1, 2]


def test_fresh_records_are_shared_out_by_what_each_partition_has() -> None:
    group = GroupDriver(partitions=2)
    group.ends = {0: 300, 1: 100}
    group.join()
    taken = group.next(limit=40)
    assert (ranges(taken, 0), ranges(taken, 1)) == ([(0, 29, 1)], [(0, 9, 1)])


@pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
def test_without_a_limit_a_plan_takes_all_there_is(mode: str) -> None:
    group = scattered(10, **{"share.acquire.mode": mode})
    group.ends[0] = 20
    assert offsets(group.next(limit=None)) == 15, "what came back, and what is fresh"


def test_a_plan_has_ten_thousand_ranges_at_most() -> None:
    """Offsets of 5 MB cost 0.3 s a trigger (design, section 8)."""
    assert acquire_plan.MAX_RANGES == 10_000


def test_a_topic_that_the_group_does_not_know_is_passed_over() -> None:
    group = GroupDriver(records=10)
    group.join()
    group.move_log_start(3)
    unknown = PartitionBounds(topic_id="?", partition=0, log_start=0, end=10)
    assert ranges(acquired(group, unknown, bound(0, 10))) == [(3, 9, 1)]


def test_the_lock_limit_holds_for_returned_and_fresh_records_together() -> None:
    group = scattered(10, **{"share.partition.max.record.locks": "100"})
    group.ends[0] = 1_000
    taken = group.next()
    assert offsets(taken) == 95, "five are held already"
    assert ranges(taken)[-1] == (10, 99, 1)
    group.join("m2")
    assert group.acquire(member="m2") == PlanReply(), "no room is left"


@pytest.mark.parametrize("came_back", [10, 50])
def test_a_partition_without_room_does_not_hold_up_the_others(came_back: int) -> None:
    """The limit is lowered while as much is held, or more: what came back there waits, and the next partition gives."""
    group = GroupDriver(records=150, partitions=2)
    group.join("c1", query=False)
    for _ in group.ends:
        fetched(group, 150)
    acks = tuple(
        PartitionAcks(
            topic_id=TOPIC_ID, partition=p, batches=(AckBatch(first=0, last=last, delivery_count=1, types=(RELEASE,)),)
        )
        for p, last in ((0, came_back - 1), (1, 149))
    )
    group.run(Acknowledge(group_id="billing", member_id="c1", member_epoch=1, partitions=acks))
    group.run(AlterConfigs(configs={"share.partition.max.record.locks": "100"}))
    group.join()
    taken = group.next()
    assert (ranges(taken, 0), ranges(taken, 1)) == ([], [(0, 99, 2)])


def aside(records: int = 1, limit: int = 5, **configs: str) -> tuple[GroupDriver, str]:
    """A plan of as many records failed until all of them were set aside."""
    group, plan = started_plan(records, **{"share.delivery.count.limit": str(limit), **configs})
    for _ in range(limit):
        group.restart(plan)
    assert not offsets(group.use(plan))
    return group, plan


def test_a_consumer_gets_a_record_that_was_set_aside_when_nothing_else_is_there_and_its_backoff_is_over() -> None:
    group, plan = aside(records=2, limit=2)
    alone = group.next(plan).plan.plan_id
    group.use(alone)
    group.restart(alone)
    group.join("c1", query=False)
    backs_off, other = group.partition().runs
    assert backs_off.run.not_before_ms == group.now_ms + 1_000
    assert [r[:2] for r in fetched(group, 10)] == [(other.first, other.first)], "one of them, alone"
    assert fetched(group, 10) == [], "the other still backs off"
    group.pass_time(1_000)
    assert [r[:2] for r in fetched(group, 10)] == [(backs_off.first, backs_off.first)]


@pytest.mark.parametrize(("held", "taken"), [(99, 1), (100, 0)])
def test_a_record_that_was_set_aside_needs_room_as_any_other(held: int, taken: int) -> None:
    group, plan = aside()
    group.run(AlterConfigs(configs={"share.partition.max.record.locks": "100"}))
    group.complete(plan)
    group.ends[0] = held + 1
    group.join("c1", query=False)
    assert [r[:2] for r in fetched(group, held)] == [(1, held)]
    assert offsets(group.acquire(plan)) == taken


@pytest.mark.parametrize(("waited_ms", "taken"), [(999, 0), (1_000, 1)])
def test_a_backoff_is_over_when_its_time_has_come(waited_ms: int, taken: int) -> None:
    group, plan = aside()
    alone = group.next(plan).plan.plan_id
    group.use(alone)
    group.restart(alone)
    group.pass_time(waited_ms)
    assert offsets(group.next(alone)) == taken


def test_of_several_partitions_the_least_recently_tried_is_the_next() -> None:
    group = GroupDriver(records=1, partitions=3, **{"share.delivery.count.limit": "2"})
    group.join()
    plan = group.next().plan.plan_id
    group.use(plan)
    for _ in range(2):
        group.restart(plan)
    tried = []
    for _ in range(6):
        alone = group.next(plan)
        plan = alone.plan.plan_id
        tried.append(alone.plan.partitions[0].partition)
        group.use(plan)
        group.restart(plan)
        group.pass_time(10_000)
    assert tried[:3] == [1, 2, 0], "none was tried yet: the partition whose turn it is"
    assert tried[3:] == tried[:3]


def test_beyond_the_end_nothing_set_aside_is_taken() -> None:
    group, plan = aside()
    group.complete(plan)
    reply = group.run(AcquirePlan(member_id="m1", member_epoch=group.epochs["m1"], start=plan, bounds=(bound(0, 0),)))
    assert reply == PlanReply()


@pytest.mark.parametrize(("waited_ms", "trial"), [(599_999, False), (600_000, True)])
def test_where_a_dead_letter_queue_keeps_it_a_record_goes_on_trial_without_evidence_after_a_while(
    waited_ms: int, trial: bool
) -> None:
    group, plan = aside()
    group.group.config = replace(group.group.config, **DEAD_LETTERS)
    assert group.partition().runs.first().run.failed_alone_ms == group.now_ms  # type: ignore[union-attr]
    group.now_ms += waited_ms
    assert not group.group.members["m1"].evidence
    group.join()
    assert group.next(plan).plan.trial == trial


def test_a_record_that_failed_among_others_has_yet_to_fail_alone_however_long_it_waits() -> None:
    group, plan = aside(records=2, limit=2)
    group.group.config = replace(group.group.config, **DEAD_LETTERS)
    group.now_ms += 10**9
    group.join()
    assert not group.next(plan).plan.trial


def test_the_least_recently_tried_is_the_next() -> None:
    group, plan = aside(records=3, limit=2)
    tried = []
    for _ in range(3):
        alone = group.next(plan)
        plan = alone.plan.plan_id
        tried.append(ranges(alone)[0][0])
        group.use(plan)
        group.restart(plan)
        group.pass_time(5)
    assert tried == [0, 1, 2]


def test_a_clock_that_went_back_makes_nobody_wait_longer_than_the_longest_backoff() -> None:
    group, plan = aside()
    alone = group.next(plan).plan.plan_id
    group.use(alone)
    group.restart(alone)
    waits_ms = group.partition().runs.first().run.not_before_ms  # type: ignore[union-attr]
    assert waits_ms is not None
    group.now_ms = waits_ms - 30_000
    group.join()
    assert not group.next(alone).plan.plan_id
    group.now_ms = waits_ms - 30_001
    group.join()
    assert group.next(alone).plan.plan_id


def test_a_record_was_last_tried_when_it_failed_not_when_it_was_acquired() -> None:
    """Two queries try one each; the first to fail is the first to be tried again."""
    group, plan = aside(records=2, limit=2)
    group.join("m2")
    first = group.next(plan)
    group.use(first.plan.plan_id)
    group.now_ms += 10
    second = group.acquire(member="m2")
    group.use(second.plan.plan_id, "m2")
    assert (ranges(first)[0][0], ranges(second)[0][0]) == (0, 1)
    for number, member in ((second.plan.plan_id, "m2"), (first.plan.plan_id, "m1")):
        group.now_ms += 10
        group.restart(number, member)
    group.now_ms += 10_000
    assert ranges(group.next(first.plan.plan_id))[0][0] == 1


def test_a_later_process_is_told_that_the_plan_it_comes_back_to_is_a_trial() -> None:
    group, plan = aside()
    group.ends[0] = 10
    other = group.next(plan)
    group.use(other.plan.plan_id)
    trial = group.next(other.plan.plan_id)
    assert trial.plan.trial
    group.join()
    again = group.acquire(other.plan.plan_id)
    assert (again.plan.plan_id, again.plan.trial) == (trial.plan.plan_id, True)
    assert group.use(trial.plan.plan_id).plan.trial


def test_a_process_whose_session_lapsed_before_it_read_its_plan_acquires_what_is_left_of_it_again() -> None:
    group = GroupDriver(records=10, **{"share.acquire.mode": "record_limit"})
    group.join(process="p")
    plan = group.next().plan.plan_id
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    assert ranges(group.acquire(member="m2", limit=4)) == [(0, 3, 2)]
    assert group.join(process="p") == 1, "the same epoch"
    back = group.use(plan)
    assert ranges(back) == [(4, 9, 2)]
    assert [(o.first, o.last, o.reason) for o in back.left_out] == [(0, 3, "lost")]
    assert group.use(plan) == back, "asked again"
    assert group.dump() == ["[0..3] ACQUIRED 2 0 2", "[4..9] ACQUIRED 2 0 1"]


def test_what_a_plan_still_holds_is_kept_as_few_ranges() -> None:
    group = GroupDriver(records=4)
    group.join("c1", query=False)
    fetched(group, 4)
    acknowledged(group, 0, 3, 1, RELEASE)
    group.ends[0] = 10
    group.join()
    taken = group.next()
    assert ranges(taken) == [(0, 3, 2), (4, 9, 1)]
    group.restart(taken.plan.plan_id)
    assert group.group.plans[2].ranges == ((TOPIC_ID, 0, ((0, 9),)),)


@pytest.mark.parametrize(("locks", "taken"), [(105, 0), (106, 1), (107, 2)])
def test_the_last_room_that_the_lock_limit_leaves_is_used(locks: int, taken: int) -> None:
    group = GroupDriver(records=110)
    group.join("c1", query=False)
    fetched(group, 110)
    for offset in range(0, 10, 2):
        assert acknowledged(group, offset, offset, 1, RELEASE) == {}
    group.run(AlterConfigs(configs={"share.partition.max.record.locks": str(locks)}))
    group.join()
    assert offsets(group.next()) == taken


def test_without_a_limit_records_that_keep_failing_come_in_slices_all_the_same() -> None:
    group, plan = started_plan(10_000)
    group.restart(plan)
    cut = ranges(group.restart(plan))
    assert cut == [(0, 2153, 3)]
    group.join("m2")
    assert ranges(group.acquire(member="m2", limit=None)) == [(2154, 3999, 3)]
