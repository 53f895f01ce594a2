"""Drives a share group as its shell does, without one: decide, append (a list of bytes), replay.

After every command the group is rebuilt from what was appended, and from a snapshot, and must come out the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from coordinator.core.commands import (
    AcquireForConsumer,
    AcquirePlan,
    AlterConfigs,
    CompletePlan,
    CreateGroup,
    DeadLettersWritten,
    Expire,
    InitializePartitions,
    MarkDeadLettersWritten,
    MoveLogStarts,
    PartitionStart,
    PlanDone,
    StageRuns,
    StartOrReclaimPlan,
    TopicWithId,
)
from coordinator.core.decide import decide
from coordinator.core.look import is_look, look
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import decode_record, encode_record, encode_records
from coordinator.core.replay import replay
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    AcquiredReply,
    JoinGroup,
    OutcomesStaged,
    PartitionAcks,
    PartitionBounds,
    PartitionOutcomes,
    PlanReply,
    Reply,
    Request,
)
from coordinator.protocol.values import OffsetRange, OutcomeRun, SharePartitionKey

TOPIC_ID = "T"
SESSION_MS = 45_000
AT_ONCE = {"share.release.backoff.ms": "0"}
"""Released records may be acquired at once, as in Kafka: no test waits for the default delay."""
UNSET = dict.fromkeys(AT_ONCE, "")
"""The default of share.release.backoff.ms."""


def durable_state(group: ShareGroup) -> list[bytes]:
    """The records of the group's snapshot, without the soft state in them (lock deadlines)."""
    records = []
    for record in snapshot_of(group):
        if type(record).__name__ == "RunsChanged":
            runs = tuple((f, last, run._replace(deadline_ms=None)) for f, last, run in record.runs)  # type: ignore
            merged: list[Any] = []
            for f, last, run in runs:
                if merged and merged[-1][1] == f - 1 and merged[-1][2] == run:
                    merged[-1] = (merged[-1][0], last, run)
                else:
                    merged.append((f, last, run))
            record = type(record)(topic_id=record.topic_id, partition=record.partition, runs=tuple(merged))  # type: ignore
        # Twice: in Python 3.10 an empty tuple made of a generator is not the default, and msgspec writes it.
        records.append(encode_record(decode_record(encode_record(record))))
    return sorted(records)


class GroupDriver:
    """One group on one topic, ``orders``, its log ``[log_start, end)`` in each partition."""

    topic_id = TOPIC_ID

    def __init__(self, *, records: int = 10_000, partitions: int = 1, **configs: str) -> None:
        self.group = ShareGroup("billing")
        self.log: list[bytes] = []
        self.now_ms = 1_000_000
        self.ends = dict.fromkeys(range(partitions), records)
        self.log_starts = dict.fromkeys(range(partitions), 0)
        self.epochs: dict[str, int] = {}
        self.run(CreateGroup(incarnation="i", topic_ids=True))
        configs = {**AT_ONCE, **configs}
        if any(configs.values()):
            self.run(AlterConfigs(configs=configs))
        self.run(
            InitializePartitions(
                topics=(TopicWithId(topic="orders", topic_id=self.topic_id),),
                starts=tuple(PartitionStart(topic_id=self.topic_id, partition=p, start_offset=0) for p in self.ends),
            )
        )

    # --- the shell

    def run(self, command: Request[Reply]) -> Reply:
        if is_look(command):
            return look(self.group, command, self.now_ms)
        decision = decide(self.group, command, self.now_ms)
        assert decision.reply is not None, "every command is answered"
        self.append(decision.records)
        return decision.reply

    def append(self, records: Iterable[Any]) -> None:
        """Appends a decision's records to the log and replays them."""
        records = tuple(records)
        self.log += [encode_record(r) for r in records if r.durable]
        for record in records:
            replay(self.group, record)
        self.check_recovery()

    def check_recovery(self) -> None:
        live = durable_state(self.group)
        assert durable_state(self.recovered()) == live
        again = ShareGroup("billing")
        for record in snapshot_of(self.group):
            replay(again, decode_record(encode_record(record)))
        assert durable_state(again) == live

    @contextlib.contextmanager
    def unchecked(self) -> Iterator[None]:
        """The recovery is checked once, after all commands in here: with each, a long log would be read as often."""
        self.check_recovery = lambda: None  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self.check_recovery
        self.check_recovery()

    def recovered(self) -> ShareGroup:
        group = ShareGroup("billing")
        for data in self.log:
            replay(group, decode_record(data))
        return group

    def crash(self) -> None:
        """The coordinator dies and another process loads what was appended."""
        self.group = self.recovered()
        self.group.loaded(self.now_ms)

    def pass_time(self, ms: int) -> None:
        """Time goes by; what is due happens when it is due."""
        until_ms = self.now_ms + ms
        while (due := self.group.next_deadline_ms()) is not None and due <= until_ms:
            self.now_ms = max(self.now_ms, due)
            self.run(Expire())
        self.now_ms = until_ms

    # --- a query's reader

    def join(self, member: str = "m1", process: str | None = None, *, query: bool = True, **fields: Any) -> int:
        epoch = self.epochs.get(member, 0)
        process = process or f"{member}-process-{epoch + 1}"
        reply = self.run(JoinGroup(group_id="billing", member_id=member, process_id=process, query=query, **fields))
        self.epochs[member] = reply.member_epoch
        return reply.member_epoch

    def bounds(self) -> tuple[PartitionBounds, ...]:
        return tuple(
            PartitionBounds(topic_id=self.topic_id, partition=p, log_start=self.log_starts[p], end=end)
            for p, end in self.ends.items()
        )

    def complete(self, number: str, member: str = "m1", **fields: Any) -> PlanDone:
        epoch = self.epochs[member]
        return self.run(CompletePlan(member_id=member, member_epoch=epoch, plan_id=number, **fields))

    def acquire(
        self, start: str = "", member: str = "m1", limit: int | None = 4_000, *, began_ms: int | None = None
    ) -> PlanReply:
        return self.run(
            AcquirePlan(
                group_id="billing",
                member_id=member,
                member_epoch=self.epochs[member],
                start=start,
                max_records=limit,
                bounds=self.bounds(),
                began_ms=began_ms,
            )
        )

    def next(self, start: str = "", member: str = "m1", limit: int | None = 4_000) -> PlanReply:
        """latestOffset(start): complete it, then acquire."""
        if start:
            self.complete(start, member)
        return self.acquire(start, member, limit)

    def start(self, plan_id: str, member: str = "m1", **fields: Any) -> PlanReply:
        """Starts or reclaims the plan, as partitions(end) does."""
        return self.run(
            StartOrReclaimPlan(
                group_id="billing",
                member_id=member,
                member_epoch=self.epochs[member],
                plan_id=plan_id,
                bounds=self.bounds(),
                **fields,
            )
        )

    def restart(self, number: str, member: str = "m1", **fields: Any) -> PlanReply:
        """The query's process dies; a new one replays the batch that ended in this plan."""
        self.join(member)
        return self.start(number, member, **fields)

    # --- a query's sink, and the writers of dead letters

    def stage(self, *runs: OutcomeRun, partition: int = 0, topic_id: str = TOPIC_ID, **fields: Any) -> OutcomesStaged:
        """The sink's commit, with the outcomes of one partition's rows."""
        outcomes = (PartitionOutcomes(topic_id=topic_id, partition=partition, runs=runs),) if runs else ()
        return self.run(StageRuns(group_id="billing", partitions=outcomes, **fields))

    def silent(self, member: str = "m1", **fields: Any) -> OutcomesStaged:
        """A commit without rows of a sink whose tasks found the member's plan."""
        newest = self.group.members[member].newest
        assert newest is not None
        return self.stage(plans={self.group.plan_id_text(newest.plan_id): newest.member_epoch}, **fields)

    def file(self, first: int, last: int, count: int = 1, partition: int = 0) -> None:
        """The dead letters of these records are written."""
        letters = DeadLettersWritten(offsets=OffsetRange(self.topic_id, partition, first, last), delivery_count=count)
        self.run(MarkDeadLettersWritten(written=(letters,)))

    def move_log_start(self, offset: int, partition: int = 0) -> None:
        self.log_starts[partition] = offset
        starts = (PartitionStart(topic_id=self.topic_id, partition=partition, start_offset=offset),)
        self.run(MoveLogStarts(starts=starts))

    # --- what a test reads

    def partition(self, partition: int = 0) -> SharePartition:
        return self.group.partitions[SharePartitionKey(self.topic_id, partition)]

    def dump(self, partition: int = 0) -> list[str]:
        """``[first..last] STATE count failures number``."""
        return [
            f"[{first}..{last}] {run.state.name} {run.delivery_count} {run.failures} {run.plan_id or '-'}"
            for first, last, run in self.partition(partition).runs
        ]


def ranges(reply: PlanReply, partition: int = 0) -> list[tuple[int, int, int]]:
    """(first, last, delivery count) of what the plan holds of a partition."""
    return [tuple(r) for p in reply.plan.partitions if p.partition == partition for r in p.ranges]  # type: ignore[misc]


def offsets(reply: PlanReply) -> int:
    """How many records the plan holds."""
    return sum(r.last - r.first + 1 for p in reply.plan.partitions for r in p.ranges)


# --- what tests begin with


def started_plan(records: int = 100, **configs: str) -> tuple[GroupDriver, str]:
    """m1 holds all records in a plan that it has started; the group, and the plan's id."""
    group = GroupDriver(records=records, **configs)
    group.join()
    plan = group.next().plan.plan_id
    group.start(plan)
    return group, plan


def from_snapshot(group: GroupDriver) -> None:
    """The log becomes a snapshot, and another process loads it."""
    group.log = encode_records(snapshot_of(group.group))
    group.crash()


def polled(group: GroupDriver, max_records: int, member: str = "c1", *, beyond: bool = False) -> AcquiredReply:
    """The answer to a ShareConsumer that acquires."""
    who = {"group_id": "billing", "member_id": member, "member_epoch": group.epochs[member]}
    return group.run(AcquireForConsumer(**who, max_records=max_records, bounds=group.bounds(), beyond=beyond))


def fetched(
    group: GroupDriver, max_records: int, member: str = "c1", *, beyond: bool = False
) -> list[tuple[int, int, int]]:
    """A ShareConsumer acquires; (first, last, delivery count) of each range."""
    reply = polled(group, max_records, member, beyond=beyond)
    return [(r.first, r.last, r.delivery_count) for p in reply.partitions for r in p.ranges]


def holding(**configs: str) -> GroupDriver:
    """A group in which the ShareConsumer c1 holds the records 0 to 9."""
    group = GroupDriver(records=10, **configs)
    group.join("c1", query=False)
    fetched(group, 10)
    return group


def acknowledged(
    group: GroupDriver, first: int, last: int, count: int, kind: int, member: str = "c1"
) -> dict[str, str]:
    """A member acknowledges one range; the errors by share partition."""
    batches = (AckBatch(first=first, last=last, delivery_count=count, types=(kind,)),)
    partitions = (PartitionAcks(topic_id=group.topic_id, partition=0, batches=batches),)
    epoch = group.epochs[member]
    return dict(
        group.run(Acknowledge(group_id="billing", member_id=member, member_epoch=epoch, partitions=partitions)).errors
    )
