"""The runtime and time: deadlines, loads and stalls that take long, groups that rest, and logs that grow long."""

import logging

import pytest

from coordinator.core.commands import CreateGroup, StageRuns
from coordinator.core.log_records import RunsChanged
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import decode_record
from coordinator.protocol.admin_messages import DeleteGroup
from coordinator.protocol.errors import CoordinatorNotAvailable, MembersNotKnown
from coordinator.protocol.messages import DescribeGroup, Heartbeat, LeaveGroup, PartitionOutcomes
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from coordinator.service.runtime import runtime, snapshots
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.snapshots import REST_AFTER_MS, SNAPSHOT_AGAIN_MS
from coordinator.service.runtime.transaction import Access, one
from coordinator.service.stores.sqlite_store import SqliteStore
from coordinator.service.stores.store import StoreOutcomeUnknown, StoreRefused
from tests.support.faulty_store import FaultyStore
from tests.support.group_driver import SESSION_MS
from tests.support.runtime_service import RECORDS, Service, acquire, beat, complete, join, start_plan


class SlowStore(FaultyStore):
    """A store whose loads take as long as `load_ms` says on the runtime's clock."""

    load_ms = 0

    def load(self, group_id):
        self.clock_ms += self.load_ms
        return super().load(group_id)


@pytest.fixture
def service(tmp_path):
    service = Service(tmp_path / "state.db")
    service.create()
    yield service
    service.store.close()


@pytest.fixture
def slow(tmp_path):
    service = Service(tmp_path / "state.db")
    service.store.close()
    store = service.store = SlowStore(SqliteStore(service.path))
    store.clock_ms = service.now_ms
    service.runtime = CoordinatorRuntime(store, clock=lambda: store.clock_ms)
    service.create()
    yield service
    store.close()


def test_deadlines_end_sessions_without_a_request(service):
    due_ms = service.runtime.next_deadline_ms()
    assert due_ms is not None and service.group.members["m1"].active
    assert not service.runtime.may_rest(service.now_ms)
    service.runtime.step(due_ms)
    assert not service.group.members["m1"].active
    assert service.runtime.may_rest(due_ms)


def test_a_resting_group_is_snapshotted_released_and_loaded_when_asked_for(service):
    service.ask(acquire())
    newest = list(service.store.load("billing"))[-1].sequence
    before = service.ask(DescribeGroup(group_id="billing")).partitions
    while "billing" in service.runtime.groups:
        service.runtime.step(service.runtime.next_deadline_ms())
    assert next(iter(service.store.load("billing"))).sequence > newest
    assert service.runtime.next_deadline_ms() is None
    after = service.ask(DescribeGroup(group_id="billing")).partitions
    assert [(p.start_offset, p.end_offset) for p in after] == [(p.start_offset, p.end_offset) for p in before]


@pytest.mark.parametrize("every_ms", [2_000, 15_000, 240_000])
def test_looks_do_not_put_off_that_a_resting_group_is_unloaded(service, every_ms):
    service.ask(LeaveGroup(group_id="billing", member_id="m1", member_epoch=1))
    asked_ms = service.now_ms
    while "billing" in service.runtime.groups:
        service.now_ms += every_ms
        assert service.look(one(DescribeGroup(group_id="billing"))).state == "EMPTY"
        assert service.now_ms <= asked_ms + service.runtime.cold_after_ms + REST_AFTER_MS + 2 * every_ms


def test_a_group_at_rest_is_unloaded_five_minutes_after_its_last_request(service):
    """The snapshot that is due a moment before does not put it off."""
    service.now_ms += 2_000
    service.ask(LeaveGroup(group_id="billing", member_id="m1", member_epoch=1))
    asked_ms, steps = service.now_ms, 0
    while "billing" in service.runtime.groups:
        service.now_ms, steps = max(service.runtime.next_deadline_ms(), service.now_ms), steps + 1
        service.runtime.step(service.now_ms)
    assert (service.now_ms, steps) == (asked_ms + REST_AFTER_MS, 2)
    assert service.store.snapshots == 1


def test_a_request_of_a_member_keeps_its_group_loaded(service):
    service.ask(LeaveGroup(group_id="billing", member_id="m1", member_epoch=1))
    for _ in range(30):
        service.now_ms += REST_AFTER_MS // 2
        service.ask(DescribeGroup(group_id="billing"))
        assert "billing" in service.runtime.groups


def test_a_log_without_appends_for_long_is_a_snapshot(service):
    service.ask(acquire())
    service.runtime.cold_after_ms = 10_000
    assert service.runtime.next_deadline_ms() == service.now_ms + 10_000
    service.runtime.step(service.now_ms + 10_000)
    assert [type(decode_record(r.data)) for r in service.store.load("billing")][-1] is RunsChanged
    assert "billing" in service.runtime.groups


def test_a_group_that_was_dropped_comes_back_by_itself_with_its_deadlines(service):
    service.ask(acquire())
    service.store.fault = "refuse"
    with pytest.raises(CoordinatorNotAvailable):
        service.ask(join("m2", "p2"))
    service.store.load_fault = True
    service.runtime.step(service.now_ms)
    assert "billing" not in service.runtime.groups
    assert not service.runtime.may_rest(service.now_ms)
    service.runtime.step(service.runtime.next_deadline_ms())
    assert service.runtime.next_deadline_ms() > service.now_ms + 40_000  # the holder has one session timeout


def test_a_group_that_cannot_be_loaded_is_logged_once_a_minute(service, caplog, monkeypatch):
    clock_s = 0.0
    service.runtime._once = LogOnce(logging.getLogger("runtime"), lambda: clock_s)
    service.store.fault = "refuse"
    with pytest.raises(CoordinatorNotAvailable):
        service.ask(acquire())

    def load(group_id):
        raise StoreRefused("the state topic can't be read")

    monkeypatch.setattr(service.store, "load", load)
    for _ in range(10):
        service.now_ms += runtime.RELOAD_AT_MOST_MS
        service.runtime.step(service.now_ms)
    clock_s = 60.0
    service.runtime.step(service.now_ms + runtime.RELOAD_AT_MOST_MS)
    first, second = [record.getMessage() for record in caplog.records if "loading failed" in record.message]
    assert first == "loading failed: group=billing StoreRefused: the state topic can't be read"
    assert second == f"{first} (and 9 more of this kind since the last line)"


def test_a_long_log_becomes_a_snapshot_that_loads_as_the_same_group(tmp_path):
    service = Service(tmp_path / "state.db", snapshot_after=10)
    service.create()
    number = ""
    for _ in range(9):
        number = service.ask(acquire(number)).plan.plan_id
        service.ask(start_plan(number))
        service.ask(complete(number))
    assert len(list(service.store.load("billing"))) < 30
    before = list(snapshot_of(service.group))
    service.die()
    service.ask(join(epoch=1))
    assert list(snapshot_of(service.group)) == before
    service.store.close()


def test_a_snapshot_that_takes_too_long_does_not_stop_the_group(tmp_path):
    service = Service(tmp_path / "state.db", snapshot_after=10)
    service.create()
    service.store.snapshot_fault = StoreOutcomeUnknown("it takes too long")
    number = ""
    for _ in range(40):
        number = service.ask(acquire(number, 5)).plan.plan_id
        service.ask(start_plan(number))
        service.ask(complete(number))
    assert service.store.snapshots == 1
    assert service.store.loads <= 3, "not loaded anew in each round"
    for pause_ms in (SNAPSHOT_AGAIN_MS, 2 * SNAPSHOT_AGAIN_MS):
        before = service.store.snapshots
        service.now_ms += pause_ms // 2
        service.runtime.step(service.now_ms)
        assert service.store.snapshots == before
        service.now_ms += pause_ms // 2
        service.runtime.step(service.now_ms)
        service.runtime.step(service.now_ms)
        assert service.store.snapshots == before + 1
    service.store.snapshot_fault = None
    service.now_ms += 4 * SNAPSHOT_AGAIN_MS
    service.runtime.step(service.now_ms)
    service.runtime.step(service.now_ms)
    assert len(list(service.store.load("billing"))) < 30
    service.store.close()


def test_a_log_of_large_appends_becomes_a_snapshot_sooner(tmp_path, monkeypatch):
    """As staged outcomes are: however many rows are decided one by one, the log does not grow without bounds."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_AFTER_BYTES", 10_000)
    service = Service(tmp_path / "state.db", snapshot_after=500)
    service.create()
    outcomes = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)
    number, stored_bytes = "", []
    for _ in range(10):
        plan = service.ask(acquire(number)).plan
        number = plan.plan_id
        service.ask(start_plan(number))
        ((first, last, count),) = plan.partitions[0].ranges
        runs = tuple(OutcomeRun(n, n, count, outcomes[n % 2]) for n in range(first, last + 1))
        rows = (PartitionOutcomes(topic_id=plan.partitions[0].topic_id, partition=0, runs=runs),)
        service.ask(StageRuns(group_id="billing", partitions=rows))
        service.ask(complete(number))
        stored_bytes.append(sum(len(record.data or b"") for record in service.store.load("billing")))
    service.store.close()
    assert max(stored_bytes) < 15_000, stored_bytes


def test_a_load_longer_than_a_session_ends_no_holders_session(slow):
    number = slow.ask(acquire()).plan.plan_id
    slow.ask(start_plan(number))
    slow.store.load_ms = 60_000
    slow.store.fault = "refuse"
    with pytest.raises(CoordinatorNotAvailable):
        slow.ask(join("m2", "p2"))
    slow.runtime.step(slow.store.clock_ms)
    slow.runtime.step(slow.store.clock_ms)
    assert slow.group.partitions["T", 0].acquired_count == 100
    assert slow.runtime.next_deadline_ms() > slow.store.clock_ms + 44_000


def test_heartbeats_sent_during_a_long_load_count_before_sessions_end(slow):
    slow.ask(start_plan(slow.ask(acquire()).plan.plan_id))
    slow.store.load_ms = 60_000
    other = slow.runtime.submit("other", one(Heartbeat(group_id="other", member_id="m", member_epoch=1)))
    slow.runtime.step(slow.store.clock_ms)
    assert other.exception() is not None
    beat = slow.runtime.submit("billing", one(Heartbeat(group_id="billing", member_id="m1", member_epoch=1)))
    slow.runtime.step(slow.store.clock_ms)
    assert beat.result(0)
    assert slow.group.partitions["T", 0].acquired_count == 100


def test_a_process_that_was_stopped_for_a_session_ends_no_session(service):
    """m1 reads its batch, m2 waits for records; both send heartbeats, which wait like their sender."""
    service.ask(join("m2", "p2"))
    service.ask(start_plan(service.ask(acquire(limit=RECORDS)).plan.plan_id))
    service.now_ms += 46_000
    beats = [beat(service), beat(service, "m2")]
    service.runtime.step(service.now_ms, stalled_ms=46_000)
    assert all(each.result(0) for each in beats)
    assert service.ask(acquire(member="m2")).plan.plan_id == ""


def test_a_request_from_before_a_stall_takes_no_group(service, monkeypatch):
    """The client of the request found another coordinator meanwhile, which has the group; a client that still waits
    asks again."""
    claimed = []
    monkeypatch.setattr(service.store.inner, "claim", claimed.append, raising=False)
    old = service.runtime.submit("payments", one(CreateGroup(incarnation="i", topic_ids=True)), Access.CLAIM)
    service.runtime.step(service.now_ms + 46_000, stalled_ms=46_000)
    assert isinstance(old.exception(), CoordinatorNotAvailable) and old.exception().retriable
    assert claimed == []
    again = service.runtime.submit("payments", one(CreateGroup(incarnation="i", topic_ids=True)), Access.CLAIM)
    service.runtime.step(service.now_ms + 46_000 + runtime.CLAIM_PAUSE_MS)
    assert again.result(0) and claimed == ["payments"]


def test_the_session_of_a_member_whose_heartbeat_waits_does_not_end(service):
    service.ask(start_plan(service.ask(acquire()).plan.plan_id))
    service.now_ms += 46_000
    waits = beat(service)
    service.runtime.step(service.now_ms)
    assert waits.result(0)
    assert service.group.partitions["T", 0].acquired_count == 100


def test_the_duration_of_a_load_in_the_same_round_ends_no_session(slow):
    slow.ask(start_plan(slow.ask(acquire()).plan.plan_id))
    slow.store.load_ms = 60_000
    slow.runtime.submit("other", one(Heartbeat(group_id="other", member_id="m", member_epoch=1)))
    slow.runtime.step(slow.store.clock_ms)
    assert slow.group.partitions["T", 0].acquired_count == 100


def test_a_stall_after_a_load_prolongs_the_wait_for_members(service):
    service.die()
    service.ask(DescribeGroup(group_id="billing"))
    service.now_ms += SESSION_MS + 1
    service.runtime.step(service.now_ms, SESSION_MS)
    with pytest.raises(MembersNotKnown):
        service.ask(DeleteGroup(group_id="billing"))
    service.now_ms += SESSION_MS
    assert not service.ask(DeleteGroup(group_id="billing")).executed
