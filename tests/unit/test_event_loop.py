"""The event_loop: how long nobody was heard is measured wherever its process, or its thread, was kept from running."""

import contextlib

import pytest

from coordinator.core.commands import AcquirePlan, CreateGroup, InitializePartitions, PartitionStart, TopicPartitions
from coordinator.protocol.messages import JoinGroup, PartitionBounds
from coordinator.service.process.clock import STALLED_MS, Clock, StallDetector
from coordinator.service.runtime.event_loop import EventLoop
from coordinator.service.runtime.runtime import CoordinatorRuntime, one
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
                topics=(TopicPartitions(topic="orders", topic_id="T", partitions=1),),
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


def test_a_process_that_is_stopped_while_it_waits_gives_members_their_time_again(event_loop):
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


def test_looks_that_come_in_time_leave_nothing_unheard():
    attention = StallDetector()
    assert [attention.look(at_ms) for at_ms in (1_000, 1_250, 1_250 + STALLED_MS, 2_000)] == [0, 0, 0, 0]


def test_time_between_two_looks_is_unheard_but_for_a_little_of_it():
    attention = StallDetector()
    attention.look(1_000)
    assert attention.look(61_000) == 60_000 - STALLED_MS
    assert attention.look(61_001) == 0
