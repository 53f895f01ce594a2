"""ShareConsumers with assigned partitions, of which only one asks for records; the service's clock is stepped."""

import pytest

from coordinator.protocol.messages import AcquireRecords, DescribeGroup
from coordinator.service.process.clock import Clock
from tests.support.fake_cluster import FakeCluster
from tests.support.running_service import Running

INTERVAL_MS = 1_000


class SteppedClock(Clock):
    """A clock that stands still but for its steps."""

    def __init__(self) -> None:
        self.at_ms = 1_000_000_000

    def now_ms(self) -> int:
        return self.at_ms


def shared_out(running: Running, cluster: FakeCluster, partitions: int, members: int) -> dict[str, tuple[int, ...]]:
    """By member, its partitions of ``invoices``; none of the members asks for records."""
    cluster.add("invoices", partitions, end=0)
    running.runtime.clock = clock = SteppedClock()
    for number in range(members):
        running.join(f"c{number}", query=False, topics=("invoices",), starting_offsets="earliest")
    for _ in range(2):
        clock.at_ms += INTERVAL_MS
        assert not running.ask(AcquireRecords, "c0", max_records=1, wait_ms=0).plan_id
    described = running.service.handle(DescribeGroup(group_id="billing")).members
    return {each.member_id: part.partitions for each in described for part in each.assignment}


@pytest.mark.parametrize(("partitions", "members"), [(2, 2), (6, 2), (7, 3), (3, 3)])
def test_a_consumer_that_waits_gets_what_others_leave(running, cluster, partitions, members) -> None:
    """Nobody else asks: one consumer gets all records, those of its own partitions first."""
    own = set(shared_out(running, cluster, partitions, members)["c1"])
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
    own = shared_out(running, cluster, 2, 2)
    cluster.move("invoices", 10, own["c0"][0])
    assert not running.ask(AcquireRecords, "c1", max_records=10, wait_ms=50).plan_id
    assert running.ask(AcquireRecords, "c0", max_records=10, wait_ms=50).plan_id


def test_a_consumer_gets_nothing_of_topics_to_which_it_does_not_subscribe(running, cluster) -> None:
    cluster.add("others", 1, end=0)
    running.join("c9", query=False, topics=("others",), starting_offsets="earliest")
    shared_out(running, cluster, 2, 2)
    cluster.move("others", 10)
    assert not running.ask(AcquireRecords, "c1", max_records=10, wait_ms=200).plan_id
