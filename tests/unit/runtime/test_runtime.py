"""The runtime: nothing is visible before it is durable, and no fault of the store loses, doubles or sticks a record."""

import contextlib
import random
import sqlite3

import pytest

from coordinator.protocol.errors import (
    BrokerNotReachable,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    InternalError,
    StateRecordUnreadable,
    UnknownMemberId,
)
from coordinator.protocol.messages import Heartbeat
from coordinator.service.runtime import runtime
from coordinator.service.runtime.transaction import Access, one
from tests.support.runtime_service import RECORDS, Service, acquire, complete, join, start_plan
from tests.support.store_writes import append

FAULTS = ["refuse", "doubt, not written", "doubt, written", "die before the append", "die after the append"]


@pytest.fixture
def service(tmp_path):
    service = Service(tmp_path / "state.db")
    service.create()
    yield service
    service.store.close()


def test_no_request_is_answered_before_the_append_of_its_round(service, monkeypatch):
    answers = []
    append = service.store.append

    def watched_append(*appends):
        assert not any(answer.done() for answer in answers)
        append(*appends)
        assert not any(answer.done() for answer in answers)

    monkeypatch.setattr(service.store, "append", watched_append)
    answers.append(service.runtime.submit("billing", one(acquire())))
    answers.append(service.runtime.submit("billing", one(acquire())))  # appends nothing: the same plan again
    answers.append(service.runtime.submit("billing", one(complete("i.9"))))  # an error may tell of the plan, too
    service.runtime.step(service.now_ms)
    assert all(answer.done() for answer in answers)
    assert answers[0].result().plan == answers[1].result().plan
    assert "i.1" in str(answers[2].exception())


def test_all_waiting_requests_are_one_store_transaction(service):
    before = service.store.appends
    answers = [service.runtime.submit("billing", one(join(f"m{i}", f"p{i}"))) for i in range(2, 50)]
    service.runtime.step(service.now_ms)
    assert {answer.result().member_epoch for answer in answers} == {1}
    assert service.store.appends == before + 1


def test_a_transactions_commands_stay_when_a_later_command_is_refused(service):
    first = service.ask(acquire()).plan
    service.ask(start_plan(first.plan_id))
    before = service.store.appends

    def transaction(group):
        yield complete(first.plan_id)
        return (yield acquire("i.77"))

    with pytest.raises(Exception, match=r"i\.77"):
        service.play(transaction)
    assert service.store.appends == before + 1
    service.die()
    assert service.ask(join(process="p1")).member_epoch == 1
    assert service.group.partitions["T", 0].start_offset == 100


@pytest.mark.parametrize("fault", ["refuse", "doubt, not written", "doubt, written"])
def test_a_failed_append_is_retriable_and_memory_is_the_stores_again(service, fault):
    service.store.fault = fault
    answers = [
        service.runtime.submit("billing", one(command))
        for command in (acquire(), Heartbeat(group_id="billing", member_id="m1", member_epoch=1))
    ]
    service.runtime.step(service.now_ms)
    for answer in answers:
        assert isinstance(answer.exception(), CoordinatorNotAvailable)
        assert answer.exception().retriable
    service.runtime.step(service.now_ms)
    assert service.group.last_plan_id == (1 if fault == "doubt, written" else 0)
    service.ask(join(epoch=1))
    assert service.ask(acquire()).plan.plan_id == "i.1"


def _as_member(service, command):
    try:
        return service.ask_until_answered(command)
    except UnknownMemberId:
        service.ask_until_answered(join(epoch=1))
        return _as_member(service, command)


@pytest.mark.parametrize("seed", range(8))
def test_under_any_faults_each_record_is_completed_in_exactly_one_plan(tmp_path, seed):
    chance = random.Random(seed)
    service = Service(tmp_path / "state.db", snapshot_after=5)
    service.create()
    done, number = [], ""
    while len(done) < RECORDS:
        service.store.fault = chance.choice([None, *FAULTS])
        plan = _as_member(service, acquire(number)).plan
        assert plan.plan_id, f"stuck after {len(done)} records, seed {seed}"
        service.store.fault = chance.choice([None, *FAULTS])
        _as_member(service, start_plan(plan.plan_id))
        service.store.fault = chance.choice([None, *FAULTS])
        _as_member(service, complete(plan.plan_id))
        number = plan.plan_id
        done += [o for p in plan.partitions for r in p.ranges for o in range(r.first, r.last + 1)]
    assert sorted(done) == list(range(RECORDS)), f"seed {seed}"
    service.store.close()


def test_an_unreadable_record_is_named_and_other_groups_are_served(service):
    append(service.store.inner, {"broken": [b"\xc1 not a record"]})
    with pytest.raises(StateRecordUnreadable, match=r"Record 0 of share group broken in state store .*state\.db"):
        service.ask(join(group_id="broken"), "broken")
    assert service.ask(acquire()).plan.plan_id == "i.1"


def test_the_reading_of_an_unreadable_log_ends(service):
    """SQLite shows a reader the file as it was when the reading began, and keeps what was written since beside it."""
    append(service.store.inner, {"broken": [b"\xc1 not a record", b"another"]})
    with pytest.raises(StateRecordUnreadable) as raised:
        service.ask(join(group_id="broken"), "broken")
    with contextlib.closing(sqlite3.connect(service.store.inner.path, timeout=0)) as other:
        is_busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert not is_busy, raised  # whose traceback has the frames of the reading


def test_a_mistake_in_one_request_reaches_only_its_caller(service):
    def transaction(group):
        yield from ()
        raise KeyError("oops")

    bad = service.runtime.submit("billing", transaction)
    good = service.runtime.submit("billing", one(acquire()))
    service.runtime.step(service.now_ms)
    assert isinstance(bad.exception(), InternalError)
    assert good.result().plan.plan_id == "i.1"


def test_a_replay_that_fails_appends_nothing_and_the_groups_are_loaded_again(service, monkeypatch):
    appends = service.store.appends
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "replay", lambda group, record: 1 / 0)
        with pytest.raises(InternalError):
            service.ask(acquire())
    assert service.store.appends == appends
    service.runtime.step(service.now_ms)
    service.ask(join(epoch=1))
    assert service.ask(acquire()).plan.plan_id == "i.1"


def test_a_group_that_was_only_looked_for_is_not_kept(service):
    with pytest.raises(Exception, match="nothing"):
        service.ask(join(group_id="nothing"), "nothing")
    assert "nothing" not in service.runtime.groups


def test_an_exception_after_the_replay_leaves_memory_equal_to_the_log(service, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(service.runtime, "_commit", lambda round_: 1 / 0)
        service.runtime.submit("billing", one(acquire()))
        with pytest.raises(ZeroDivisionError):
            service.runtime.step(service.now_ms)
    assert "billing" not in service.runtime.groups
    service.runtime.step(service.now_ms)
    service.ask(join(epoch=1))
    assert service.ask(acquire()).plan.plan_id == "i.1"


def test_a_group_is_held_until_it_is_loaded_again(service, monkeypatch):
    """Another host takes a group from a process that does not hold it."""
    held = {}

    def noting(step, right):
        def noted(*given):
            held.setdefault(step, (service.runtime.held, service.runtime.holds("billing")))
            return 1 / 0 if step == "append" else right(*given)

        return noted

    for step in ("append", "release", "load"):
        monkeypatch.setattr(service.store, step, noting(step, getattr(service.store, step)))
    with pytest.raises(Exception, match="division"):
        service.ask(acquire())
    service.runtime.step(service.now_ms)
    assert held == dict.fromkeys(("append", "release", "load"), (frozenset({"billing"}), True))


@pytest.mark.parametrize(
    ("access", "question"), [(Access.CLAIM, "load"), (Access.SERVE, "load"), (Access.PEEK, "peek")]
)
def test_a_round_waits_for_absent_brokers_once_not_for_each_request(tmp_path, monkeypatch, access, question):
    service = Service(tmp_path / "state.db")
    asked = []

    def no_answer(group_id):
        asked.append(group_id)
        raise BrokerNotReachable(addresses="k:9092", timeout_ms=15_000, reason="_TIMED_OUT")

    def answers():
        requests = [service.runtime.submit(group, one(join()), access) for group in ("billing", "billing", "mail")]
        service.runtime.step(service.now_ms)
        return requests

    with monkeypatch.context() as patch:
        patch.setattr(service.store, question, no_answer)
        for _ in range(2):
            assert [type(answer.exception()) for answer in answers()] == [BrokerNotReachable] * 3
    assert asked == ["billing"] * 2  # the next round asks again
    # Once they answer, a request gets its own answer again.
    assert [type(answer.exception()) for answer in answers()] == [GroupIdNotFound] * 3
    service.store.close()


def test_a_cancelled_request_is_not_carried_out(service):
    answer = service.runtime.submit("billing", one(acquire()))
    assert answer.cancel()
    service.runtime.step(service.now_ms)
    assert service.group.last_plan_id == 0


def test_on_change_is_called_after_the_change_is_durable(service):
    told = []
    service.runtime.on_change = lambda groups: told.append((groups, service.store.appends))
    appends = service.store.appends
    service.ask(acquire())
    service.ask(Heartbeat(group_id="billing", member_id="m1", member_epoch=1))  # changes nothing to wait for
    assert told == [({"billing"}, appends + 1)]
