"""MembershipLease and their lease: an attempt belongs to those who asked before it, a lease to when its attempt
began."""

from __future__ import annotations

import struct
import threading
from types import SimpleNamespace

import pytest

from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.service.fleet.membership_lease import ABANDONED_S, LeaseCheck, MembershipLease, MembershipStatus
from coordinator.service.fleet.partition_owners import Owners, client_id_of, endpoint_of
from tests.support.waiting import wait_until

LEASE_S = 6.0
INTERVAL_S = 1.2
MEMBER, REBALANCING = LeaseCheck(MembershipStatus.MEMBER), LeaseCheck(MembershipStatus.REBALANCING)
NOT_MEMBER, UNKNOWN = (
    LeaseCheck(MembershipStatus.NOT_MEMBER, "fenced"),
    LeaseCheck(MembershipStatus.UNKNOWN, "ILLEGAL_GENERATION"),
)


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s

    def go(self, seconds):
        self.now_s += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def proofs(clock):
    return MembershipLease(lease_ms=int(LEASE_S * 1000), interval_ms=int(INTERVAL_S * 1000), now=clock)


def prove(proofs, proof=MEMBER):
    number = proofs.begin()
    assert number is not None
    proofs.finish(number, proof)


def asking(proofs, timeout_s=120.0):
    """Somebody who asks for a fresh proof, in a thread; its answers."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(proofs.fresh(timeout_s)))
    before = proofs._asked
    thread.start()
    wait_until(lambda: proofs._asked > before)
    return thread, answers


def test_nothing_is_current_before_the_first_proof(proofs):
    assert not proofs.is_current()
    assert proofs.begin() is None


def test_a_lease_runs_from_when_its_attempt_began(proofs, clock):
    proofs.keep(True)
    number = proofs.begin()
    clock.go(4)
    proofs.finish(number, MEMBER)
    clock.go(1.9)
    assert proofs.is_current()
    clock.go(0.1)
    assert not proofs.is_current()


def test_a_proof_is_due_again_after_the_interval_while_something_is_owned(proofs, clock):
    proofs.keep(True)
    prove(proofs)
    assert proofs.begin() is None
    clock.go(INTERVAL_S)
    prove(proofs)
    proofs.keep(False)
    clock.go(INTERVAL_S)
    assert proofs.begin() is None


def test_a_fresh_proof_is_an_attempt_that_began_after_the_request(proofs, clock):
    proofs.keep(True)
    before = proofs.begin()
    thread, answers = asking(proofs)
    proofs.finish(before, MEMBER)
    prove(proofs, NOT_MEMBER)
    thread.join()
    assert answers == [NOT_MEMBER]


def test_an_inconclusive_proof_is_repeated(proofs, clock):
    thread, answers = asking(proofs)
    prove(proofs, UNKNOWN)
    wait_until(lambda: proofs._asked > 1)
    assert proofs.begin() is None, "not at once"
    clock.go(0.1)
    prove(proofs, REBALANCING)
    thread.join()
    assert answers == [REBALANCING]


def test_a_proof_without_an_answer_in_time_is_unknown(proofs):
    proof = proofs.fresh(0.0)
    assert proof.status is MembershipStatus.UNKNOWN
    assert "within 0 s" in proof.reason


def test_an_attempt_without_an_answer_is_given_up(proofs, clock):
    proofs.keep(True)
    lost = proofs.begin()
    clock.go(ABANDONED_S)
    newer = proofs.begin()
    assert newer is not None
    proofs.finish(lost, MEMBER)
    assert not proofs.is_current()
    proofs.finish(newer, MEMBER)
    assert proofs.is_current()


@pytest.mark.parametrize(("proof", "current"), [(REBALANCING, True), (UNKNOWN, True), (NOT_MEMBER, False)])
def test_only_a_denied_membership_ends_the_lease_before_its_time(proofs, clock, proof, current):
    proofs.keep(True)
    prove(proofs)
    clock.go(LEASE_S - 1)
    prove(proofs, proof)
    assert proofs.is_current() is current
    clock.go(1)
    assert not proofs.is_current()


def test_lost_membership_ends_the_lease_during_a_proof(proofs, clock):
    proofs.keep(True)
    prove(proofs)
    clock.go(INTERVAL_S)
    number = proofs.begin()
    proofs.void()
    assert not proofs.is_current()
    proofs.finish(number, MEMBER)
    assert not proofs.is_current()
    clock.go(INTERVAL_S)
    prove(proofs)
    assert proofs.is_current()


def test_the_end_answers_waiting_requests_and_begins_no_attempt(proofs):
    thread, answers = asking(proofs)
    proofs.end()
    thread.join()
    assert answers == [LeaseCheck(MembershipStatus.UNKNOWN, "it is leaving")]
    assert proofs.begin() is None
    assert proofs.fresh(30.0).status is MembershipStatus.UNKNOWN


def test_a_client_id_carries_the_endpoint():
    assert endpoint_of(client_id_of("[::1]:9000")) == "[::1]:9000"
    assert endpoint_of("somebody-else") is None


def test_foreign_members_own_no_partition(monkeypatch):
    members = [
        SimpleNamespace(client_id="other", assignment=assignment(("state", 0))),
        SimpleNamespace(client_id=client_id_of("h:1"), assignment=assignment(("elsewhere", 1))),
        SimpleNamespace(client_id=client_id_of("h:2"), assignment=assignment(("elsewhere", 0, 1), ("state", 2, 3))),
        SimpleNamespace(client_id=client_id_of("h:3"), assignment=b""),
    ]
    group = SimpleNamespace(members=members, state="Stable")
    admin = SimpleNamespace(list_groups=lambda name, timeout: [group])
    monkeypatch.setattr("coordinator.service.fleet.partition_owners.AdminClient", lambda _: admin)
    owners = Owners({}, "fleet", "state", 5.0)
    assert [owners.find(partition) for partition in (2, 3)] == ["h:2", "h:2"]
    for nobody in (0, 1):
        with pytest.raises(CoordinatorNotAvailable, match="fleet is Stable"):
            owners.find(nobody)


def assignment(*topics):
    """Kafka's ConsumerProtocolAssignment, version 0."""
    packed = struct.pack(">hi", 0, len(topics))
    for name, *partitions in topics:
        packed += struct.pack(
            f">h{len(name)}si{len(partitions)}i", len(name), name.encode(), len(partitions), *partitions
        )
    return packed + struct.pack(">i", -1)
