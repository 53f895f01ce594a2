"""◆ A process that loads its own group again, since an append failed, goes on with what was left of sessions and locks:
a member that is gone keeps its records for one session timeout, however often that happens."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from coordinator.core.commands import AcquireForConsumer
from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.protocol.messages import Acknowledge, Heartbeat, JoinGroup, PartitionAcks
from tests.kip932.consumers import LOCK_MS, RENEW, batch
from tests.support.group_driver import SESSION_MS
from tests.support.runtime_service import BOUNDS, RECORDS, Service, acquire, beat, join


@contextlib.contextmanager
def served() -> Iterator[Service]:
    """A group with a member, m1."""
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder) / "state.db")
        service.create()
        try:
            yield service
        finally:
            service.store.close()


def fail(service: Service, *, after_ms: int = 0) -> None:
    """An append in doubt, as after a fence by another program, and the load that settles it."""
    service.now_ms += after_ms
    service.store.fault = "doubt, not written"
    with contextlib.suppress(CoordinatorNotAvailable):
        service.ask(join("another", f"p{service.now_ms}"))
    assert "billing" not in service.runtime.groups
    service.runtime.step(service.now_ms)


def test_loads_give_a_member_that_is_gone_no_more_time():
    with served() as service:
        service.ask(acquire())
        for _ in range(4):
            fail(service, after_ms=SESSION_MS // 4)
        service.runtime.step(service.now_ms + 1)
        assert service.group.partitions["T", 0].acquired_count == 0


def test_a_session_whose_end_was_not_appended_is_over_after_the_load():
    with served() as service:
        service.ask(acquire())
        service.now_ms += SESSION_MS + 1
        service.store.fault = "doubt, not written"
        service.runtime.step(service.now_ms)
        assert "billing" not in service.runtime.groups
        service.runtime.step(service.now_ms)
        service.runtime.step(service.now_ms + 1)
        assert not service.group.members["m1"].active


def test_a_member_that_was_heard_stays_through_the_load():
    with served() as service:
        service.ask(acquire())
        service.now_ms += SESSION_MS - 1
        beat(service)
        service.runtime.step(service.now_ms)
        fail(service)
        service.runtime.step(service.now_ms + SESSION_MS)
        assert service.group.members["m1"].active


def test_the_time_of_the_load_counts_against_no_member():
    with served() as service:
        service.ask(acquire())
        service.store.fault, service.store.load_fault = "doubt, not written", True
        service.now_ms += SESSION_MS - 10
        with contextlib.suppress(CoordinatorNotAvailable):
            service.ask(join("another", "p"))
        service.runtime.step(service.now_ms)  # this load fails
        service.now_ms += SESSION_MS // 2
        service.runtime.step(service.now_ms)
        service.runtime.step(service.now_ms + 10)
        assert service.group.members["m1"].active


def test_a_takeover_from_another_process_gives_everybody_a_session_timeout(monkeypatch):
    with served() as service:
        service.ask(acquire())
        monkeypatch.setattr(service.store, "kept", lambda group_id: False)
        fail(service, after_ms=SESSION_MS)
        service.runtime.step(service.now_ms + SESSION_MS)
        assert service.group.members["m1"].active


CONSUMER = {"group_id": "billing", "member_id": "c1", "member_epoch": 1}


def consumes(service: Service) -> None:
    """A ShareConsumer holds all records."""
    service.ask(JoinGroup(group_id="billing", member_id="c1", process_id="p", query=False))
    service.ask(AcquireForConsumer(**CONSUMER, max_records=RECORDS, bounds=BOUNDS))


def test_loads_give_a_lock_that_is_over_no_more_time():
    with served() as service:
        consumes(service)
        for _ in range(3):
            service.ask(Heartbeat(**CONSUMER))
            fail(service, after_ms=LOCK_MS // 3)
        service.now_ms += 1
        service.store.fault = "doubt, not written"
        service.runtime.step(service.now_ms)  # the end of the lock is not appended
        service.runtime.step(service.now_ms)
        service.runtime.step(service.now_ms + 1)
        assert service.group.members["c1"].active
        assert service.group.partitions["T", 0].acquired_count == 0


def test_a_renewed_lock_stays_through_the_load():
    with served() as service:
        consumes(service)
        service.now_ms += LOCK_MS - 1
        service.ask(Heartbeat(**CONSUMER))
        service.ask(
            Acknowledge(
                **CONSUMER,
                partitions=(PartitionAcks(topic_id="T", partition=0, batches=(batch(0, RECORDS - 1, RENEW),)),),
            )
        )
        fail(service, after_ms=2)
        service.runtime.step(service.now_ms + LOCK_MS - 10)
        assert service.group.partitions["T", 0].acquired_count == RECORDS
