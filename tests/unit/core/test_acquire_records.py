"""Acquiring records for a ShareConsumer (KIP-932, ShareFetch; KIP-1206; KIP-1240): order, limits, throttling."""

from __future__ import annotations

import pytest

from coordinator.core.commands import AcquireForConsumer
from coordinator.core.log_records import RunsChanged
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.protocol.messages import AckBatch, Acknowledge, AcquiredReply, PartitionAcks
from tests.kip932.consumers import RELEASE, ShareConsumers
from tests.support.group_driver import TOPIC_ID, GroupDriver, fetched, offsets


def came_back(tries: int, records: int, limit: int = 10, then: int = 0) -> GroupDriver:
    """Gives ``records`` records back ``tries`` times; behind them are fresh ones, and ``then`` records that came back
    once."""
    configs = {"share.delivery.count.limit": str(limit), "share.acquire.mode": "record_limit"}
    group = GroupDriver(records=100, **configs)
    group.join("c1", query=False)
    runs = [(0, records - 1, Run(RecordState.AVAILABLE, tries, releases=tries))]
    if then:
        runs.append((records, records + then - 1, Run(RecordState.AVAILABLE, 1, releases=1)))
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=tuple(runs))])
    return group


def test_a_throttled_run_is_not_acquired_together_with_another_run() -> None:
    group = came_back(1, 4)
    throttled = Run(RecordState.AVAILABLE, 5, releases=5)
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((4, 9, throttled),))])
    assert fetched(group, 100) == [(0, 3, 2)]
    assert fetched(group, 100) == [(4, 6, 6)]


def fetched_ahead(group: GroupDriver) -> list[tuple[int, int, int]]:
    """A ShareConsumer acquires ahead of its program."""
    who = {"group_id": "billing", "member_id": "c1", "member_epoch": group.epochs["c1"]}
    reply = group.run(AcquireForConsumer(**who, max_records=100, bounds=group.bounds(), ahead=True))
    return [(at.first, at.last, at.delivery_count) for part in reply.partitions for at in part.ranges]


def test_a_throttled_run_is_not_acquired_ahead_of_a_program() -> None:
    """A crash of the program, at work on other records, would count as a failure of this one."""
    group = came_back(1, 4)
    throttled = Run(RecordState.AVAILABLE, 9, releases=9)
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((4, 9, throttled),))])
    assert fetched_ahead(group) == [], "nor what is before it: the program's next poll is to come soon"
    assert fetched(group, 100) == [(0, 3, 2)]
    assert fetched(group, 100) == [(4, 4, 10)]


def test_a_quarantined_record_is_not_acquired_ahead_of_a_program() -> None:
    group = came_back(1, 1)
    quarantined = Run(RecordState.AVAILABLE, 5, failures=5, quarantined=True)
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((0, 99, quarantined),))])
    assert fetched_ahead(group) == []
    assert fetched(group, 100) == [(0, 0, 6)]


def test_a_limit_of_two_has_no_last_attempt_that_is_alone() -> None:
    group = came_back(2, 8, limit=3)
    assert fetched(group, 100) == [(0, 0, 3)], "a limit of three has"
    group = came_back(1, 8, limit=2)
    assert fetched(group, 8) == [(0, 7, 2)]
    group = came_back(2, 8, limit=2)
    assert fetched(group, 8) == [(0, 3, 3)], "the limit was lowered: halved, as any other"


def returned_records(mode: str, **configs: object) -> ShareConsumers:
    """0-9 and 20-29 came back, 10-19 are held, the rest is fresh."""
    group = ShareConsumers(share_acquire_mode=mode, **configs)
    group.fetch("c1", 30)
    group.acknowledge(RELEASE, 0, 9)
    group.acknowledge(RELEASE, 20, 29)
    return group


@pytest.mark.parametrize(("mode", "size"), [("batch_optimized", 10), ("record_limit", 4)])
def test_the_mode_holds_for_a_querys_limit(mode: str, size: int) -> None:
    """KIP-1206, Proposed Changes: ours applies it to Spark's queries too, whose limit is maxOffsetsPerTrigger."""
    group = returned_records(mode)
    group.join("q")
    assert offsets(group.acquire(member="q", limit=4)) == size


# --- an answer that was lost


def ask(group: GroupDriver, after: str | None, **fields: object) -> AcquiredReply:
    """The answer to c1, which names the last records that it got."""
    return group.run(
        AcquireForConsumer(
            group_id="billing",
            member_id="c1",
            member_epoch=1,
            max_records=4,
            after=after,
            bounds=group.bounds(),
            **fields,
        )
    )


def consumers(records: int = 20) -> GroupDriver:
    group = GroupDriver(records=records)
    group.join("c1", query=False)
    group.join("c2", query=False)
    return group


def test_records_whose_answer_was_lost_come_again_under_the_same_lock() -> None:
    group = consumers()
    lost = ask(group, "")
    group.now_ms += 1_000
    again = ask(group, "")
    assert (again.plan_id, again.partitions) == (lost.plan_id, lost.partitions)
    assert again.lock_timeout_ms == lost.lock_timeout_ms - 1_000
    assert [r for p in ask(group, again.plan_id).partitions for r in p.ranges] == [(4, 7, 1)]


def test_without_the_last_plan_id_new_records_come() -> None:
    group = consumers()
    first, second = ask(group, None), ask(group, None)
    assert first.partitions != second.partitions
    unseen = [ask(group, after).plan_id for after in ("", first.plan_id)]
    assert unseen == [first.plan_id, second.plan_id], "the oldest first"


def test_records_of_a_lost_answer_that_were_lost_since_are_left_out() -> None:
    group = consumers()
    lost = ask(group, "")
    acks = AckBatch(first=0, last=1, delivery_count=1, types=(1,))
    partition = PartitionAcks(topic_id=TOPIC_ID, partition=0, batches=(acks,))
    group.run(Acknowledge(group_id="billing", member_id="c1", member_epoch=1, partitions=(partition,)))
    again = ask(group, "")
    assert (again.plan_id, [r for p in again.partitions for r in p.ranges]) == (lost.plan_id, [(2, 3, 1)])
    group.pass_time(lost.lock_timeout_ms + 1)
    assert ask(group, "") == AcquiredReply(plan_id=lost.plan_id, lock_timeout_ms=0)


def test_a_plan_id_of_another_incarnation_precedes_all() -> None:
    group = consumers()
    lost = ask(group, "other.7")
    assert ask(group, "other.7") == lost


@pytest.mark.parametrize(("own", "given"), [("", [(0, 5, 2)]), ("record_limit", [(0, 3, 2)])])
def test_a_consumer_may_have_its_own_acquire_mode(own: str, given: list[tuple[int, int, int]]) -> None:
    group = consumers()
    group.append(
        [RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((0, 5, Run(RecordState.AVAILABLE, 1, releases=1)),))]
    )
    assert [tuple(r) for p in ask(group, None, acquire_mode=own).partitions for r in p.ranges] == given
