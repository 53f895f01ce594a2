"""The event_loop: how long nobody was heard is measured wherever its process, or its thread, was kept from running."""

import contextlib
import threading
from types import SimpleNamespace

import pytest

from coordinator.core.commands import AcquirePlan, CreateGroup, InitializePartitions, PartitionStart, TopicWithId
from coordinator.core.commands.measure_group import MeasureGroup
from coordinator.protocol.errors import GroupIdNotFound
from coordinator.protocol.messages import JoinGroup, PartitionBounds
from coordinator.service.process.clock import STALLED_MS, Clock, StallDetector
from coordinator.service.runtime.event_loop import EventLoop, PartitionedRuntime
from coordinator.service.runtime.runtime import TOLD_FROM_MS, CoordinatorRuntime
from coordinator.service.runtime.snapshots import REST_AFTER_MS
from coordinator.service.runtime.transaction import Access, one
from coordinator.service.stores.sqlite_store import SqliteStore
from tests.support.waiting import wait_until

BOUNDS = (PartitionBounds(topic_id="T", partition=0, log_start=0, end=10),)


class JumpingClock(Clock):
    """A clock of a process that a test stops: it is so much later."""

    def __init__(self):
        super().__init__()
        self.later_ms = 0

    def now_ms(self):
        return super().now_ms() + self.later_ms


class SlowStore(SqliteStore):
    """A store whose next append takes as long as `append_ms` says."""

    clock, append_ms = None, 0

    def append(self, appends, shown=()):
        self.clock.later_ms += self.append_ms
        self.append_ms = 0
        super().append(appends)


@pytest.fixture
def event_loop(tmp_path):
    clock = JumpingClock()
    store = SlowStore(tmp_path / "state.db")
    store.clock = clock
    event_loop = EventLoop(CoordinatorRuntime(store, clock=clock.now_ms), clock)
    with contextlib.closing(event_loop):
        for command in (
            CreateGroup(incarnation="i", topic_ids=True),
            InitializePartitions(
                topics=(TopicWithId(topic="orders", topic_id="T"),),
                starts=(PartitionStart(topic_id="T", partition=0, start_offset=0),),
            ),
            JoinGroup(group_id="billing", member_id="m1", process_id="p1"),
            AcquirePlan(member_id="m1", member_epoch=1, bounds=BOUNDS),
        ):
            event_loop.call("billing", one(command))
        yield event_loop


def deadline_ms(event_loop):
    return event_loop.runtime.groups["billing"].members["m1"].session_deadline_ms


def has_its_time(event_loop):
    """The session lives, and ends a session's time from now."""
    return (deadline_ms(event_loop) or 0) > event_loop.clock.now_ms() + 40_000


def test_a_process_stopped_while_it_waits_prolongs_its_members_sessions(event_loop):
    event_loop.clock.later_ms += 10 * 45_000
    wait_until(lambda: has_its_time(event_loop), what="the session lives on")
    assert event_loop.runtime.groups["billing"].partitions["T", 0].acquired_count == 10


def test_it_does_not_matter_that_nothing_was_due_meanwhile(event_loop):
    """It goes on just before the session's end: whoever sent a request meanwhile is not heard yet."""
    event_loop.clock.later_ms += 44_000
    wait_until(lambda: has_its_time(event_loop), what="the session has its time again")


def test_an_append_that_takes_longer_than_a_session_ends_nobody_s(event_loop):
    event_loop.runtime.store.append_ms = 10 * 45_000
    event_loop.call("billing", one(JoinGroup(group_id="billing", member_id="m2", process_id="p2")))
    wait_until(lambda: has_its_time(event_loop), what="the session lives on")
    assert event_loop.runtime.groups["billing"].partitions["T", 0].acquired_count == 10


class WaitingClock(Clock):
    """A clock on which time passes while an event loop waits, however busy the machine is."""

    def __init__(self):
        self.waited_ms = 0

    def now_ms(self):
        return self.waited_ms

    def new_condition(self):
        condition, wait = threading.Condition(), threading.Condition.wait

        def pass_time(timeout_s):
            self.waited_ms += round(timeout_s * 1000)
            wait(condition, 0.001)

        condition.wait = pass_time
        return condition


def test_a_new_group_is_claimed_at_once_after_an_idle_time(tmp_path, monkeypatch):
    """As of a coordinator on demand between two queries."""
    clock = WaitingClock()
    theirs = SimpleNamespace(Condition=clock.new_condition, Lock=threading.Lock, Thread=threading.Thread)
    monkeypatch.setattr("coordinator.service.runtime.event_loop.threading", theirs)
    with contextlib.closing(EventLoop(CoordinatorRuntime(SqliteStore(tmp_path / "state.db")), clock)) as idle:
        wait_until(lambda: clock.now_ms() > STALLED_MS + 2 * TOLD_FROM_MS, what="it was idle for a while")
        create = CreateGroup(incarnation="i", topic_ids=True)
        idle.call("billing", one(create), Access.CLAIM)
        assert idle.runtime.groups["billing"].exists


def test_looks_that_come_in_time_leave_nothing_unheard():
    attention = StallDetector()
    assert [attention.look(at_ms) for at_ms in (1_000, 1_250, 1_250 + STALLED_MS, 2_000)] == [0, 0, 0, 0]


def test_time_between_two_looks_is_unheard_but_for_a_little_of_it():
    attention = StallDetector()
    attention.look(1_000)
    assert attention.look(61_000) == 60_000 - STALLED_MS
    assert attention.look(61_001) == 0


def test_a_call_of_each_group_leaves_out_a_group_that_refuses(tmp_path, monkeypatch):
    monkeypatch.setattr("coordinator.service.runtime.event_loop.MOST_AT_ONCE", 2)  # of five groups

    def refused(group):
        raise GroupIdNotFound(group_id=group.group_id)
        yield

    with contextlib.closing(EventLoop(CoordinatorRuntime(SqliteStore(tmp_path / "state.db")))) as loop:
        for group_id in "abcde":
            loop.call(group_id, one(CreateGroup(incarnation="i", topic_ids=True)))
        found = loop.call_each(lambda group_id: refused if group_id == "c" else one(MeasureGroup(group_id=group_id)))
    assert {group_id: measures.state for group_id, measures in found.items()} == dict.fromkeys("abde", "EMPTY")
    assert loop.call_each(lambda group_id: refused) == {}, "it is closed"


def test_groups_at_rest_are_shown_while_this_process_owns_them(tmp_path, monkeypatch):
    clock = JumpingClock()
    runtimes = []

    def runtime_of(partition):
        runtimes.append(CoordinatorRuntime(SqliteStore(tmp_path / f"{partition}.db"), keeps_measures=True))
        return runtimes[-1]

    with contextlib.closing(PartitionedRuntime(1, runtime_of)) as partitioned:
        partitioned.clock = clock
        partitioned.call("billing", one(CreateGroup(incarnation="i", topic_ids=True)))
        (runtime,) = runtimes
        clock.later_ms += runtime.cold_after_ms + 2 * REST_AFTER_MS
        partitioned.call("other", one(CreateGroup(incarnation="i", topic_ids=True)))
        clock.later_ms += REST_AFTER_MS + runtime.cold_after_ms
        partitioned.call("other", one(MeasureGroup(group_id="other")))
        assert partitioned.rested_groups().keys() == {"billing"}
        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, "is_current", False)
            assert partitioned.rested_groups() == {}
        partitioned.end(frozenset({0}))
        assert partitioned.rested_groups() == {}
