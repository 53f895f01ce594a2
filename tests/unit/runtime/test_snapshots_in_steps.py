"""A large group's snapshot is made in steps, between which the group goes on: a crash at any of them loses nothing."""

import pytest

from coordinator.core.commands import AcquireForConsumer, ExtendDeadlines
from coordinator.core.looks.snapshot import GroupCut, snapshot_of
from coordinator.core.record_state import RecordState
from coordinator.protocol.admin_messages import DeleteGroup
from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.protocol.messages import Acknowledge, JoinGroup, LeaveGroup
from coordinator.service.runtime import snapshots
from coordinator.service.runtime.transaction import one
from coordinator.service.stores.store import StoreOutcomeUnknown, StorePartlyFailed, StoreRefused
from coordinator.state_log import group_log
from tests.kip932.consumers import ACCEPT, REJECT, RELEASE, batch
from tests.support.group_driver import SESSION_MS, durable_state
from tests.support.kept_group import Kept
from tests.support.running_service import acks
from tests.support.runtime_service import BOUNDS, Service

RUNS = 40
STEPS = RUNS // 2 + 5
"""More steps than the snapshot has."""


class Large(Service):
    """Consumer c1 holds every second record: a snapshot has a step for each two of these runs."""

    def create(self, group_id="billing"):
        super().create(group_id)
        self.join(group_id)
        self.ask(self.fetch(group_id), group_id)
        for at in range(0, RUNS, 2):
            self.acknowledge(at, RELEASE, group_id)

    @staticmethod
    def fetch(group_id="billing"):
        mode = {"acquire_mode": "record_limit", "bounds": BOUNDS, "max_records": RUNS}
        return AcquireForConsumer(group_id=group_id, member_id="c1", member_epoch=1, **mode)

    def acknowledge(self, offset, kind=ACCEPT, group_id="billing"):
        partitions = acks("T", offset, offset, kind)
        command = Acknowledge(group_id=group_id, member_id="c1", member_epoch=1, partitions=partitions)
        assert not self.ask(command, group_id).errors

    def join(self, group_id="billing"):
        self.ask(JoinGroup(group_id=group_id, member_id="c1", process_id="c1", query=False), group_id)

    def check_log(self):
        """A process that dies now leaves a log of which the next one loads the same group."""
        before = durable_state(self.group)
        self.die()
        self.join()
        assert durable_state(self.group) == before

    def begin_snapshot(self):
        self.runtime._snapshot("billing", self.now_ms)
        assert self.is_under_way

    @property
    def is_under_way(self):
        return "billing" in self.runtime._under_way

    def write_step(self):
        assert self.runtime.next_deadline_ms() <= self.now_ms, "the event loop goes on with it at once"
        self.runtime.step(self.now_ms)

    def write_all(self):
        while self.is_under_way:
            self.write_step()


@pytest.fixture
def large(tmp_path, monkeypatch):
    service = Large(tmp_path / "state.db", snapshot_after=1_000)
    service.create()
    monkeypatch.setattr(snapshots, "STEPS_FROM_RUNS", 10)
    monkeypatch.setattr(snapshots, "RUNS_A_STEP", 2)
    yield service
    service.store.close()


@pytest.mark.parametrize("steps", range(STEPS))
def test_a_crash_between_two_steps_loses_nothing(large, steps):
    large.begin_snapshot()
    for number in range(steps):
        if number < RUNS // 2:
            large.acknowledge(2 * number + 1)
        elif large.is_under_way:
            large.write_step()
    assert large.is_under_way == (steps < STEPS - 1)
    large.check_log()
    if steps < RUNS // 2:
        large.acknowledge(RUNS - 1, RELEASE)
    large.begin_snapshot()
    large.write_all()
    large.check_log()


def test_the_snapshot_replaces_the_log(large):
    large.begin_snapshot()
    large.acknowledge(1)
    before = {record.sequence for record in large.store.load("billing")}
    large.write_all()
    assert not before & {record.sequence for record in large.store.load("billing")}
    assert large.runtime.next_deadline_ms() > large.now_ms


def test_a_cut_keeps_the_group_as_of_its_time(large):
    """Records, members, and the ends of locks change after it; the cut does not."""
    for at in (1, 3, 5):
        large.acknowledge(at, REJECT)
    large.runtime.step(large.now_ms + 1_000, stalled_ms=1_000)
    group = large.group
    before, cut = list(snapshot_of(group)), GroupCut(group)
    large.acknowledge(7, REJECT)
    large.ask(JoinGroup(group_id="billing", member_id="m9", process_id="p", query=True))
    large.runtime.step(large.now_ms + SESSION_MS, stalled_ms=SESSION_MS)
    assert list(snapshot_of(group)) != before
    assert [record for records in cut.steps() for record in records] == before
    assert group.partitions["T", 0].runs.counts[RecordState.ARCHIVED] == 4


@pytest.mark.parametrize("steps", [0, 1, RUNS // 2 - 2])
def test_a_refused_step_leaves_the_log_unchanged(large, steps, caplog):
    large.begin_snapshot()
    for number in range(steps):
        large.acknowledge(2 * number + 1)
    large.store.snapshot_fault = StoreRefused("no room")
    large.acknowledge(RUNS - 1)
    assert not large.is_under_way and "the log stays as it is" in caplog.text
    large.store.snapshot_fault = None
    large.check_log()


def test_a_step_in_doubt_loads_the_group_again(large):
    large.begin_snapshot()
    large.acknowledge(1)
    before = durable_state(large.group)
    large.store.snapshot_fault = StoreOutcomeUnknown("it takes too long")
    large.runtime.step(large.now_ms)
    assert not large.runtime.groups and not large.is_under_way
    large.store.snapshot_fault = None
    large.runtime.step(large.now_ms)
    assert durable_state(large.group) == before


def test_an_append_that_fails_ends_the_snapshot(large):
    """The memory of before is gone, and the group is loaded from the old log."""
    large.begin_snapshot()
    large.store.fault = "doubt, written"
    with pytest.raises(CoordinatorNotAvailable):
        large.acknowledge(1)
    assert not large.is_under_way
    large.join()
    large.begin_snapshot()
    large.write_all()
    large.check_log()
    assert large.group.partitions["T", 0].runs.at(1).run.state == RecordState.ACKNOWLEDGED


def test_an_append_beside_a_failed_append_is_in_the_snapshot(large, monkeypatch):
    """The appends of a round are durable group by group."""
    Service.create(large, "other")
    large.begin_snapshot()
    append = large.store.inner.append

    def partly(appends, shown):
        append({"billing": appends["billing"]}, shown)
        raise StorePartlyFailed({"other": StoreRefused("no room")})

    with monkeypatch.context() as patch:
        patch.setattr(large.store.inner, "append", partly)
        joined = JoinGroup(group_id="other", member_id="m2", process_id="p2", query=True)
        refused = large.runtime.submit("other", one(joined))
        large.acknowledge(1)
        assert isinstance(refused.exception(0), CoordinatorNotAvailable)
    large.write_all()
    large.check_log()


def test_a_group_deleted_during_its_snapshot_leaves_nothing(large):
    for at in range(1, RUNS, 2):
        large.acknowledge(at)
    for member in ("c1", "m1"):
        large.ask(LeaveGroup(group_id="billing", member_id=member, member_epoch=1))
    large.begin_snapshot()
    large.ask(DeleteGroup(group_id="billing", execute=True))
    large.runtime.step(large.now_ms)
    assert not large.is_under_way
    large.die()
    assert not list(large.store.load("billing"))


def test_a_log_is_long_by_its_groups_size(large, monkeypatch):
    monkeypatch.setattr(large.runtime, "snapshot_after", 1)
    large.runtime._logs["billing"].updates = 0
    large.acknowledge(1)
    assert not large.is_under_way, "one append for 40 runs is not many"
    large.acknowledge(3)
    assert large.is_under_way
    large.write_all()
    monkeypatch.setattr(snapshots, "SNAPSHOT_AFTER_BYTES", 10)
    large.acknowledge(5)
    assert large.is_under_way, "its bytes are many"


# --- in the state topic


def scattered(**fields):
    """c1 holds every second record of two partitions; some of the first are done."""
    group = Kept(end=RUNS, members=1, partitions=2, **fields)
    group.fetch("c1", 2 * RUNS)
    for partition in (0, 1):
        group.acknowledge_all({partition: tuple(batch(at, at, RELEASE) for at in range(0, RUNS, 2))})
    group.acknowledge(REJECT, 1)
    return group


@pytest.mark.parametrize("at_once", [3, RUNS])
def test_records_of_the_state_topic_are_right_at_each_step(monkeypatch, at_once):
    """An owner that loads the group between two steps has all of it; and Kafka's tools see the same in the end."""
    monkeypatch.setattr(group_log, "MOST_RUNS_AT_ONCE", at_once)
    group = scattered()
    for number, _ in enumerate(group.snapshot_in_steps(4)):
        if number < RUNS // 2 - 1:
            group.acknowledge(ACCEPT if number % 3 else REJECT, 2 * number + 3, partition=number % 2)
        elif number == RUNS // 2:
            group.run(ExtendDeadlines(stalled_ms=SESSION_MS))
            group.fetch("c1", 5)
    assert number > RUNS // 2
    group.prune()
    group.check_log()
    group.acknowledge(ACCEPT, RUNS - 1)
    group.snapshot()


def test_an_abandoned_snapshot_and_a_later_snapshot_do_not_mix():
    group = scattered()
    steps = group.snapshot_in_steps(4)
    for _ in range(6):
        next(steps)
    group.acknowledge(ACCEPT, 3)
    group.tail = None
    group.live.owner = None
    for _ in group.snapshot_in_steps(8):
        if group.partition().runs.at(RUNS - 1).run.state == RecordState.ACQUIRED:
            group.acknowledge(ACCEPT, RUNS - 1)
    group.prune()
    group.check_log()


def test_a_long_tail_is_written_before_the_last_step(monkeypatch):
    monkeypatch.setattr(group_log, "TRANSACTION_BYTES", 100)
    group = scattered()
    for number, _ in enumerate(group.snapshot_in_steps(1_000)):
        if number < 2:
            for at in range(10):
                group.acknowledge(ACCEPT, 20 * number + 2 * at + 1, partition=1)
    group.prune()
    group.check_log()
