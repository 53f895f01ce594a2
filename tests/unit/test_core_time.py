"""Deadlines, delays and rest: when the group has something to do next, and what waits until then."""

from __future__ import annotations

from coordinator.core.commands import Expire
from coordinator.core.record_state import RecordState
from coordinator.core.records import RunsChanged
from coordinator.core.runs import Run
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.messages import AckBatch, Acknowledge, Heartbeat, PartitionAcks
from coordinator.protocol.values import SharePartitionKey
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, acknowledged, fetched, ranges

LOCK_MS = 30_000
ACCEPT, RENEW = 1, 4


def holding(**configs: str) -> GroupDriver:
    """c1 holds 0 to 9."""
    group = GroupDriver(records=10, **configs)
    group.join("c1", query=False)
    fetched(group, 10)
    return group


def partition(*runs: tuple[int, int, Run]) -> SharePartition:
    made = SharePartition(SharePartitionKey(TOPIC_ID, 0), 0)
    made.apply(runs)
    return made


def test_a_deadline_is_over_when_it_lies_before_now() -> None:
    group = holding()
    began_ms = group.now_ms
    assert group.group.next_deadline_ms() == began_ms + LOCK_MS + 1
    group.now_ms = began_ms + LOCK_MS
    group.run(Expire())
    assert group.dump() == ["[0..9] ACQUIRED 1 0 1"]
    group.now_ms += 1
    group.run(Expire())
    assert group.dump() == ["[0..9] AVAILABLE 1 1 1"]
    assert group.group.next_deadline_ms() == began_ms + SESSION_MS + 1
    group.now_ms = began_ms + SESSION_MS
    group.run(Expire())
    assert group.group.members["c1"].active
    group.now_ms += 1
    group.run(Expire())
    assert not group.group.members["c1"].active
    assert group.group.next_deadline_ms() is None


def test_a_lock_that_was_renewed_in_part_ends_in_part() -> None:
    group = holding()
    group.pass_time(10_000)
    batches = (AckBatch(first=3, last=5, delivery_count=1, types=(RENEW,)),)
    acks = (PartitionAcks(topic_id=TOPIC_ID, partition=0, batches=batches),)
    group.run(Acknowledge(group_id="billing", member_id="c1", member_epoch=1, partitions=acks))
    group.pass_time(LOCK_MS - 10_000 + 1)
    assert group.dump() == ["[0..2] AVAILABLE 1 1 1", "[3..5] ACQUIRED 1 0 1", "[6..9] AVAILABLE 1 1 1"]
    group.pass_time(10_000)
    assert group.dump() == ["[0..9] AVAILABLE 1 1 1"]


def test_a_lock_that_ends_now_is_not_over_although_another_of_its_fetch_is() -> None:
    group = holding()
    began_ms = group.now_ms
    group.now_ms += 10_000
    batches = (AckBatch(first=3, last=5, delivery_count=1, types=(RENEW,)),)
    acks = (PartitionAcks(topic_id=TOPIC_ID, partition=0, batches=batches),)
    group.run(Acknowledge(group_id="billing", member_id="c1", member_epoch=1, partitions=acks))
    group.now_ms = began_ms + 10_000 + LOCK_MS
    group.run(Expire())
    assert group.dump() == ["[0..2] AVAILABLE 1 1 1", "[3..5] ACQUIRED 1 0 1", "[6..9] AVAILABLE 1 1 1"]


def test_due_is_what_has_a_deadline_before_now_however_many_locks_there_are() -> None:
    group = GroupDriver(records=100)
    group.join("c1", query=False)
    taken_ms = []
    for _ in range(10):
        fetched(group, 10)
        taken_ms.append(group.now_ms)
        group.now_ms += 100
    for gone in range(11):
        now_ms = taken_ms[0] + LOCK_MS + gone * 100
        assert group.group.due_plan_ids(now_ms) == set(range(1, gone + 1))


def test_a_lock_and_a_session_that_end_together_are_one_failure() -> None:
    group = holding()
    group.now_ms += SESSION_MS + 1
    group.run(Expire())
    assert group.dump() == ["[0..9] AVAILABLE 1 1 1"]


def test_after_a_load_a_consumers_locks_have_a_session_from_then_on() -> None:
    group = holding()
    group.pass_time(LOCK_MS - 1)
    group.crash()
    group.pass_time(SESSION_MS)
    assert group.dump() == ["[0..9] ACQUIRED 1 0 1"]
    group.pass_time(1)
    assert group.dump() == ["[0..9] AVAILABLE 1 1 1"]
    assert group.group.may_rest(group.now_ms)


def test_a_load_gives_no_session_to_those_who_hold_nothing() -> None:
    group = holding()
    group.join()
    group.join("c2", query=False)
    group.crash()
    assert [name for name, member in group.group.members.items() if member.active] == ["c1"]


def test_a_record_that_is_delayed_waits_until_its_time() -> None:
    """No command delays a record yet (releases with a delay will); the window knows them."""
    free = Run(RecordState.AVAILABLE, 1)
    delayed = partition((0, 4, free), (5, 9, free._replace(not_before_ms=500)))
    assert delayed.waits(499)
    assert not delayed.waits(500)
    aside = partition(
        (0, 0, free._replace(quarantined=True, not_before_ms=500)), (1, 1, free._replace(quarantined=True))
    )
    assert aside.waits(499)
    assert not aside.waits(500)
    assert not partition((0, 9, free)).waits(0)
    assert not partition((0, 0, free._replace(quarantined=True))).waits(0), "set aside, and not yet tried alone"


def test_a_delayed_record_is_acquired_when_its_time_has_come_and_in_its_place() -> None:
    for query in (True, False):
        group = GroupDriver(records=10)
        group.join("m1", query=query)
        free = Run(RecordState.AVAILABLE, 1)
        runs = ((0, 3, free), (4, 5, free._replace(not_before_ms=group.now_ms + 500)), (6, 9, free))
        group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=runs)])
        assert not group.group.may_rest(group.now_ms)
        group.now_ms += 500
        first = ranges(group.next()) if query else fetched(group, 10, "m1")
        assert first == [(0, 9, 2)], "neighbours of equal count are one range"


def test_a_delayed_record_is_not_acquired_before_its_time() -> None:
    for query in (True, False):
        group = GroupDriver(records=210)
        group.join("m1", query=query)
        free = Run(RecordState.AVAILABLE, 1)
        due, delayed = (free._replace(not_before_ms=group.now_ms + wait_ms) for wait_ms in (0, 1))
        runs = ((0, 199, free), (200, 203, delayed), (204, 209, due))
        group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=runs)])
        assert (ranges(group.next()) if query else fetched(group, 500, "m1")) == [(0, 199, 2), (204, 209, 2)]


def test_a_coordinator_may_rest_when_nothing_is_held_and_nobody_is_there() -> None:
    group = holding()
    assert not group.group.may_rest(group.now_ms), "a member is there"
    group.crash()
    assert not group.group.may_rest(group.now_ms), "something is held"
    group.pass_time(SESSION_MS + 1)
    assert group.group.may_rest(group.now_ms)


def test_what_is_held_below_the_log_start_is_nobodys_when_its_lock_ends() -> None:
    group = holding()
    group.move_log_start(5)
    assert group.dump() == ["[0..9] ACQUIRED 1 0 1"]
    group.pass_time(LOCK_MS + 1)
    assert group.dump() == ["[5..9] AVAILABLE 1 1 1"]
    assert (group.partition().start_offset, group.partition().archived_total) == (5, 5)


def test_what_is_released_below_the_log_start_is_archived() -> None:
    group = holding()
    group.move_log_start(5)
    assert acknowledged(group, 0, 9, 1, 2) == {}
    assert group.dump() == ["[5..9] AVAILABLE 1 0 -"]
    assert (group.partition().start_offset, group.partition().archived_total) == (5, 5)


def test_deadlines_that_passed_are_forgotten_and_one_that_ends_now_is_not() -> None:
    group = GroupDriver(records=20)
    group.join("c1", query=False)
    fetched(group, 10)
    group.now_ms += 1
    fetched(group, 10)
    group.now_ms += LOCK_MS
    group.run(Expire())
    assert group.dump() == ["[0..9] AVAILABLE 1 1 1", "[10..19] ACQUIRED 1 0 2"]
    group.now_ms += 1
    group.run(Expire())
    assert group.dump() == ["[0..9] AVAILABLE 1 1 1", "[10..19] AVAILABLE 1 1 2"]


def test_after_a_load_a_lock_ends_although_its_holder_lives_on() -> None:
    group = holding()
    group.crash()
    group.pass_time(SESSION_MS - 1)
    group.run(Heartbeat(group_id="billing", member_id="c1", member_epoch=1))
    group.pass_time(2)
    assert group.group.members["c1"].active
    assert group.dump() == ["[0..9] AVAILABLE 1 1 1"]


def test_a_delay_does_not_outlive_its_plans_coming_back() -> None:
    group = GroupDriver(records=4)
    group.join()
    plan = group.next().plan.plan_id
    group.join()
    delayed = Run(RecordState.AVAILABLE, 1, plan_id=1, not_before_ms=group.now_ms + 500)
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((0, 3, delayed),))])
    assert ranges(group.use(plan)) == [(0, 3, 2)]
    assert [run.not_before_ms for _, _, run in group.partition().runs] == [None]


def test_a_lock_whose_records_are_done_is_nothing_to_wait_for() -> None:
    group = holding()
    assert acknowledged(group, 0, 9, 1, ACCEPT) == {}
    group.ends[0] = 20
    group.now_ms += 1_000
    fetched(group, 10)
    assert group.group.next_deadline_ms() == group.now_ms + LOCK_MS + 1


def test_when_all_that_came_back_is_delayed_it_is_acquired_in_time() -> None:
    for query in (True, False):
        group = GroupDriver(records=4)
        group.join("m1", query=query)
        delayed = Run(RecordState.AVAILABLE, 1, not_before_ms=group.now_ms + 500)
        group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((0, 3, delayed),))])
        for waited_ms, taken in ((499, []), (1, [(0, 3, 2)])):
            group.now_ms += waited_ms
            assert (ranges(group.next()) if query else fetched(group, 10, "m1")) == taken
