"""The state partition loses its end (an unclean leader election), and other groups' appends grow it again: a group that
the process remembers by an offset is still found by what is left of its log."""

from typing import Any

import pytest

from coordinator.core.commands import AlterConfigs, CreateGroup
from coordinator.protocol.errors import BrokerNotReachable, CoordinatorNotAvailable, GroupTakenOver
from coordinator.protocol.messages import DescribeGroup, JoinGroup
from coordinator.service.runtime.transaction import Access
from coordinator.service.stores.kafka import kafka_store
from tests.support.partition_in_memory import Entries, Host, Reader, Writer


def alter(host: Host, group_id: str, limit: int) -> Any:
    return host.ask(AlterConfigs(configs={"share.delivery.count.limit": str(limit)}), group_id=group_id)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Entries:
    monkeypatch.setattr(kafka_store, "LogReader", Reader)
    monkeypatch.setattr(kafka_store, "GroupWriter", Writer)
    return []


def host_of(log: Entries) -> Host:
    """A host with the groups billing and other; billing has a snapshot, and records after it."""
    host = Host(log)
    for group_id in ("billing", "other"):
        host.ask(CreateGroup(incarnation=group_id[0], topic_ids=True), Access.CLAIM, group_id)
    for limit in (*range(2, 11), *range(2, 10)):
        alter(host, "billing", limit)
    return host


def lose_the_end(log: Entries, host: Host, ends_at: int) -> None:
    """The partition ends before billing's newest snapshot; appends of the other group take its offset."""
    snapshot = host.store._needed["billing"]
    del log[snapshot - 2 :]
    while len(log) <= snapshot:
        alter(host, "other", 2 + len(log) % 5)
        host.step(2_000)
    assert snapshot < len(log) < ends_at


def host_that_unloaded_billing_before(log: Entries) -> Host:
    """A host whose group billing was at rest when the partition lost its end, so that no append shows the loss."""
    host = host_of(log)
    while "billing" in host.runtime.groups:
        host.step(400_000)
        alter(host, "other", 2 + len(log) % 5)
    lose_the_end(log, host, len(log))
    return host


def incarnation(host: Host, access: Access = Access.SERVE) -> str:
    joined = host.ask(JoinGroup(group_id="billing", member_id="m", process_id="p"), access)
    return str(joined.incarnation)


def test_a_group_whose_append_shows_the_loss_continues_from_what_is_left(log: Entries) -> None:
    host = host_of(log)
    lose_the_end(log, host, host.store._open["billing"].end)
    assert isinstance(alter(host, "billing", 7), CoordinatorNotAvailable)
    host.step(2_000)
    assert incarnation(host) == "b"
    assert incarnation(Host(log, "host-2"), Access.CLAIM) == "b", "it reads the whole log"


def test_a_group_that_was_unloaded_before_the_loss_is_found_too(log: Entries) -> None:
    host = host_that_unloaded_billing_before(log)
    assert incarnation(host) == "b"


def test_a_look_at_a_group_that_was_unloaded_finds_it(log: Entries) -> None:
    host = host_that_unloaded_billing_before(log)
    assert host.ask(DescribeGroup(group_id="billing"), Access.PEEK).state == "EMPTY"


def test_a_group_that_another_coordinator_took_after_the_loss_is_read_whole(log: Entries) -> None:
    host = host_that_unloaded_billing_before(log)
    assert incarnation(Host(log, "host-2"), Access.CLAIM) == "b"
    assert incarnation(host, Access.CLAIM) == "b"


def test_a_claim_ends_with_the_load_that_it_was_made_for(log: Entries) -> None:
    """Else a later request that may take no group would take it from the coordinator that serves it by then."""
    first, second = Host(log), Host(log, "host-2")

    def away() -> None:
        raise BrokerNotReachable(addresses="localhost:9092", timeout_ms=1, reason="no broker answers")

    first.topic.verify, verify = away, first.topic.verify
    created = CreateGroup(incarnation="b", topic_ids=True)
    assert isinstance(first.ask(created, Access.CLAIM), BrokerNotReachable)
    first.topic.verify = verify
    second.ask(created, Access.CLAIM)
    assert isinstance(alter(first, "billing", 4), GroupTakenOver)
