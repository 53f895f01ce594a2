"""A host takes a group from the owner on another host only if that has given it up, or was silent and wrote nothing; an
owner carries out requests of other hosts in its tenure and in their time."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.core.commands import AlterConfigs, CreateGroup
from coordinator.protocol.errors import NotCoordinator
from coordinator.protocol.host_errors import OwnedElsewhere, RequestTooLate
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.transaction import ORIGIN, Access, FromAnotherHost, one
from coordinator.service.stores.kafka import kafka_store
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.state_log.owner_state import FREE, READ, UNKNOWN, OwnerState
from tests.protocol.coordinators import OneLog
from tests.support.asked_hosts import GROUP, owner_of
from tests.support.partition_in_memory import Host, Reader, Writer

CREATE = CreateGroup(incarnation="i", topic_ids=True)
ALTER = AlterConfigs(configs={"share.delivery.count.limit": "3"})
OWNER = owner_of("one", tenure="t1")


class FencingWriter(Writer):
    """A writer whose connection and fence call what the test has put there."""

    def __init__(self, topic: Any, partition: int, group_id: str) -> None:
        super().__init__(topic, partition, group_id)
        self._topic = topic

    def connect(self) -> None:
        self._topic.at_connect()

    def fence(self) -> None:
        self._topic.at_fence()


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts, and a group that the first one owns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_store, "LogReader", Reader)
        patch.setattr(kafka_store, "GroupWriter", FencingWriter)
        log: Any = []
        calls = {"at_connect": lambda: None, "at_fence": lambda: None, "answers": 1}
        first, second = Host(log, "one", **calls), Host(log, "two", **calls)
        first.ask(CREATE, Access.CLAIM)
        yield first, second


def test_a_group_that_is_given_up_is_taken_at_once() -> None:
    with two_hosts() as (first, second):
        assert isinstance(second.ask(ALTER, Access.CLAIM), OwnedElsewhere)
        first.store.close()
        second.ask(ALTER)
        assert second.store.tenure(GROUP)


def test_a_host_that_owns_nothing_leaves_the_pruning_to_owners() -> None:
    with two_hosts() as (first, second):
        second.ask(ALTER, Access.CLAIM)
        assert (first.store.prunes, second.store.prunes) == (True, False)


def test_a_claim_looks_again_just_before_its_fence() -> None:
    with two_hosts() as (first, second):
        fences: list[str] = []
        second.living.found(GROUP, first.store.tenure(GROUP), OwnerState.SILENT, len(first.topic.log))
        second.topic.at_connect = lambda: first.ask(ALTER)
        second.topic.at_fence = lambda: fences.append(GROUP)
        assert isinstance(second.ask(ALTER, Access.CLAIM), OwnedElsewhere)
        assert not fences


def test_a_claim_looks_again_after_its_fence() -> None:
    with two_hosts() as (first, second):
        second.living.found(GROUP, first.store.tenure(GROUP), OwnerState.SILENT, len(first.topic.log))
        second.topic.at_fence = lambda: first.ask(ALTER)
        assert isinstance(second.ask(ALTER, Access.CLAIM), OwnedElsewhere)
        assert not second.store.tenure(GROUP)


def test_a_silent_owner_loses_its_group() -> None:
    with two_hosts() as (first, second):
        second.living.found(GROUP, first.store.tenure(GROUP), OwnerState.SILENT, len(first.topic.log))
        second.ask(ALTER)
        assert second.store.tenure(GROUP)


def refused(found: tuple[str, int] | None, end: int = 10) -> bool:
    """Whether another host may not take the group of OWNER, of which it has found this."""
    living = LivingOwner(owner_of("two", "p2"))
    if found is not None:
        tenure, found_end = found
        living.found(GROUP, tenure, OwnerState.SILENT, found_end)
    try:
        living.check(GROUP, OWNER, had=True, claims=True, end=end)
    except OwnedElsewhere:
        return True
    return False


def test_an_owner_that_nobody_found_gone_keeps_its_group() -> None:
    assert refused(None)
    assert refused(("t0", 10))
    assert refused(("t1", 9))
    assert not refused(("t1", 10))


def of_another_host(tenure: str, not_after_ms: int) -> tuple[BaseException | None, int]:
    """The error of a request for this tenure and up to this time, at an owner of tenure t1 when it is 1,000; and how
    many records were appended for it."""
    store = OneLog((), tenure="t1")
    runtime = CoordinatorRuntime(store, snapshot_after=1_000)  # type: ignore[arg-type]
    runtime.submit(GROUP, one(CREATE), Access.CLAIM)
    runtime.step(900)
    before = len(store.appended)
    ORIGIN.set(FromAnotherHost(tenure=tenure, not_after_ms=not_after_ms))
    answer = runtime.submit(GROUP, one(ALTER))
    ORIGIN.set(None)
    runtime.step(1_000)
    return answer.exception(), len(store.appended) - before


def test_a_request_of_another_host_is_carried_out_in_its_time() -> None:
    assert of_another_host("t1", 1_000) == (None, 1)


def test_a_request_for_another_tenure_changes_nothing() -> None:
    error, appended = of_another_host("t0", 1_000)
    assert isinstance(error, NotCoordinator)
    assert not appended


def test_a_request_that_waited_until_after_its_time_changes_nothing() -> None:
    error, appended = of_another_host("t1", 999)
    assert isinstance(error, RequestTooLate)
    assert not appended


@pytest.mark.parametrize("before", OwnerState)
@pytest.mark.parametrize("state", OwnerState)
def test_what_is_found_last_says_who_may_take_or_read_a_group(before: OwnerState, state: OwnerState) -> None:
    living = LivingOwner(owner_of("two", "p2"))
    living.found(GROUP, "t1", before, 9)
    living.found(GROUP, "t1", state, 10)
    assert living.is_unknown(GROUP) is (state in UNKNOWN)

    def takes(end: int) -> None:
        living.check(GROUP, OWNER, had=True, claims=True, end=end)

    def reads(end: int) -> None:
        living.check_look(GROUP, OWNER, end)

    for may, states in ((takes, FREE), (reads, READ)):
        with contextlib.nullcontext() if state in states else pytest.raises(OwnedElsewhere):
            may(10)
        with pytest.raises(OwnedElsewhere):
            may(11)
