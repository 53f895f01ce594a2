"""A job that is started each minute, for a long time: what its coordinators keep and write stays below a budget.

The real runtime with its transactions and its snapshots on a simulated store and clock. Each run joins, works off what
came, and is gone without a word; now and then the coordinator dies, and another one loads the log.
"""

from __future__ import annotations

import gc
import logging
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coordinator.core.commands import ArchiveDeletedTopics, PartitionStart, StageRuns
from coordinator.core.record_counts import RecordTotals
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    AcquireRecords,
    JoinGroup,
    NextPlan,
    PartitionAcks,
    PartitionOutcomes,
    PartitionPlan,
    StartPlan,
)
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from coordinator.service.brokers.partition_starts import Start
from coordinator.service.brokers.subscription import TopicIdPartition
from coordinator.service.runtime import transactions
from coordinator.service.runtime.runtime import SNAPSHOT_AFTER, CoordinatorRuntime, Transaction
from coordinator.service.runtime.transactions import Facts
from coordinator.service.stores.store import StoredRecord
from tests.simulation.broker import TOPIC
from tests.simulation.session import GROUP
from tests.simulation.simulated_store import OwnedStore, StateLog
from tests.simulation.simulated_world import Process, World
from tests.support.group_driver import AT_ONCE

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
PARTITIONS = [TopicIdPartition(TOPIC, "T0", index) for index in range(2)]
MINUTES_OF_A_TOPIC = 10
COUNTS = ("reached", "accepted", "removed", "skipped", "repeated")
RETAINED = 200
"""A partition's log keeps at most this number of records."""
RUNS_OF_A_COORDINATOR = 97
COLD_AFTER_MS = 24 * HOUR_MS
"""Snapshots come by the number of appends alone, so that the log grows as long as it can."""
LOOKS = 60
"""What is in memory is counted this number of times in a run."""
MEMBER_BYTES = 800
"""The budget in a snapshot for a member without a session: its subscription, its epoch, its last plan's number."""
MEMBER_OBJECTS = 20
REST_BYTES, REST_OBJECTS = 6_000, 1_000
"""The budget for a group without its members, in bytes of its snapshot and in Python objects."""
APPENDED_BYTES = 4 * SNAPSHOT_AFTER * 800
"""The budget for the log after its latest snapshot: a coordinator that loads the log applies four records for one
append."""


class Size(NamedTuple):
    """The sizes that a group has, or had at its largest."""

    members: int = 0
    objects: int = 0
    """The number of objects that the runtime keeps, reached from it."""
    snapshot_bytes: int = 0
    live_bytes: int = 0
    """Bytes of the log: the latest snapshot and the records after it."""

    @classmethod
    def budget(cls, members: int) -> Size:
        """The budget of a group that knows at most ``members`` members, however old it is."""
        snapshot_bytes = REST_BYTES + members * MEMBER_BYTES
        return cls(members, REST_OBJECTS + members * MEMBER_OBJECTS, snapshot_bytes, snapshot_bytes + APPENDED_BYTES)

    def check(self, budget: Size) -> None:
        """No size is beyond the budget."""
        for what, size, most in zip(self._fields, self, budget, strict=True):
            assert size <= most, f"{what}: {size} of at most {most}"


@dataclass
class Meter:
    """Hears what becomes durable, and adds up its bytes."""

    snapshots: int = 0
    snapshot_bytes: int = 0
    live_bytes: int = 0
    largest: Size = field(default_factory=Size)

    def appended(self, group_id: str, data: Sequence[bytes]) -> None:
        self.live_bytes += sum(map(len, data))
        self.note(Size(live_bytes=self.live_bytes))

    def replaced(self, group_id: str, old: Sequence[StoredRecord], new: Sequence[bytes]) -> None:
        self.snapshots += 1
        self.live_bytes = sum(map(len, new))
        self.note(Size(snapshot_bytes=self.live_bytes, live_bytes=self.live_bytes))

    def note(self, size: Size) -> None:
        self.largest = Size(*map(max, zip(self.largest, size, strict=True)))


class Job:
    """``retention_ms``: share.member.retention.ms. ``records``: how many come to each partition in a minute."""

    def __init__(self, *, retention_ms: int, records: int) -> None:
        self.world, self.meter = World(0), Meter()
        self.log = StateLog(self.world, self.meter)
        self.configs = {"share.member.retention.ms": str(retention_ms), **AT_ONCE}
        self.records = records
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.begun: set[TopicIdPartition] = set()
        self.totals = RecordTotals()
        self.runs = self.delivered = 0
        self.checkpoint = ""
        self._start_coordinator()

    def _start_coordinator(self) -> None:
        store = OwnedStore(self.log, Process(self.world, "coordinator"))
        self.runtime = CoordinatorRuntime(store, clock=self.now_ms, cold_after_ms=COLD_AFTER_MS)

    def now_ms(self) -> int:
        return self.world.now_ms

    # --- the runs

    def run_for(self, minutes: int, each: Callable[[Job], None], budget: Size) -> Size:
        """A run each minute; the largest that the group was meanwhile. AssertionError as soon as it is beyond the
        budget."""
        self.meter.largest = Size()
        for minute in range(minutes):
            self.runs += 1
            if self.runs % RUNS_OF_A_COORDINATOR == 0:
                self._start_coordinator()
            for where in self.ends:
                self.ends[where] += self.records
            each(self)
            if minute % max(1, minutes // LOOKS) == 0:
                self.meter.note(Size(members=len(self.runtime.groups[GROUP].members), objects=self.objects()))
                self.meter.largest.check(budget)
                self._check_totals()
            self._pass_time(MINUTE_MS)
        self.meter.largest.check(budget)
        return self.meter.largest

    def _check_totals(self) -> None:
        """The group's counts account for all offsets, and none falls, whatever topics are gone."""
        totals, still_there = self.runtime.groups[GROUP].totals()
        assert totals.left == still_there, f"{totals.left - still_there} offsets are not accounted for"
        fell = [name for name in COUNTS if getattr(totals, name) < getattr(self.totals, name)]
        assert not fell, f"{fell} fell from {self.totals} to {totals}"
        self.totals = totals

    def date_topic(self) -> None:
        """Another topic comes in place of the newest one, which is deleted."""
        gone = next(iter(self.ends)).topic_id
        known = [where for where in self.ends if where in self.begun]
        ends = tuple(PartitionStart(topic_id=gone, partition=p.partition, start_offset=self.ends[p]) for p in known)
        named = f"{TOPIC}-{self.runs}"
        self.ends = {TopicIdPartition(named, f"T{self.runs}", index): 0 for index in range(2)}
        self.begun.clear()
        self._ask(transactions.single_command(ArchiveDeletedTopics(topic_ids=(gone,), ends=ends)))

    def objects(self) -> int:
        """Of what the runtime keeps, without its way to the store."""
        return count_objects(value for name, value in vars(self.runtime).items() if name != "store")

    def query_run(self, member_id: str, start: str) -> str:
        """A query works off all there is, and ends; its last plan."""
        who = self._join(member_id, query=True)
        reply = self._ask(transactions.next_plan(NextPlan(**who, start=start, max_records=1_000), self._facts()))
        while reply.plan.plan_id:
            start = reply.plan.plan_id
            begin = StartPlan(**who, plan_id=start)
            facts = self._facts()
            self._ask(transactions.start_plan(begin, facts, gone=frozenset(), unsubscribed=frozenset()))
            self._stage(reply.plan.partitions)
            reply = self._ask(transactions.next_plan(NextPlan(**who, start=start, max_records=1_000), self._facts()))
        return start

    def _stage(self, partitions: Iterable[PartitionPlan]) -> None:
        """The sink releases a record that it sees for the first time, and accepts the others."""
        for part in partitions:
            first, last, count = part.ranges[0]
            self.delivered += last - first + 1
            outcome = AcknowledgeType.RELEASE if count == 1 else AcknowledgeType.ACCEPT
            runs = (OutcomeRun(first, first, count, outcome),)
            outcomes = PartitionOutcomes(topic_id=part.topic_id, partition=part.partition, runs=runs)
            self._ask(transactions.single_command(StageRuns(group_id=GROUP, partitions=(outcomes,))))

    def consumer_run(self, member_id: str) -> None:
        """A ShareConsumer accepts what it acquires, except its last batch, which it holds when it ends."""
        who = self._join(member_id, query=False)
        for _ in range(2):
            fetch = AcquireRecords(**who, max_records=3)
            reply = self._ask(transactions.acquire_records(fetch, self._facts()))
            self.delivered += sum(last - first + 1 for part in reply.partitions for first, last, _ in part.ranges)
            acks = tuple(
                PartitionAcks(
                    topic_id=part.topic_id,
                    partition=part.partition,
                    batches=tuple(
                        AckBatch(first=first, last=last, delivery_count=count, types=(int(AcknowledgeType.ACCEPT),))
                        for first, last, count in part.ranges
                    ),
                )
                for part in reply.partitions
            )
        if acks:
            self._ask(transactions.single_command(Acknowledge(**who, partitions=acks)))

    # --- inside

    def _join(self, member_id: str, *, query: bool) -> dict[str, Any]:
        process_id = f"{self.runs:032x}"
        request = JoinGroup(
            group_id=GROUP,
            member_id=member_id,
            process_id=process_id,
            query=query,
            topic_pattern=f"{TOPIC}.*",
            configs=self.configs,
        )
        starts = {where: Start(0, 0) for where in self.ends if where not in self.begun}
        self.begun |= starts.keys()
        joined = self._ask(transactions.join(request, topic_ids=True, starts=starts))
        return {"group_id": GROUP, "member_id": member_id, "member_epoch": joined.member_epoch}

    def _facts(self) -> Facts:
        log_starts = {where.topic_partition: max(0, end - RETAINED) for where, end in self.ends.items()}
        ends = {where.topic_partition: end for where, end in self.ends.items()}
        return Facts(partitions=list(self.ends), log_starts=log_starts, ends=ends)

    def _ask(self, transaction: Transaction[Any]) -> Any:
        answer = self.runtime.submit(GROUP, transaction)
        self.runtime.step(self.now_ms())
        return answer.result(timeout=0)

    def _pass_time(self, ms: int) -> None:
        """Runs each step when it is due."""
        until_ms = self.now_ms() + ms
        while (due_ms := self.runtime.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.world.now_ms = max(due_ms, self.now_ms() + 1)
            self.runtime.step(self.now_ms())
        self.world.now_ms = max(until_ms, self.now_ms())


def a_new_checkpoint_each_time(job: Job) -> None:
    """As a notebook that is run again, or a job whose checkpoint is on a disk that does not last."""
    job.query_run(f"{job.runs:036x}", "")


def dated_topics(job: Job) -> None:
    """A topic comes every ten minutes, and the one before is deleted, with what came in a minute unread."""
    if job.runs % MINUTES_OF_A_TOPIC == 0:
        job.date_topic()
    the_same_checkpoint_each_time(job)


def the_same_checkpoint_each_time(job: Job) -> None:
    job.checkpoint = job.query_run("0" * 36, job.checkpoint)


def all_kinds_in_turn(job: Job) -> None:
    """One that has its checkpoint, one that has a new one, and a ShareConsumer."""
    if job.runs % 3 == 0:
        the_same_checkpoint_each_time(job)
    elif job.runs % 3 == 1:
        a_new_checkpoint_each_time(job)
    else:
        job.consumer_run(f"{job.runs:036x}")


LOGGING = (logging.Logger, logging.Handler, logging.Manager)


def count_objects(roots: Iterable[Any]) -> int:
    """How many objects can be reached, without code, and without loggers, whose handlers keep a test's log lines."""
    return sum(1 for _ in _reached(list(roots)))


def _reached(stack: list[Any]) -> Iterator[Any]:
    seen: set[int] = set()
    code = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType)
    while stack:
        each = stack.pop()
        if id(each) not in seen and not isinstance(each, (*code, *LOGGING)):
            seen.add(id(each))
            stack.extend(gc.get_referents(each))
            yield each
