"""Each available record is delivered within a bounded number of plans of any member that may have it, whoever else
acquires when: records that were never acquired, that came back, and that are delivered alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from coordinator.core.log_records import RunsChanged
from coordinator.core.record_state import HELD, RecordState
from coordinator.core.runs import Run
from coordinator.protocol.messages import AckBatch, Acknowledge, PartitionAcks
from tests.support.group_driver import TOPIC_ID, GroupDriver, fetched, from_snapshot

ALONE = Run(RecordState.AVAILABLE, 5, failures=5, quarantined=True)
FAILED_ALONE = ALONE._replace(failed_alone_ms=1, last_tried_ms=1)
BACK = Run(RecordState.AVAILABLE, 1, releases=1)
PARTITIONS = 3
COUNT = 6
WITHIN = 2 * 2 * PARTITIONS * COUNT + 8
"""A member acquires each waiting record within this number of plans: those delivered alone, of at most two kinds, take
every other plan."""


class World:
    """A group whose stream never rests: each turn brings more new records than a plan holds."""

    def __init__(self, queries: Sequence[str], consumers: Sequence[str] = ()) -> None:
        self.group = GroupDriver(records=20, partitions=PARTITIONS, **{"share.acquire.mode": "record_limit"})
        self.group.check_recovery = lambda: None  # type: ignore[method-assign]
        self.completed: dict[str, str] = {}
        for member in (*queries, *consumers):
            self.group.join(member, query=member in queries)
        for member in queries:
            for _ in range(2):  # two batches, so that the member has evidence
                self.turn(member)
        self.queries, self.consumers = queries, consumers

    def put(self, run: Run, count: int) -> None:
        """Let the first records of each partition be these."""
        for index in range(PARTITIONS):
            first = self.group.partition(index).end_offset
            self.group.append(
                [RunsChanged(topic_id=TOPIC_ID, partition=index, runs=((first, first + count - 1, run),))]
            )
            self.group.ends[index] = max(self.group.ends[index], first + count)

    def turn(self, member: str) -> None:
        """One plan of the member, which is processed; new records come before it."""
        self.group.now_ms += 1_000
        self.group.ends = {index: end + 20 for index, end in self.group.ends.items()}
        if member.startswith("c"):
            for first, last, count, index in self._fetch(member):
                acknowledged_in(self.group, index, first, last, count, member)
            return
        plan = self.group.next(self.completed.get(member, ""), member, limit=10).plan
        assert plan.plan_id, "there are always new records"
        self.group.start(plan.plan_id, member)
        self.completed[member] = plan.plan_id

    def _fetch(self, member: str) -> list[tuple[int, int, int, int]]:
        fetched(self.group, 10, member)
        return [
            (first, last, run.delivery_count, index)
            for index in range(PARTITIONS)
            for first, last, run in list(self.group.partition(index).runs)
            if run.state in HELD and (plan := self.group.group.plan_of(run)) is not None and plan.member_id == member
        ]

    def waiting(self, quarantined: bool) -> list[tuple[int, int]]:
        """The first record of each partition that came back, or that is delivered alone."""
        found = []
        for index in range(PARTITIONS):
            runs = self.group.partition(index).runs
            segments = runs.quarantined() if quarantined else runs.available(self.group.now_ms)
            found += [(index, segment.first) for segment in list(segments)[:1]]
        return found

    def is_available(self, index: int, offset: int) -> bool:
        segment = self.group.partition(index).runs.at(offset)
        return segment is not None and segment.run.state == RecordState.AVAILABLE

    def fresh(self) -> list[tuple[int, int]]:
        return [(index, self.group.partition(index).end_offset) for index in range(PARTITIONS)]


def acknowledged_in(group: GroupDriver, index: int, first: int, last: int, count: int, member: str) -> None:
    batches = (AckBatch(first=first, last=last, delivery_count=count, types=(1,)),)
    partitions = (PartitionAcks(topic_id=TOPIC_ID, partition=index, batches=batches),)
    epoch = group.epochs[member]
    group.run(Acknowledge(group_id="billing", member_id=member, member_epoch=epoch, partitions=partitions))


MEMBERS = {
    "one query": (("m1",), ()),
    "two queries": (("m1", "m2"), ()),
    "a query and a consumer": (("m1",), ("c1",)),
    "a consumer and a query that went away": (("m1",), ("c1", "c2")),
}


@pytest.mark.parametrize("phase", range(2))
@pytest.mark.parametrize("kinds", [(ALONE,), (FAILED_ALONE, ALONE, BACK)])
@pytest.mark.parametrize("members", MEMBERS)
def test_no_record_waits_for_ever_while_others_acquire_in_turn(
    members: str, kinds: tuple[Run, ...], phase: int
) -> None:
    """Members take turns; each record of each kind that waits is delivered within WITHIN plans of each member."""
    queries, consumers = MEMBERS[members]
    world = World(queries, consumers)
    for kind in kinds:
        world.put(kind, COUNT)
    order = list(consumers if "went away" in members else (*queries, *consumers))
    for _ in range(phase):
        world.turn(order[-1])
    judged(world, lambda turn: order[turn % len(order)], order)


@pytest.mark.parametrize("seed", range(5))
def test_no_record_waits_for_ever_in_any_order_of_members(seed: int) -> None:
    chosen = random.Random(seed)
    world = World(("m1", "m2"), ("c1",))
    for kind in chosen.sample([ALONE, FAILED_ALONE, BACK], 3):
        world.put(kind, COUNT)
    order = ["m1", "m2", "c1"]
    judged(world, lambda turn: chosen.choice(order), order)


def judged(world: World, whose: Callable[[int], str], order: list[str]) -> None:
    """Play twice WITHIN turns of each member; each record that waits first in its kind and partition is taken within
    WITHIN plans of one member."""
    since: dict[tuple[str, int, int], dict[str, int]] = {}
    for turn in range(2 * WITHIN * len(order)):
        alone, back = world.waiting(quarantined=True), world.waiting(quarantined=False)
        now = {("alone", *e) for e in alone} | {("back", *e) for e in back} | {("fresh", *e) for e in world.fresh()}
        since = {key: since.get(key, {}) for key in now}
        member = whose(turn)
        world.turn(member)
        for key, turns in since.items():
            turns[member] = turns.get(member, 0) + 1
            assert turns[member] <= WITHIN, f"{key} waits since {turns} plans"


def test_a_query_that_is_begun_anew_for_each_plan_starves_nothing() -> None:
    """A run with availableNow has one batch, and the coordinator on demand loads a snapshot for each."""
    world = World(("m1",))
    world.put(ALONE, COUNT)
    for _ in range(2 * PARTITIONS * COUNT):
        from_snapshot(world.group)
        world.group.join("m1")
        world.turn("m1")
    world.turn("m1")
    assert world.waiting(quarantined=True) == []
    assert all(partition.end_offset > 40 for partition in world.group.group.partitions.values())


def test_a_consumer_beside_a_stream_starves_nothing() -> None:
    world = World(("m1",), ("c1",))
    world.put(ALONE, COUNT)
    judged(world, lambda turn: "c1", ["c1"])


@pytest.mark.parametrize("phase", range(2))
def test_two_queries_in_turn_starve_nothing(phase: int) -> None:
    """Two queries that acquire in turn, each from partitions of its own: one has all of the records that wait."""
    world = World(("m1", "m2"))
    world.put(ALONE, COUNT)
    group, all_bounds = world.group, world.group.bounds
    quarantined, fresh = [], []
    for turn in range(phase, 4 * PARTITIONS * COUNT):
        member = ("m1", "m2")[turn % 2]
        its = range(1, PARTITIONS) if member == "m1" else range(1)
        group.bounds = lambda its=its: tuple(b for b in all_bounds() if b.partition in its)  # type: ignore
        world.turn(member)
        quarantined.append(len(world.waiting(quarantined=True)))
        fresh.append(group.partition(1).end_offset)
    assert quarantined[-1] == 0
    assert all(later > earlier for earlier, later in zip(fresh, fresh[2 * PARTITIONS :], strict=False))
