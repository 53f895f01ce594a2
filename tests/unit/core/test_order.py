"""share.order=partition: one holder of a partition's records at a time, in offset order (docs/learn/order.md)."""

from __future__ import annotations

import pytest

from coordinator.core.commands import AlterConfigs, AssignPartitions
from coordinator.core.record_state import RecordState
from coordinator.protocol.admin_messages import DecideRecords, ReleaseMember
from coordinator.protocol.errors import OrderInUse
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    JoinGroup,
    MarkInProgress,
    PartitionAcks,
    PartitionProgress,
    ProgressBatch,
)
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from coordinator.service.runtime import transactions
from tests.support.group_driver import SESSION_MS, GroupDriver, acknowledged, fetched, offsets, ranges
from tests.support.source_driver import run_transaction

ORDER = {"share.order": "partition"}
WITH_BACKOFF = {**ORDER, "share.release.backoff.ms": "10000", "share.release.backoff.jitter": "0"}
BACKOFF_MS = 10_000
DEAD_LETTERS = {"errors.deadletterqueue.topic.name": "dead"}
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def ordered(records: int = 100, partitions: int = 1, **configs: str) -> GroupDriver:
    """A group in order with two queries, a and b."""
    group = GroupDriver(records=records, partitions=partitions, **{**ORDER, **configs})
    group.join("a")
    group.join("b")
    return group


def begun(group: GroupDriver, start: str = "", member: str = "a", limit: int | None = None) -> str:
    """The id of a plan that the member has acquired and started."""
    plan_id = group.next(start, member, limit).plan.plan_id
    group.start(plan_id, member)
    return plan_id


def acquired(group: GroupDriver, start: str = "", member: str = "a", limit: int | None = None) -> list[tuple[int, int]]:
    """Offsets that the member acquires of partition 0."""
    return [(first, last) for first, last, _ in ranges(group.next(start, member, limit))]


# --- one holder, and a prefix


def test_a_partition_has_one_holder() -> None:
    group = ordered(records=10)
    group.next(member="a", limit=3)
    assert acquired(group, member="b") == []


def test_later_records_follow_once_earlier_ones_are_done() -> None:
    group = ordered(records=10)
    plan = begun(group, limit=3)
    group.complete(plan, "a")
    assert acquired(group, member="b") == [(3, 9)]


def test_a_released_record_holds_up_its_partition_until_its_delay_ends() -> None:
    group = ordered(records=10, partitions=2, **WITH_BACKOFF)
    plan = begun(group, limit=8)
    group.stage(OutcomeRun(2, 2, 1, RELEASE), partition=0)
    reply = group.next(plan, "a")
    assert (ranges(reply, 0), ranges(reply, 1)) == ([], [(4, 9, 1)])
    group.start(reply.plan.plan_id, "a")
    group.pass_time(BACKOFF_MS)
    assert acquired(group, reply.plan.plan_id) == [(2, 2), (4, 9)]


def test_fresh_records_wait_for_all_that_came_back() -> None:
    group = ordered(records=10)
    plan = begun(group, limit=4)
    group.stage(OutcomeRun(0, 3, 1, RELEASE))
    group.complete(plan, "a")
    first = group.next(plan, "a", limit=2)
    assert ranges(first) == [(0, 3, 2)], "a run that came back is not cut, and nothing fresh comes with it"


def test_a_record_that_waits_for_its_dead_letter_holds_up_nothing() -> None:
    group = ordered(records=10, **DEAD_LETTERS)
    plan = begun(group, limit=4)
    group.stage(OutcomeRun(1, 1, 1, REJECT), OutcomeRun(2, 2, 1, RELEASE))
    assert acquired(group, plan) == [(2, 2), (4, 9)]


def test_an_available_now_run_stops_before_what_it_released() -> None:
    group = ordered(records=10)
    began_ms = group.now_ms
    plan = begun(group, limit=4)
    group.stage(OutcomeRun(1, 1, 1, RELEASE))
    group.complete(plan, "a")
    assert ranges(group.acquire(plan, "a", began_ms=began_ms)) == []


# --- a query that comes back


def test_an_acquisition_ends_earlier_plans_of_its_partition() -> None:
    group = ordered(records=10)
    plan = begun(group, limit=10)
    group.pass_time(SESSION_MS + 1)
    group.join("b")
    group.next(member="b", limit=None)
    assert group.partition().runs.carried.keys() == {2}
    reply = group.restart(plan, "a")
    assert offsets(reply) == 0


def test_what_another_left_over_is_not_kept() -> None:
    group = ordered(records=10, **{"share.acquire.mode": "record_limit"})
    plan = begun(group, limit=10)
    group.pass_time(SESSION_MS + 1)
    group.join("b")
    taken = begun(group, member="b", limit=4)
    assert offsets(group.restart(plan, "a")) == 0
    group.complete(plan, "a")
    group.complete(taken, "b")
    assert acquired(group, member="b", start=taken) == [(4, 9)]


def test_a_query_whose_partition_nobody_took_completes_its_batch() -> None:
    group = ordered(records=10)
    plan = begun(group, limit=10)
    group.pass_time(SESSION_MS + 1)
    group.join("a")
    assert group.complete(plan, "a").outcomes == {"accepted": 10}


# --- isolation


def replayed_until(group: GroupDriver, plan: str, failures: int) -> None:
    for _ in range(failures):
        group.restart(plan, "a")


def test_a_slice_keeps_the_front_of_each_partition() -> None:
    group = ordered(records=10, partitions=2, **{"share.isolation.base": "4"})
    plan = begun(group)
    replayed_until(group, plan, 4)
    held = [[(first, last) for first, last, run in group.partition(p).runs if run.plan_id] for p in (0, 1)]
    assert held == [[(0, 0)], []]


def test_a_cut_keeps_nothing_behind_what_it_gives_back() -> None:
    """Records 3 and 4 were released by hand, so they are not on the try of the others, and leave the batch."""
    group = ordered(records=10, **{"share.delivery.count.limit": "3"})
    plan = begun(group, limit=10)
    by_hand = {"decision": "release", "reason": "", "execute": True}
    group.run(DecideRecords(group_id="billing", topic="orders", partition=0, first=3, last=4, **by_hand))
    assert ranges(group.restart(plan, "a")) == [(0, 2, 2)]


def test_a_quarantined_record_behind_one_that_waits_is_not_tried() -> None:
    group = ordered(records=2, **{**WITH_BACKOFF, "share.delivery.count.limit": "2"})
    plan = begun(group, limit=2)
    replayed_until(group, plan, 2)
    by_hand = {"decision": "release", "reason": "", "execute": True}
    group.run(DecideRecords(group_id="billing", topic="orders", partition=0, first=0, last=0, **by_hand))
    group.complete(plan, "a")
    alone = begun(group, plan)
    group.stage(OutcomeRun(0, 0, 3, RELEASE))
    group.complete(alone, "a")
    assert acquired(group, alone) == [], "record 1 may be tried alone, and record 0 waits"


def with_one_released(**configs: str) -> tuple[GroupDriver, str]:
    """Query a holds the records 0 to 2, of which record 0 was released before: a failure quarantines it alone."""
    group = ordered(records=3, **{"share.delivery.count.limit": "2", **configs})
    plan = begun(group, limit=1)
    group.stage(OutcomeRun(0, 0, 1, RELEASE))
    return group, begun(group, plan)


def test_a_quarantined_record_takes_along_what_follows_it() -> None:
    group, plan = with_one_released()
    assert offsets(group.restart(plan, "a")) == 0
    assert not group.partition().runs.carried


def test_nothing_passes_a_quarantined_record() -> None:
    group = ordered(records=3, **{"share.isolation.base": "1"})
    plan = begun(group, limit=3)
    replayed_until(group, plan, 5)
    group.complete(plan, "a")
    assert acquired(group, plan) == [(0, 0)], "the quarantined record comes alone"


def test_a_quarantined_record_is_tried_alone_only_at_the_front() -> None:
    group = ordered(records=6, **{"share.isolation.base": "1", "share.release.backoff.ms": "3600000"})
    plan = begun(group, limit=6)
    group.stage(OutcomeRun(0, 0, 1, RELEASE))
    group.complete(plan, "a")
    assert acquired(group, plan) == []
    assert group.dump()[0].startswith("[0..0] AVAILABLE")


def test_a_sessions_end_takes_along_what_follows_a_quarantined_record() -> None:
    group, _ = with_one_released()
    group.pass_time(SESSION_MS + 1)
    assert group.partition().runs.has_quarantined
    assert not group.partition().runs.carried


def test_a_sessions_end_takes_along_what_was_released_by_hand() -> None:
    """An administrator released record 2, and its query may still come back to it."""
    group = ordered(records=3, **{"share.delivery.count.limit": "2"})
    plan = begun(group, limit=3)
    replayed_until(group, plan, 1)
    by_hand = {"decision": "release", "reason": "", "execute": True}
    group.run(DecideRecords(group_id="billing", topic="orders", partition=0, first=2, last=2, **by_hand))
    group.pass_time(SESSION_MS + 1)
    assert offsets(group.restart(plan, "a")) == 0, "records 0 and 1 are quarantined, and not done"


# --- members that share the partitions


def test_a_waiting_member_gets_its_part_of_the_partitions() -> None:
    group = ordered(records=10, partitions=4)
    plan = begun(group)
    assert offsets(group.next(member="b")) == 0
    for index in group.ends:
        group.ends[index] = 20
    of_a = group.next(plan, "a")
    of_b = group.next(member="b")
    assert (len(of_a.plan.partitions), len(of_b.plan.partitions)) == (2, 2)


def test_a_member_that_waits_no_longer_gets_no_part() -> None:
    group = ordered(records=10, partitions=4)
    plan = begun(group)
    group.next(member="b")
    group.pass_time(10_001)
    for index in group.ends:
        group.ends[index] = 20
    assert len(group.next(plan, "a").plan.partitions) == 4


def test_a_partition_whose_first_record_waits_is_no_part() -> None:
    group = ordered(records=10, partitions=2, **WITH_BACKOFF)
    plan = begun(group)
    group.stage(OutcomeRun(0, 9, 1, RELEASE), partition=0)
    group.next(member="b")
    group.ends[1] = 20
    assert [p.partition for p in group.next(plan, "a").plan.partitions] == [1]


def test_nobody_leaves_a_part_to_a_member_that_may_not_acquire_it() -> None:
    """A ShareConsumer waits for partition 0, which is assigned to it: partition 1 is not left to it."""
    group = ordered(records=10, partitions=2)
    for consumer in ("c1", "c2"):
        group.join(consumer, query=False, topics=("orders",))
    group.run(AssignPartitions())
    consumer = next(name for name, keys in group.group.assignment.items() if group.partition(0).key in keys)
    plan = begun(group)
    assert fetched(group, 10, consumer) == []
    group.ends |= {0: 30, 1: 20}
    assert ranges(group.next(plan, "a"), 1) == [(10, 19, 1)]


def test_the_part_of_an_available_now_run_is_what_it_may_acquire() -> None:
    """It may not acquire partition 0, whose first record it has released, but partition 1."""
    group = ordered(records=10, partitions=2)
    began_ms = group.now_ms
    plan = begun(group, limit=2)
    group.stage(OutcomeRun(0, 0, 1, RELEASE), partition=0)
    group.next(member="b")
    group.complete(plan, "a")
    group.ends[0] = 30
    assert ranges(group.acquire(plan, "a", began_ms=began_ms), 1) == [(1, 9, 1)]


def test_one_partition_stays_with_its_member() -> None:
    group = ordered(records=10)
    plan = begun(group, limit=5)
    group.next(member="b")
    assert acquired(group, plan) == [(5, 9)]


def test_a_member_that_left_does_not_wait() -> None:
    group = ordered(records=10, partitions=2)
    plan = begun(group)
    group.next(member="b")
    group.run(ReleaseMember(group_id="billing", member_id="b", execute=True))
    for index in group.ends:
        group.ends[index] = 20
    assert len(group.next(plan, "a").plan.partitions) == 2


# --- ShareConsumers


def consumers(records: int = 10, **configs: str) -> GroupDriver:
    group = GroupDriver(records=records, **{**ORDER, **configs})
    group.join("c1", query=False)
    group.join("c2", query=False)
    return group


def test_a_share_consumers_partition_is_its_own() -> None:
    group = consumers()
    assert fetched(group, 4) == [(0, 3, 1)]
    assert fetched(group, 4) == [] and fetched(group, 4, "c2") == []


def test_a_release_gives_back_what_follows_without_a_try() -> None:
    group = consumers()
    fetched(group, 6)
    assert acknowledged(group, 0, 1, 1, ACCEPT) == {}
    assert acknowledged(group, 2, 2, 1, RELEASE) == {}
    tries = [(first, run.state.name, run.tries) for first, _, run in group.partition().runs]
    assert tries == [(2, "AVAILABLE", 1), (3, "AVAILABLE", 0)]
    assert fetched(group, 10, "c2") == [(2, 5, 2), (6, 9, 1)]


def test_what_a_release_gives_back_is_all_that_is_not_named() -> None:
    """Record 2 is not named, and another run than record 3, which is."""
    group = consumers()
    fetched(group, 4)
    acknowledged(group, 0, 2, 1, RELEASE)
    fetched(group, 4)
    batches = tuple(
        AckBatch(first=o, last=o, delivery_count=2, types=(kind,))
        for o, kind in ((0, RELEASE), (1, ACCEPT), (3, ACCEPT))
    )
    partitions = (PartitionAcks(topic_id="T", partition=0, batches=batches),)
    group.run(Acknowledge(group_id="billing", member_id="c1", member_epoch=1, partitions=partitions))
    assert group.partition().acquired_count == 0


def test_a_lock_that_ends_ends_the_later_ones() -> None:
    group = consumers(**{"share.record.lock.duration.ms": "30000"})
    fetched(group, 4)
    group.pass_time(20_000)
    acknowledged(group, 2, 3, 1, AcknowledgeType.RENEW)
    group.pass_time(10_001)
    states = [(first, run.state.name, run.failures) for first, _, run in group.partition().runs]
    assert states == [(0, "AVAILABLE", 1), (2, "AVAILABLE", 0)]


def test_a_record_in_progress_is_given_back_with_its_member() -> None:
    group = consumers()
    fetched(group, 2)
    signalled = PartitionProgress(
        topic_id="T", partition=0, batches=(ProgressBatch(first=1, last=1, delivery_count=1),)
    )
    group.run(MarkInProgress(group_id="billing", member_id="c1", member_epoch=1, partitions=(signalled,)))
    assert group.partition().runs.counts[RecordState.IN_PROGRESS] == 1
    group.run(ReleaseMember(group_id="billing", member_id="c1", execute=True))
    assert fetched(group, 10, "c2") == [(0, 1, 2), (2, 9, 1)]


def test_a_record_released_by_hand_takes_along_what_follows() -> None:
    group = consumers()
    fetched(group, 6)
    by_hand = {"decision": "release", "reason": "", "execute": True}
    group.run(DecideRecords(group_id="billing", topic="orders", partition=0, first=1, last=2, **by_hand))
    assert acknowledged(group, 3, 5, 1, ACCEPT) != {}
    assert acknowledged(group, 0, 0, 1, ACCEPT) == {}


# --- the config


@pytest.mark.parametrize(("before", "after"), [("none", "partition"), ("partition", "none")])
def test_order_does_not_change_while_records_are_held(before: str, after: str) -> None:
    group = GroupDriver(records=10, **{"share.order": before})
    group.join("a")
    plan = begun(group)
    with pytest.raises(OrderInUse, match="10 record"):
        group.run(AlterConfigs(configs={"share.order": after}))
    group.complete(plan, "a")
    group.run(AlterConfigs(configs={"share.order": after}))
    assert group.group.config.share_order == after


def test_order_may_change_once_its_share_consumers_are_gone() -> None:
    group = consumers()
    fetched(group, 4)
    with pytest.raises(OrderInUse, match="4 record"):
        group.run(AlterConfigs(configs={"share.order": "none"}))
    group.pass_time(SESSION_MS + 1)
    group.run(AlterConfigs(configs={"share.order": "none"}))
    assert not group.group.config.is_ordered


def test_order_does_not_change_while_a_query_may_come_back() -> None:
    group = GroupDriver(records=10)
    group.join("a")
    begun(group)
    group.pass_time(SESSION_MS + 1)
    with pytest.raises(OrderInUse):
        group.run(AlterConfigs(configs={"share.order": "partition"}))


@pytest.mark.parametrize("member", ["a", "another"])
def test_a_join_that_would_change_the_order_in_use_changes_nothing(member: str) -> None:
    group = GroupDriver(records=10)
    group.join("a")
    begun(group)
    before = list(group.log)
    request = JoinGroup(group_id="billing", member_id=member, process_id="later", configs=ORDER)
    with pytest.raises(OrderInUse):
        run_transaction(group, transactions.join(request, topic_ids=True, starts={}))
    assert (group.log, list(group.group.sessions)) == (before, ["a"])
