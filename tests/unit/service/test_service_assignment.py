"""A hundred ShareConsumers over eight partitions join, leave and come back at a service; its clock is stepped."""

from __future__ import annotations

import random

import pytest

from coordinator.protocol.messages import AcquireRecords, DescribeGroup, GroupDescription, LeaveGroup
from coordinator.service.process.clock import Clock
from tests.support.fake_cluster import FakeCluster
from tests.support.running_service import Running

MEMBERS, PARTITIONS, INTERVAL_MS, STEP_MS = 100, 8, 1_000, 20


class SteppedClock(Clock):
    """A clock that stands still but for its steps."""

    def __init__(self) -> None:
        self.at_ms = 1_000_000_000

    def now_ms(self) -> int:
        return self.at_ms


class Storm:
    """Members that come and go, one each STEP_MS, and ask for a record each time they come."""

    def __init__(self, running: Running) -> None:
        self.running, self.clock = running, SteppedClock()
        running.runtime.clock = self.clock
        self.there: set[str] = set()
        self.processes = 0

    def step(self, member: str) -> None:
        """The member leaves if it is there; else it comes, as a new process."""
        self.clock.at_ms += STEP_MS
        if member in self.there:
            self.there.remove(member)
            self.running.ask(LeaveGroup, member)
            return
        self.processes += 1
        self.running.join(member, process=f"p{self.processes}", query=False, starting_offsets="earliest")
        self.there.add(member)
        self.acquires(member)

    def acquires(self, member: str) -> int:
        """How many records it gets, of one that it asks for."""
        reply = self.running.ask(AcquireRecords, member, max_records=1, wait_ms=0)
        return sum(of.last - of.first + 1 for part in reply.partitions for of in part.ranges)

    def rest(self, ms: int) -> None:
        """Time in which nobody comes or goes."""
        for _ in range(ms // STEP_MS):
            self.clock.at_ms += STEP_MS
            self.group()
        self.acquires(min(self.there))

    def group(self) -> GroupDescription:
        return self.running.service.handle(DescribeGroup(group_id="billing"))

    def epochs(self) -> tuple[int, int]:
        """The group epoch and the assignment epoch."""
        group = self.group()
        return group.group_epoch, group.assignment_epoch

    def sharing(self) -> list[int]:
        """How many members have each partition."""
        active = [member for member in self.group().members if member.active]
        parts = [index for member in active for topic in member.assignment for index in topic.partitions]
        return [parts.count(index) for index in range(PARTITIONS)]


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add("orders", PARTITIONS, end=10_000)
    return cluster


def most_assignments(ms: int) -> int:
    """Assignments that so much time has room for."""
    return 1 + ms // INTERVAL_MS


def test_a_storm_of_a_hundred_members_settles_in_one_interval(running: Running) -> None:
    storm, chance = Storm(running), random.Random(7)
    names = [f"c{number}" for number in range(MEMBERS)]
    for name in names:
        storm.step(name)
    assert storm.epochs()[1] <= most_assignments(MEMBERS * STEP_MS)
    storm.rest(INTERVAL_MS)
    assert {12, 13} >= set(storm.sharing())
    assert all(storm.acquires(name) for name in names), "each member gets work"
    before = storm.epochs()[1]
    for _ in range(500):
        storm.step(chance.choice(names))
    in_the_storm = storm.epochs()[1] - before
    assert in_the_storm <= most_assignments(500 * STEP_MS)
    storm.rest(INTERVAL_MS)
    settled = storm.epochs()
    assert settled[0] == settled[1] <= before + in_the_storm + 1
    for name in sorted(set(names) - storm.there):
        storm.step(name)
    storm.rest(INTERVAL_MS)
    assert storm.there == set(names) and {12, 13} >= set(storm.sharing())
    assert all(storm.acquires(name) for name in names), "each member gets work again"
    settled = storm.epochs()
    storm.rest(3 * INTERVAL_MS)
    assert storm.epochs() == settled
    print(f"500 joins and departures in 10 s: {in_the_storm} assignments, {settled[1]} in all")


def shared_out(running: Running, cluster: FakeCluster, partitions: int, members: int) -> Storm:
    """Members that have the partitions of ``invoices``, and none of which asks for records."""
    cluster.add("invoices", partitions, end=0)
    storm = Storm(running)
    for number in range(members):
        running.join(f"c{number}", query=False, topics=("invoices",), starting_offsets="earliest")
        storm.there.add(f"c{number}")
    storm.rest(2 * INTERVAL_MS)
    return storm


@pytest.mark.parametrize(("partitions", "members"), [(2, 2), (6, 2), (7, 3), (3, 3)])
def test_a_consumer_that_waits_gets_what_others_leave(running, cluster, partitions, members) -> None:
    """Nobody else asks: one consumer gets all records, those of its own partitions first."""
    storm = shared_out(running, cluster, partitions, members)
    own = {part for m in storm.group().members if m.member_id == "c1" for of in m.assignment for part in of.partitions}
    for partition in range(partitions):
        cluster.move("invoices", 10, partition)
    got = []
    while len(got) < partitions:
        reply = running.ask(AcquireRecords, "c1", max_records=10, wait_ms=30_000, after=None)
        (part,) = reply.partitions
        assert [(of.first, of.last) for of in part.ranges] == [(0, 9)]
        got.append(part.partition)
    assert set(got[: len(own)]) == own and sorted(got) == list(range(partitions))


def test_the_records_of_others_are_left_to_them_for_a_while(running, cluster, monkeypatch) -> None:
    monkeypatch.setattr("coordinator.service.handlers.coordinator_service.LEFT_TO_OTHERS_S", 1e9)
    storm = shared_out(running, cluster, 2, 2)
    own = {m.member_id: m.assignment[0].partitions for m in storm.group().members}
    cluster.move("invoices", 10, own["c0"][0])
    assert not running.ask(AcquireRecords, "c1", max_records=10, wait_ms=50).plan_id
    assert running.ask(AcquireRecords, "c0", max_records=10, wait_ms=50).plan_id


def test_a_consumer_gets_nothing_of_topics_to_which_it_does_not_subscribe(running, cluster) -> None:
    cluster.add("others", 1, end=0)
    running.join("c9", query=False, topics=("others",), starting_offsets="earliest")
    shared_out(running, cluster, 2, 2)
    cluster.move("others", 10)
    assert not running.ask(AcquireRecords, "c1", max_records=10, wait_ms=200).plan_id
