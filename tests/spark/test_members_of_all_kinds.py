"""A query of Spark, two ShareConsumers and an AsyncShareConsumer in one group over four partitions: each record has one
holder, while each member leaves by close and by SIGKILL, and comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from coordinator.admin.admin import Admin
from tests.spark.conftest import JobFactory, ProgramFactory, QueryStart
from tests.support.consumer_process import ConsumerProgram
from tests.support.group_state import describe
from tests.support.kafka_broker import KafkaBroker
from tests.support.query_spec import QuerySpec
from tests.support.share_job import ShareJob, numbers
from tests.support.spark_program import RunningQuery
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.broker]

PARTITIONS, IN_EACH, BATCH, POLL, ACCEPTS = 4, 100, 60, 10, 3
SETTINGS = {
    "share.session.timeout.ms": 10_000,  # so long waits the test for the records of what it has killed
    "share.record.lock.duration.ms": 600_000,
    "share.acquire.mode": "record_limit",
}
KINDS: dict[str, dict[str, object]] = {"one": {}, "other": {}, "async": {"asyncio": True}}

Record = tuple[int, int]


class Members:
    """The members of the group, and what they had in their hands when they left. A record is (partition, offset)."""

    def __init__(self, queue: ShareJob, folder: Path) -> None:
        self.queue, self._folder = queue, folder
        self.lives: list[ConsumerProgram] = []
        self.given_back: Counter[Record] = Counter()
        """By record, the number of times that a member held it and left."""
        self.deliveries: list[tuple[int, ...]] = []
        """Partition, offset and delivery count, of queries that left."""

    def consumer(self, kind: str, **arguments: object) -> ConsumerProgram:
        """A new life of a consumer of this kind."""
        config = {"bootstrap.servers": self.queue.bootstrap, "group.id": self.queue.group, "max.poll.records": POLL}
        settings = {"config": {**config, **SETTINGS}, "topic": self.queue.topics[0], **KINDS[kind], **arguments}
        self.lives.append(ConsumerProgram(self._folder, f"{kind}-{len(self.lives)}", settings))
        return self.lives[-1]

    def left(self, life: ConsumerProgram) -> None:
        """Note what a consumer had not accepted, that is gone."""
        self.given_back.update(offsets(life.lines("got")) - offsets(life.lines("accepted")))

    def note_query(self) -> None:
        """Note what the query holds, which leaves now."""
        with Admin({"bootstrap.servers": self.queue.bootstrap}) as admin:
            (plan,) = admin.plans(self.queue.group)
            for run in admin.all_in_flight(self.queue.group, member_id=plan.member_id, only_state=("acquired",)):
                for offset in range(run.first, run.last + 1):
                    self.given_back[run.partition, offset] += 1
                    self.deliveries.append((run.partition, offset, run.delivery_count))

    def query(self, life: str, **fields: object) -> QuerySpec:
        """The query, in a life of this name: its checkpoint is the same one."""
        return self.queue.query(life, checkpoint=str(self._folder / "checkpoint"), **fields)


def offsets(lines: list[str]) -> set[Record]:
    """The records of what a consumer printed."""
    return {receipt[:2] for receipt in map(receipt_of, lines)}  # type: ignore[misc]


def receipt_of(line: str) -> tuple[int, ...]:
    return tuple(map(int, line.split()))


def wait_work_held(query: RunningQuery) -> RunningQuery:
    query.wait(query.spec.held, "its work is held")
    return query


def test_members_of_all_kinds_leave_and_return_without_a_double(
    kafka: KafkaBroker,
    topic: Callable[..., str],
    job: JobFactory,
    program: ProgramFactory,
    start: QueryStart,
    tmp_path: Path,
) -> None:
    """Each record is accepted once, at the delivery after those whose holders left with it."""
    orders = topic("orders", partitions=PARTITIONS)
    produced = count()

    def produce(in_each: int) -> int:
        """Writes ``in_each`` records to each partition. Returns how many each has now."""
        for partition in range(PARTITIONS):
            kafka.produce(orders, [str(next(produced)) for _ in range(in_each)], partition=partition)
        return in_each

    size = produce(IN_EACH)
    members = Members(job(orders, maxOffsetsPerTrigger=BATCH, **SETTINGS), tmp_path)
    everything = tuple(numbers(PARTITIONS * IN_EACH))
    try:
        driver = program()  # it starts while the first query works in the shared session
        query = wait_work_held(start(members.query("stopped", hold=everything)))
        holding = {kind: members.consumer(kind, hold=ACCEPTS) for kind in KINDS}
        for kind, life in holding.items():
            wait_until(lambda: life.lines("holds"), what=f"{life!r} holds records")  # noqa: B023
            life.close()
            members.left(life)
            holding[kind] = members.consumer(kind, hold=ACCEPTS)
        members.note_query()
        query.stop()
        wait_work_held(driver.start_query(members.query("killed", hold=everything)))
        working = {}
        for kind, life in holding.items():
            wait_until(lambda: life.lines("holds"), what=f"{life!r} holds records")  # noqa: B023
            life.kill()
            members.left(life)
            working[kind] = members.consumer(kind)
        members.note_query()
        driver.kill()
        query = start(members.query("back")).wait_written()  # its unfinished batch, or what is left of it

        def all_done() -> bool:
            group = describe(members.queue)
            return all(group.start_offset(orders, partition) == size for partition in range(PARTITIONS))

        query.wait(all_done, "all records are done")
        while not all(life.lines("accepted") for life in working.values()):
            size += produce(10)  # the others may have been faster
            query.wait(all_done, "all records are done")
        for life in working.values():
            life.close()
    finally:
        for life in members.lives:
            life.kill()
    assert describe(members.queue).archived() == 0
    check(members, {(partition, offset) for partition in range(PARTITIONS) for offset in range(size)})


def check(members: Members, everything: set[Record]) -> None:
    """Each delivery had one holder; each record was accepted once, at the delivery after those that were given back."""
    rows = members.queue.output().rows
    written = [
        tuple(map(int, row)) for row in zip(rows["partition"], rows["offset"], rows["deliveryCount"], strict=True)
    ]
    got = [receipt_of(line) for life in members.lives for line in life.lines("got")]
    deliveries = Counter([*got, *members.deliveries, *written])
    assert not [delivery for delivery, holders in deliveries.items() if holders > 1], "a delivery has one holder"
    assert not [life for life in members.lives if life.lines("refused")]
    accepted = [*(receipt_of(line) for life in members.lives for line in life.lines("accepted")), *written]
    assert sorted(receipt[:2] for receipt in accepted) == sorted(everything), "each record is accepted once"
    expected = {(*record, 1 + members.given_back[record]) for record in everything}
    assert set(accepted) == expected, "records come again only if their holder left with them"
