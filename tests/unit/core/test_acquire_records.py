"""Acquiring records for a ShareConsumer (KIP-932, ShareFetch; KIP-1206; KIP-1240): order, limits, throttling."""

from __future__ import annotations

import pytest

from coordinator.config.group_keys import GROUP_KEYS
from coordinator.config.resolved import GroupConfig
from coordinator.core.commands import AcquireForConsumer
from coordinator.core.log_records import RunsChanged
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.protocol.errors import ConfigOutOfBounds
from coordinator.protocol.messages import AckBatch, Acknowledge, AcquiredReply, PartitionAcks, PartitionBounds
from tests.kip932.consumers import RELEASE, ShareConsumers
from tests.support.group_driver import TOPIC_ID, GroupDriver, fetched, offsets

MODES = ("batch_optimized", "record_limit")
each_mode = pytest.mark.parametrize("mode", MODES)


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


@pytest.mark.parametrize(
    ("tries", "records", "given"),
    [
        (5, 64, 32),
        (6, 64, 16),
        (7, 64, 8),
        (8, 64, 4),
        (9, 64, 1),
        (5, 7, 3),
        (5, 2, 1),
        (5, 1, 1),
        (8, 3, 1),
        (9, 2, 1),
    ],
)
def test_a_run_is_halved_from_half_of_the_tries_on(tries: int, records: int, given: int) -> None:
    group = came_back(tries, records, then=5)
    assert fetched(group, 100) == [(0, given - 1, tries + 1)]


@pytest.mark.parametrize(("tries", "limit"), [(4, 10), (2, 5), (1, 3), (1, 2)])
def test_before_half_of_the_tries_fresh_records_come_too(tries: int, limit: int) -> None:
    assert fetched(came_back(tries, 10, limit), 20) == [(0, 9, tries + 1), (10, 19, 1)]


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


def test_records_with_few_tries_are_acquired_ahead() -> None:
    assert fetched_ahead(came_back(4, 10)) == [(0, 9, 5), (10, 99, 1)]


def test_a_quarantined_record_is_not_acquired_ahead_of_a_program() -> None:
    group = came_back(1, 1)
    quarantined = Run(RecordState.AVAILABLE, 5, failures=5, quarantined=True)
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((0, 99, quarantined),))])
    assert fetched_ahead(group) == []
    assert fetched(group, 100) == [(0, 0, 6)]


@pytest.mark.parametrize(("asked", "given"), [(1, [(0, 0, 2)]), (4, [(0, 3, 2)]), (6, [(0, 3, 2), (4, 5, 1)])])
def test_no_more_is_given_than_asked_for(asked: int, given: list[tuple[int, int, int]]) -> None:
    assert fetched(came_back(1, 4), asked) == given


def test_a_limit_of_two_has_no_last_attempt_that_is_alone() -> None:
    group = came_back(2, 8, limit=3)
    assert fetched(group, 100) == [(0, 0, 3)], "a limit of three has"
    group = came_back(1, 8, limit=2)
    assert fetched(group, 8) == [(0, 7, 2)]
    group = came_back(2, 8, limit=2)
    assert fetched(group, 8) == [(0, 3, 3)], "the limit was lowered: halved, as any other"


def test_no_records_of_a_partition_outside_of_the_group_are_acquired() -> None:
    group = came_back(1, 4)
    unknown = PartitionBounds(topic_id=TOPIC_ID, partition=9, log_start=0, end=10)
    command = AcquireForConsumer(
        group_id="billing", member_id="c1", member_epoch=1, max_records=4, bounds=(unknown, *group.bounds())
    )
    assert [p.partition for p in group.run(command).partitions] == [0]


def one_aside(**configs: str) -> GroupDriver:
    """The first record is quarantined, and nothing else came back."""
    group = GroupDriver(records=1, **configs)
    group.join("c1", query=False)
    aside = Run(RecordState.AVAILABLE, 5, failures=5, quarantined=True)
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((0, 0, aside),))])
    return group


def test_no_quarantined_record_beyond_the_log_end_is_given() -> None:
    group = one_aside()
    group.ends[0] = 0
    assert fetched(group, 10) == []
    group.ends[0] = 1
    assert fetched(group, 10) == [(0, 0, 6)]


@pytest.mark.parametrize(("held", "given"), [(99, [(0, 0, 6)]), (100, [])])
def test_a_quarantined_record_needs_a_free_lock(held: int, given: list[tuple[int, int, int]]) -> None:
    group = one_aside(**{"share.partition.max.record.locks": "100"})
    group.ends[0] = held + 1
    assert fetched(group, held) == [(1, held, 1)]
    assert fetched(group, 10) == given


@pytest.mark.parametrize(("locks", "given"), [(101, 1), (102, 2), (103, 3)])
def test_the_lock_limit_holds_for_all_returned_records_together(locks: int, given: int) -> None:
    group = GroupDriver(records=106, **{"share.partition.max.record.locks": str(locks)})
    group.join("c1", query=False)
    fetched(group, 100)
    runs = tuple((offset, offset, Run(RecordState.AVAILABLE, count)) for count, offset in enumerate(range(100, 106), 1))
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=runs)])
    assert fetched(group, 10) == [(100 + i, 100 + i, 2 + i) for i in range(given)]
    assert fetched(group, 10) == []


def test_a_full_fetch_takes_no_quarantined_record_of_the_next_partition() -> None:
    group = GroupDriver(records=5, partitions=2)
    group.join("c1", query=False)
    aside = Run(RecordState.AVAILABLE, 5, failures=5, quarantined=True)
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=1, runs=((0, 0, aside),))])
    assert fetched(group, 5) == [(0, 4, 1)]
    assert group.partition(1).acquired_count == 0


def two_backlogs(*members: str) -> GroupDriver:
    """Two partitions with more records than anybody takes here; all members acquire from both."""
    group = GroupDriver(records=1_000, partitions=2)
    for member in members:
        group.join(member, query=False)
    return group


def acquired_of(group: GroupDriver) -> list[int]:
    return [group.partition(index).acquired_count for index in group.ends]


def test_a_backlog_keeps_no_member_from_its_other_partitions() -> None:
    """KIP-932, ShareFetch API: Kafka rotates the partitions of a session with each fetch."""
    group = two_backlogs("c1")
    for _ in range(6):
        assert len(fetched(group, 5)) == 1
    assert acquired_of(group) == [15, 15]


def test_members_that_acquire_by_turns_each_get_records_of_all_partitions() -> None:
    """The partition that comes first follows the member's own acquisitions: every other one of the group's is its."""
    group = two_backlogs("c1", "c2")
    for _ in range(4):
        for member in ("c1", "c2"):
            fetched(group, 5, member)
    by_member = {member: [0, 0] for member in ("c1", "c2")}
    for plan in group.group.plans.values():
        for _, index, held in plan.ranges:
            by_member[plan.member_id][index] += sum(last - first + 1 for first, last in held)
    assert by_member == {"c1": [10, 10], "c2": [10, 10]}


def test_the_order_of_partitions_continues_after_a_crash() -> None:
    group = two_backlogs("c1")
    fetched(group, 5)
    group.crash()
    group.join("c1", query=False)
    fetched(group, 5)
    assert acquired_of(group) == [5, 5]


def test_a_fetch_fills_up_from_the_next_partition() -> None:
    group = two_backlogs("c1")
    group.ends[1] = 3
    assert [fetched(group, 5) for _ in range(3)] == [[(0, 4, 1)], [(0, 2, 1), (5, 6, 1)], [(7, 11, 1)]]


def test_of_many_returned_runs_the_first_are_given() -> None:
    group = GroupDriver(records=100, **{"share.acquire.mode": "record_limit"})
    group.join("c1", query=False)
    runs = tuple((offset, offset, Run(RecordState.AVAILABLE, 1, releases=offset % 2)) for offset in range(20))
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=runs)])
    assert fetched(group, 3) == [(0, 2, 2)]


def test_a_fetch_with_nothing_to_give_is_empty_and_writes_nothing() -> None:
    """KIP-932, ShareFetch API: an empty answer is no error."""
    group = ShareConsumers(end=0)
    written = len(group.log)
    assert (group.fetch(), group.window(), len(group.log)) == ([], (0, 0), written)


def test_batch_optimized_is_the_default() -> None:
    """KIP-1206, Public Interfaces: without a word said, the limit is soft, as it was before the KIP."""
    assert GroupConfig.parse().share_acquire_mode == "batch_optimized"


def test_there_are_two_modes() -> None:
    """KIP-1206, Public Interfaces: batch_optimized and record_limit; anything else is refused when it is set."""
    for mode in MODES:
        assert GroupConfig.parse({"share.acquire.mode": mode}).share_acquire_mode == mode
    with pytest.raises(ConfigOutOfBounds):
        GroupConfig.parse({"share.acquire.mode": "strict"})


def returned_records(mode: str, **configs: object) -> ShareConsumers:
    """0-9 and 20-29 came back, 10-19 are held, the rest is fresh."""
    group = ShareConsumers(share_acquire_mode=mode, **configs)
    group.fetch("c1", 30)
    group.acknowledge(RELEASE, 0, 9)
    group.acknowledge(RELEASE, 20, 29)
    return group


@pytest.mark.parametrize("limit", [1, 4, 9, 10, 12, 20, 25])
def test_record_limit_is_never_exceeded(limit: int) -> None:
    """KIP-1206, Proposed Changes: in record_limit mode a fetch acquires the number of records that was asked for, and
    no more, whatever they are cut from."""
    got = returned_records("record_limit").fetch("c2", limit)
    assert sum(last - first + 1 for first, last, _ in got) == limit


@each_mode
def test_fresh_records_are_never_more_than_asked_for(mode: str) -> None:
    """KIP-1206, Proposed Changes: ours differs in batch_optimized mode. Kafka acquires the last log batch whole; ours
    knows no batches of fresh records, and stops at the limit."""
    group = ShareConsumers(share_acquire_mode=mode)
    assert group.fetch("c1", 7) == [(0, 6, 1)]
    assert group.fetch("c2", 7) == [(7, 13, 1)]


@each_mode
def test_the_limit_is_over_all_partitions_of_a_fetch(mode: str) -> None:
    """KIP-1206, Proposed Changes: it is the request's; a partition that met it leaves nothing for the others."""
    group = ShareConsumers(end=5, partitions=3, share_acquire_mode=mode)
    assert group.fetch("c1", 12) == [(0, 4, 1), (0, 4, 1), (0, 1, 1)]
    assert (group.states(2), group.fetch("c2", 12)) == (["0-1 ACQUIRED 1"], [(2, 4, 1)])


@each_mode
def test_a_limit_of_zero_records_acquires_nothing(mode: str) -> None:
    """KIP-1206, Proposed Changes: not even a run that came back, in either mode."""
    assert returned_records(mode).fetch("c2", 0) == []


@each_mode
def test_the_record_lock_limit_is_hard_in_both_modes(mode: str) -> None:
    """KIP-1206, Proposed Changes: ours differs in batch_optimized mode. Kafka goes over the limit on locks rather than
    cut a batch; ours cuts the run."""
    group = ShareConsumers(end=150, share_acquire_mode=mode)
    group.fetch("c1")
    group.acknowledge(RELEASE, 0, 149)
    group.configure(share_partition_max_record_locks=100)
    assert group.fetch("c2", 500) == [(0, 99, 2)]
    assert group.fetch("c3", 500) == []


@pytest.mark.parametrize(("mode", "size"), [("batch_optimized", 10), ("record_limit", 4)])
def test_the_mode_holds_for_a_querys_limit(mode: str, size: int) -> None:
    """KIP-1206, Proposed Changes: ours applies it to Spark's queries too, whose limit is maxOffsetsPerTrigger."""
    group = returned_records(mode)
    group.join("q")
    assert offsets(group.acquire(member="q", limit=4)) == size


def test_the_limit_on_record_locks_is_the_groups() -> None:
    """KIP-1240, Public Interfaces: share.partition.max.record.locks, from 100 on. Ours differs in default and upper
    bound: 1,000,000 by default, since a lock is a range and a Spark batch is large; Kafka has 2,000."""
    key = GROUP_KEYS["share.partition.max.record.locks"]
    assert (key.default, key.low, key.kip) == (1_000_000, 100, "KIP-1240")
    with pytest.raises(ConfigOutOfBounds):
        ShareConsumers().configure(share_partition_max_record_locks=99)


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
