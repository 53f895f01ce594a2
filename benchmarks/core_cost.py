"""The cost of the core, without a store or a network: CPU time of a contiguous range, from acquisition to its end, and
of rows with random outcomes."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from benchmarks.report import Row
from coordinator.core.commands import (
    AcquireForConsumer,
    AcquirePlan,
    CompletePlan,
    CreateGroup,
    InitializePartitions,
    PartitionStart,
    StartOrReclaimPlan,
    TopicWithId,
)
from coordinator.core.decide import decide
from coordinator.core.record_codec import encode_record
from coordinator.core.replay import replay
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import AckBatch, Acknowledge, JoinGroup, PartitionAcks, PartitionBounds
from coordinator.service.requests.acknowledged_rows import SCHEMA, partition_acks

GROUP, TOPIC_ID, MEMBER = "g", "T", "m"
LENGTHS = (10, 10_000, 1_000_000)
PARTITIONS, BATCHES = 50, 200
AT_MOST_US, AT_MOST_ROWS_S, AT_MOST_ORDERED = 30, 0.5, 1.1
ROWS = 100_000
OUTCOMES = (1, 2, 3)
NOW_MS = 1_000_000
_ACCEPT = (1,)


class Core:
    """One group with partitions of so many ``records``, run as the runtime runs it: decide, encode, replay.
    ``encoded_bytes``: of all records that would be appended."""

    def __init__(self, *, query: bool, records: int, partitions: int = 1, order: str = "none") -> None:
        self.encoded_bytes = 0
        self.group = ShareGroup(GROUP)
        self.bounds = tuple(
            PartitionBounds(topic_id=TOPIC_ID, partition=at, log_start=0, end=records) for at in range(partitions)
        )
        self.run(CreateGroup(incarnation="i", topic_ids=True))
        topics = (TopicWithId(topic="orders", topic_id=TOPIC_ID),)
        starts = tuple(PartitionStart(topic_id=TOPIC_ID, partition=at, start_offset=0) for at in range(partitions))
        self.run(InitializePartitions(topics=topics, starts=starts))
        join = JoinGroup(group_id=GROUP, member_id=MEMBER, process_id="p", query=query, configs={"share.order": order})
        self.epoch = self.run(join).member_epoch

    def run(self, command: Any, now_ms: int = NOW_MS) -> Any:
        decision = decide(self.group, command, now_ms)
        for record in decision.records:
            if record.durable:  # type: ignore[attr-defined]
                self.encoded_bytes += len(encode_record(record))  # type: ignore[arg-type]
        for record in decision.records:
            replay(self.group, record)  # type: ignore[arg-type]
        return decision.reply


def core_rows(ranges: int) -> list[Row]:
    """Returns the cost of one of ``ranges`` ranges, for the length that costs most, and of rows with random outcomes;
    medians."""
    timed = [{**_query(ranges, length), **_share_consumer(ranges, length)} for length in LENGTHS]
    rows = []
    for name in timed[0]:
        medians = [statistics.median(each[name]) for each in timed]
        by_length = ", ".join(f"{us:.1f} of {length:,}" for us, length in zip(medians, LENGTHS, strict=True))
        how = f"one range: {by_length} records; decide + encode + replay, CPU"
        rows.append(Row(name=f"core: {name}", value=max(medians), unit="µs", at_most=AT_MOST_US, how=how))
    took_s = statistics.median(_random_rows() for _ in range(5))
    how = f"{ROWS:,} records of random outcomes, from Arrow to replayed; CPU"
    rows.append(Row(name="core: acknowledge rows", value=took_s, unit="s", at_most=AT_MOST_ROWS_S, how=how))
    ratios = [_batches_us("partition") / _batches_us("none") for _ in range(5)]
    how = (
        f"share.order=partition / none, a batch of {PARTITIONS} partitions; CPU, {min(ratios):.2f} to {max(ratios):.2f}"
    )
    ratio = statistics.median(ratios)
    return [*rows, Row(name="core: a batch in order", value=ratio, at_most=AT_MOST_ORDERED, how=how)]


def _batches_us(order: str) -> float:
    """The CPU time of a query's batches, each of new records of every partition, from acquisition to completion."""
    core = Core(query=True, records=0, partitions=PARTITIONS, order=order)
    who = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": core.epoch}
    times: list[float] = []

    def batch(start: str, end: int) -> str:
        bounds = tuple(msgspec.structs.replace(each, end=end) for each in core.bounds)
        plan = core.run(AcquirePlan(**who, start=start, max_records=10**6, bounds=bounds)).plan
        assert len(plan.partitions) == PARTITIONS
        core.run(StartOrReclaimPlan(**who, plan_id=plan.plan_id, bounds=bounds))
        core.run(CompletePlan(member_id=MEMBER, member_epoch=core.epoch, plan_id=plan.plan_id))
        return str(plan.plan_id)

    number = ""
    for at in range(BATCHES):
        number = timed(times, lambda number=number, at=at: batch(number, 10 * (at + 1)))
    return statistics.median(times)


def _query(ranges: int, length: int) -> dict[str, list[float]]:
    core = Core(query=True, records=ranges * length)
    who = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": core.epoch}
    acquire: list[float] = []
    use: list[float] = []
    complete: list[float] = []
    number = ""
    for _ in range(ranges):
        next_plan = AcquirePlan(**who, start=number, max_records=length, bounds=core.bounds)
        number = timed(acquire, lambda command=next_plan: core.run(command)).plan.plan_id
        assert number
        timed(use, lambda number=number: core.run(StartOrReclaimPlan(**who, plan_id=number, bounds=core.bounds)))
        timed(
            complete,
            lambda number=number: core.run(CompletePlan(member_id=MEMBER, member_epoch=core.epoch, plan_id=number)),
        )
    return {"query acquires": acquire, "query uses its plan": use, "query completes": complete}


def _share_consumer(ranges: int, length: int) -> dict[str, list[float]]:
    core = Core(query=False, records=ranges * length)
    who = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": core.epoch}
    acquire: list[float] = []
    acknowledge: list[float] = []
    for _ in range(ranges):
        command = AcquireForConsumer(**who, max_records=length, bounds=core.bounds)
        acquired = timed(acquire, lambda command=command: core.run(command))
        acks = tuple(
            PartitionAcks(
                topic_id=TOPIC_ID,
                partition=0,
                batches=tuple(
                    AckBatch(first=first, last=last, delivery_count=count, types=_ACCEPT)
                    for first, last, count in part.ranges
                ),
            )
            for part in acquired.partitions
        )
        reply = timed(acknowledge, lambda acks=acks: core.run(Acknowledge(**who, partitions=acks)))
        assert acks and not reply.errors
    return {"ShareConsumer acquires": acquire, "ShareConsumer acknowledges": acknowledge}


def _random_rows() -> float:
    core = Core(query=False, records=ROWS)
    who: dict[str, Any] = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": core.epoch}
    core.run(AcquireForConsumer(**who, max_records=ROWS, bounds=core.bounds))
    rnd = random.Random(1)
    columns = (
        [TOPIC_ID] * ROWS,
        [0] * ROWS,
        list(range(ROWS)),
        [1] * ROWS,
        [rnd.choice(OUTCOMES) for _ in range(ROWS)],
    )
    rows = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    began_ns = time.thread_time_ns()
    reply = core.run(Acknowledge(**who, partitions=partition_acks(rows)))
    took_ns = time.thread_time_ns() - began_ns
    assert not reply.errors
    return took_ns / 1e9


def timed(us: list[float], act: Callable[[], Any]) -> Any:
    """Run ``act`` and return its result; append its CPU time to ``us``."""
    began_ns = time.thread_time_ns()
    answer = act()
    us.append((time.thread_time_ns() - began_ns) / 1000)
    return answer
