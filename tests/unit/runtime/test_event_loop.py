"""The event_loop: how long nobody was heard is measured wherever its process, or its thread, was kept from running."""

import contextlib
import threading

import pytest

from coordinator.core.commands import AcquirePlan, CreateGroup, InitializePartitions, PartitionStart, TopicWithId
from coordinator.core.looks.measures import MeasureGroup
from coordinator.protocol.errors import CoordinatorNotAvailable, GroupIdNotFound
from coordinator.protocol.messages import JoinGroup, PartitionBounds
from coordinator.service.process.clock import LISTENS_AGAIN_MS, STALLED_MS, Clock, now_s
from coordinator.service.process.stall_watch import StallWatch
from coordinator.service.runtime import event_loop as event_loop_module
from coordinator.service.runtime import runtime as runtime_module
from coordinator.service.runtime.event_loop import PartitionedRuntime, _EventLoop
from coordinator.service.runtime.runtime import TOLD_FROM_MS, CoordinatorRuntime
from coordinator.service.runtime.snapshots import REST_AFTER_MS
from coordinator.service.runtime.transaction import Access, one
from coordinator.service.stores.sqlite_store import SqliteStore
from tests.support.waiting import wait_until

AN_HOUR_MS = 3_600_000
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

    clock, append_ms, peek_ms = None, 0, 0

    def peek(self, group_id):
        self.clock.later_ms += self.peek_ms
        return super().peek(group_id)

    def append(self, appends, now_ms):
        self.clock.later_ms += self.append_ms
        self.append_ms = 0
        super().append(appends, now_ms)


@pytest.fixture
def event_loop(tmp_path):
    clock = JumpingClock()
    store = SlowStore(tmp_path / "state.db")
    store.clock = clock
    event_loop = _EventLoop(CoordinatorRuntime(store, clock=clock.now_ms), clock)
    with contextlib.closing(event_loop):
        for command in (
            CreateGroup(incarnation="i", topic_ids=True),
            InitializePartitions(
                topics=(TopicWithId(topic="orders", topic_id="T"),),
                starts=(PartitionStart(topic_id="T", partition=0, start_offset=0),),
            ),
            JoinGroup(group_id="billing", member_id="m1", process_id="p1"),
            AcquirePlan(group_id="billing", member_id="m1", member_epoch=1, bounds=BOUNDS),
        ):
            event_loop.call("billing", one(command))
        yield event_loop


def has_its_time(event_loop, group_id="billing"):
    """The session lives, and ends about a session's time, 45 s, from now; a busy machine may look 25 s late."""
    deadline_ms = event_loop.runtime.groups[group_id].members["m1"].session_deadline_ms
    return (deadline_ms or 0) > event_loop.clock.now_ms() + 20_000


def test_a_process_stopped_while_it_waits_prolongs_its_members_sessions(event_loop):
    event_loop.clock.later_ms += 10 * 45_000
    wait_until(lambda: has_its_time(event_loop), what="the session lives on")
    assert event_loop.runtime.groups["billing"].partitions["T", 0].acquired_count == 10


def test_a_stall_without_passed_deadlines_prolongs_sessions_too(event_loop):
    """It goes on just before the session's end: whoever sent a request meanwhile is not heard yet."""
    event_loop.clock.later_ms += 44_000
    wait_until(lambda: has_its_time(event_loop), what="the session has its time again")


def test_an_append_longer_than_a_session_ends_no_session(event_loop):
    event_loop.runtime.store.append_ms = 10 * 45_000
    event_loop.call("billing", one(JoinGroup(group_id="billing", member_id="m2", process_id="p2")))
    wait_until(lambda: has_its_time(event_loop), what="the session lives on")
    assert event_loop.runtime.groups["billing"].partitions["T", 0].acquired_count == 10


def test_a_long_look_at_a_group_keeps_no_join_from_it(event_loop):
    """A new member's join looks at the group before it claims the group, and would do so each time it asks again."""
    event_loop.runtime.store.peek_ms = 10 * TOLD_FROM_MS
    event_loop.call("orders", one(MeasureGroup(group_id="orders")), Access.PEEK)
    event_loop.call("orders", one(CreateGroup(incarnation="i", topic_ids=True)), Access.CLAIM)
    assert has_its_time(event_loop), "nobody was heard meanwhile"


def test_a_round_that_reads_state_for_long_is_not_stuck(event_loop, monkeypatch):
    """Requests wait meanwhile; other hosts hear that the owner lives."""
    store, later_s, stuck = event_loop.runtime.store, [0.0], []
    load, append = store.load, store.append
    for module in (event_loop_module, runtime_module):
        monkeypatch.setattr(module, "now_s", lambda: now_s() + later_s[0])

    def pass_100_s():
        later_s[0] += 100.0
        stuck.append(event_loop.stuck_s > 50.0)

    def slow_load(group_id):
        pass_100_s()
        return load(group_id)

    def slow_append(appends, now_ms):
        stuck.append(event_loop.stuck_s > 50.0)
        pass_100_s()
        append(appends, now_ms)

    monkeypatch.setattr(store, "load", slow_load)
    monkeypatch.setattr(store, "append", slow_append)
    event_loop.call("orders", one(CreateGroup(incarnation="i", topic_ids=True)))
    assert stuck == [False, False, True]


class SetClock(Clock):
    """A clock on which time passes when the test says so."""

    def __init__(self):
        self.at_ms = 1_000_000

    def now_ms(self):
        return self.at_ms


class WatchWithoutThread(StallWatch):
    """A stall watch that looks when the test says so."""

    def add(self, sleeper):
        self._sleepers.add(sleeper)

    def look(self):
        for sleeper in self._sleepers:
            sleeper.look_in_sleep()


class Idle:
    """A sleeping event loop without groups, whose stalls are written down."""

    def __init__(self, path):
        self.clock, self.watch, self.stalls_ms = SetClock(), WatchWithoutThread(), []
        runtime = CoordinatorRuntime(SqliteStore(path))
        self._step, runtime.step = runtime.step, self.step
        self.loop = _EventLoop(runtime, self.clock, self.watch)
        self.close = self.loop.close
        wait_until(self.sleeps, what="the event loop sleeps")

    def sleeps(self):
        return self.loop._sleeps_until_ms is not None

    def step(self, now_ms, stalled_ms, unread_ms):
        self.stalls_ms.append(stalled_ms)
        return self._step(now_ms, stalled_ms, unread_ms)

    def pass_time(self, ms):
        for _ in range(0, ms, LISTENS_AGAIN_MS):
            self.clock.at_ms += LISTENS_AGAIN_MS
            self.watch.look()

    def claim(self):
        self.loop.call("billing", one(CreateGroup(incarnation="i", topic_ids=True)), Access.CLAIM)
        assert self.loop.runtime.groups["billing"].exists


@pytest.fixture
def idle(tmp_path, monkeypatch):
    monkeypatch.setattr("coordinator.service.runtime.event_loop.STEPS_AGAIN_MS", AN_HOUR_MS)  # no sleep ends by itself
    with contextlib.closing(Idle(tmp_path / "state.db")) as idle:
        yield idle


def test_a_new_group_is_claimed_at_once_after_an_idle_time(idle):
    """As of a coordinator on demand between two queries."""
    idle.pass_time(STALLED_MS + 2 * TOLD_FROM_MS)
    idle.claim()
    assert idle.stalls_ms == [0], "it slept until then"


def test_a_loop_that_slept_while_its_process_was_stopped_claims_no_group(idle):
    """It has no deadline, and the request comes before the stall watch looks again."""
    idle.clock.at_ms += 46_000
    with pytest.raises(CoordinatorNotAvailable, match="was paused"):
        idle.claim()
    assert idle.stalls_ms == [46_000 - STALLED_MS]


def test_a_sleeping_loop_is_woken_after_a_stall_without_a_request(idle):
    idle.clock.at_ms += 46_000
    idle.watch.look()
    wait_until(lambda: idle.stalls_ms, what="it has stepped")
    assert idle.stalls_ms == [46_000 - STALLED_MS]


def test_a_short_sleep_of_the_process_wakes_no_loop(idle):
    idle.clock.at_ms += STALLED_MS
    idle.watch.look()
    idle.claim()
    assert idle.stalls_ms == [0]


def test_a_loop_that_should_have_woken_counts_as_stalled(idle):
    """The rest of the process runs, and its thread does not."""
    idle.loop.runtime.submit("billing", one(MeasureGroup(group_id="billing")))  # and nothing wakes it
    idle.pass_time(46_000)
    with pytest.raises(CoordinatorNotAvailable, match="was paused"):
        idle.claim()
    assert idle.stalls_ms == [46_000 - STALLED_MS]


def test_a_loop_in_a_long_round_counts_as_stalled(idle):
    """As in an append: the process goes on, and nobody hears a request."""
    begun, goes_on = threading.Event(), threading.Event()

    def long_one(group):
        begun.set()
        goes_on.wait(30)
        yield MeasureGroup(group_id=group.group_id)

    waits = idle.loop._submit("billing", long_one, Access.SERVE)
    assert begun.wait(30)
    idle.pass_time(46_000)
    goes_on.set()
    waits.result(30)
    wait_until(lambda: len(idle.stalls_ms) == 2, what="the stall is told by itself, soon after")
    assert idle.stalls_ms == [0, 46_000 - STALLED_MS]


def test_a_deadline_that_passed_while_the_machine_was_suspended_wakes_the_loop(idle):
    """Condition.wait counts no suspended time, and the clock of deadlines does."""
    idle.pass_time(AN_HOUR_MS)
    wait_until(lambda: idle.stalls_ms, what="it has stepped")
    assert idle.stalls_ms == [0]


def test_a_stall_prolongs_sessions_in_each_event_loop_of_the_process(tmp_path):
    def runtime_of(partition):
        return CoordinatorRuntime(SqliteStore(tmp_path / f"{partition}.db"))

    with contextlib.closing(PartitionedRuntime(ord, runtime_of, JumpingClock())) as partitioned:
        for group_id in "abc":
            partitioned.call(group_id, one(CreateGroup(incarnation="i", topic_ids=True)))
            partitioned.call(group_id, one(JoinGroup(group_id=group_id, member_id="m1", process_id="p1")))
        partitioned.clock.later_ms += 10 * 45_000
        for loop, group_id in zip(partitioned._all(), "abc", strict=True):
            wait_until(lambda loop=loop, of=group_id: has_its_time(loop, of), what="the session lives on")


class CountsLooks:
    """A sleeper that counts how often somebody looked for it; each look fails."""

    looks = 0

    def look_in_sleep(self):
        self.looks += 1
        raise ValueError("a bug")


def stall_threads():
    return {thread for thread in threading.enumerate() if thread.name == "share-stalls"}


def test_one_thread_watches_all_event_loops_until_the_last_ends():
    before, watch, sleepers = stall_threads(), StallWatch(), [CountsLooks(), CountsLooks()]
    for _ in range(2):
        seen = [sleeper.looks for sleeper in sleepers]
        for sleeper in sleepers:
            watch.add(sleeper)
        assert len(stall_threads() - before) == 1
        wait_until(lambda seen=seen: all(s.looks > n + 1 for s, n in zip(sleepers, seen, strict=True)), what="looks")
        for sleeper in sleepers:
            watch.remove(sleeper)
        wait_until(lambda: not stall_threads() - before, what="the thread ends")


def test_a_call_of_each_group_leaves_out_a_group_that_refuses(tmp_path, monkeypatch):
    monkeypatch.setattr("coordinator.service.runtime.event_loop.MOST_AT_ONCE", 2)  # of five groups

    def refused(group):
        raise GroupIdNotFound(group_id=group.group_id)
        yield

    with contextlib.closing(_EventLoop(CoordinatorRuntime(SqliteStore(tmp_path / "state.db")))) as loop:
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

    with contextlib.closing(PartitionedRuntime(lambda group_id: 0, runtime_of, clock)) as partitioned:
        partitioned.call("billing", one(CreateGroup(incarnation="i", topic_ids=True)))
        (runtime,) = runtimes
        clock.later_ms += runtime.cold_after_ms + 2 * REST_AFTER_MS
        partitioned.call("other", one(CreateGroup(incarnation="i", topic_ids=True)))
        clock.later_ms += REST_AFTER_MS + runtime.cold_after_ms

        def rested():
            partitioned.call("other", one(MeasureGroup(group_id="other")))
            return partitioned.rested_groups().keys() == {"billing"}

        wait_until(rested, what="the loop lets the group rest, which it does after it has answered a call")
        partitioned.close()
        assert partitioned.rested_groups() == {}
