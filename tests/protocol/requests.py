"""Requests of members as values, and the real transactions that answer them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from coordinator.config.group_keys import PAUSED
from coordinator.core.commands import (
    AlterConfigs,
    ArchiveDeletedTopics,
    ArchiveExpired,
    CompletePlan,
    CreateGroup,
    ExpiredRecords,
    InitializePartitions,
    PartitionStart,
    StageRuns,
    TopicWithId,
)
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    AcquireRecords,
    JoinGroup,
    LeaveGroup,
    MarkInProgress,
    NextPlan,
    OpenSink,
    PartitionAcks,
    PartitionOutcomes,
    PartitionProgress,
    ProgressBatch,
    StartPlan,
)
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from coordinator.service.brokers.partition_starts import Start
from coordinator.service.brokers.subscription import TopicIdPartition
from coordinator.service.handlers import open_sink as sinks
from coordinator.service.runtime import transactions
from coordinator.service.runtime.transaction import Transaction, TransactionSteps, one
from coordinator.service.runtime.transactions import Facts
from tests.protocol.setting import TTL_MS, Setting

GROUP, TOPIC = "billing", "orders"
TOPIC_IDS = ("T", "T1", "T2")
"""The id of the first topic, and of each topic that takes its name after it."""
OPEN_SINK = "a sink is opened with"
NOTICE = "the coordinator finds that the topic was made anew, asked"
PAUSE, RESUME = "an administrator pauses all topics", "an administrator resumes all topics"
TOO_OLD = "the coordinator gives up what is too old below"
ACKS = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
    "defer": AcknowledgeType.DEFER,
}
Said = tuple[tuple[int, int, str], ...]
"""The outcomes that a sink sends for its batch's records: the record's number in its topic, delivery count, outcome."""


def number_of_log(topic_id: str, partition: int) -> int:
    """A log's number among all logs: first those of the first partition, as often as the topic was made anew."""
    return TOPIC_IDS.index(topic_id) + len(TOPIC_IDS) * partition


class Request(NamedTuple):
    """A request of a member; epoch 0: none yet. ``text``: a process id, a start or a plan. ``log_start``: what the
    broker said when it was asked, which may be old when the request is served, and so may ``topic`` be: how often the
    topic was made anew before; of a sink, before its batch was read; and ``partitions``: how many it had. ``offset``
    and ``count``: a receipt. ``said``: what a sink stages. ``mode``: the query's own acknowledgement mode; empty: the
    group's holds. ``tenure``: the owner on another host that it was sent to; 0: none."""

    kind: str
    member: str
    epoch: int
    text: str = ""
    most: int = 0
    log_start: int = 0
    offset: int = 0
    count: int = 0
    said: Said = ()
    topic: int = 0
    partitions: int = 1
    mode: str = ""
    tenure: int = 0

    def __str__(self) -> str:
        told = f" {self.text}" if self.text else ""
        told += "".join(f" {offset}:{count} {outcome}" for offset, count, outcome in self.said)
        told += f" {self.offset} at count {self.count}" if self.count else ""
        told += f" {self.offset}" if self.kind == TOO_OLD else ""
        told += f" of topic {TOPIC_IDS[self.topic]}" if self.topic else ""
        told += f" with {self.partitions} partitions" if self.partitions > 1 else ""
        told += f" in {self.mode} mode" if self.mode else ""
        told += f" for tenure {self.tenure}" if self.tenure else ""
        return f"{self.member} (epoch {self.epoch}) {self.kind}{told}" if self.member else f"{self.kind}{told}"


def transaction_of(request: Request, setting: Setting) -> Transaction[Any]:
    """The transaction that the service runs for the request."""
    who = {"group_id": GROUP, "member_id": request.member, "member_epoch": request.epoch}
    gone = frozenset(TOPIC_IDS[: request.topic])
    first, *added = (TopicIdPartition(TOPIC, TOPIC_IDS[request.topic], index) for index in range(request.partitions))
    starts = {first.topic_partition: request.log_start, **{place.topic_partition: 0 for place in added}}
    facts = Facts(partitions=[first, *added], log_starts=starts, ends=dict.fromkeys(starts, setting.records))
    if request.kind in ("join query", "join consumer"):
        query = request.kind == "join query"
        epoch = request.epoch or None
        join = JoinGroup(**{**who, "member_epoch": epoch}, process_id=request.text, query=query, topics=(TOPIC,))
        begins = {place: Start(earliest=0, policy=setting.records) for place in added}
        return transactions.join(join, topic_ids=True, starts=begins)
    if request.kind == "next":
        asked = NextPlan(**who, start=request.text, max_records=request.most, wait_ms=0)
        of_plan = transactions.bounds(facts.partitions, facts, None)
        return transactions.next_plan(asked, dataclasses.replace(facts, of_plan=of_plan))
    if request.kind == "use":
        use = StartPlan(
            **who, plan_id=request.text, fail_on_data_loss=setting.fail_on_data_loss, acknowledgement_mode=request.mode
        )
        return transactions.start_plan(use, facts, gone=gone, unsubscribed=frozenset())
    if request.kind == "complete":
        return one(CompletePlan(member_id=request.member, member_epoch=request.epoch, plan_id=request.text))
    if request.kind == "stage":
        return transactions.single_command(_staging(request, setting))
    if request.kind == OPEN_SINK:
        key, _, value = request.text.partition("=")
        return sinks._set_configs(OpenSink(group_id=GROUP, configs={key: value}))
    if request.kind in (PAUSE, RESUME, NOTICE, TOO_OLD):
        return _of_no_member(request, setting, facts)
    if request.kind == "fetch":
        return transactions.acquire_records(AcquireRecords(**who, max_records=request.most), facts)
    if request.kind == "leave":
        return transactions.single_command(LeaveGroup(**who))
    at = request.offset
    if request.kind == "signal":
        signal = ProgressBatch(first=at, last=at, delivery_count=request.count)
        signals = PartitionProgress(topic_id=TOPIC_IDS[0], partition=0, batches=(signal,))
        return transactions.single_command(MarkInProgress(**who, partitions=(signals,)))
    kind = ACKS[request.kind]
    batch = AckBatch(first=at, last=at, delivery_count=request.count, types=(kind,))
    acks = PartitionAcks(topic_id=TOPIC_IDS[0], partition=0, batches=(batch,))
    return transactions.single_command(Acknowledge(**who, partitions=(acks,)))


def _of_no_member(request: Request, setting: Setting, facts: Facts) -> Transaction[Any]:
    """The transaction of an administrator, or of the coordinator by itself."""
    if request.kind in (PAUSE, RESUME):
        return one(AlterConfigs(configs={PAUSED: "*" if request.kind == PAUSE else ""}))
    if request.kind == NOTICE:
        gone = sorted(TOPIC_IDS[: request.topic])
        ends = tuple(PartitionStart(topic_id=i, partition=0, start_offset=setting.records) for i in gone)
        return one(ArchiveDeletedTopics(topic_ids=tuple(gone), ends=ends))
    of = {"topic_id": facts.partitions[0].topic_id, "partition": facts.partitions[0].partition}
    expired = ExpiredRecords(**of, end=request.offset, read_from=0, read_end=request.offset)
    archive = ArchiveExpired(ttl_ms=TTL_MS, expired=(expired,))
    return transactions.archive_expired(dataclasses.replace(facts, expired=archive))


def _staging(request: Request, setting: Setting) -> StageRuns:
    rows: dict[int, list[OutcomeRun]] = {}
    for number, count, outcome in request.said:
        partition, offset = divmod(number, setting.records)
        if outcome != "nothing":
            rows.setdefault(partition, []).append(OutcomeRun(offset, offset, count, ACKS[outcome]))
    topic_id = TOPIC_IDS[request.topic]
    return StageRuns(
        group_id=GROUP,
        incarnation="i",
        plans={request.text: request.epoch},
        acknowledgement_mode=request.mode,
        replaces=setting.replaces,
        rows=sum(map(len, rows.values())),
        partitions=tuple(
            PartitionOutcomes(topic_id=topic_id, partition=p, runs=tuple(runs)) for p, runs in rows.items()
        ),
    )


def transaction_of_a_new_group(configs: Mapping[str, str], partitions: int) -> Transaction[Any]:
    """A group with so many partitions, which begin at 0."""

    def transaction(group: ShareGroup) -> TransactionSteps[Any]:
        yield CreateGroup(incarnation="i", topic_ids=True)
        yield AlterConfigs(configs=dict(configs))
        topics = (TopicWithId(topic=TOPIC, topic_id=TOPIC_IDS[0]),)
        starts = [PartitionStart(topic_id=TOPIC_IDS[0], partition=p, start_offset=0) for p in range(partitions)]
        return (yield InitializePartitions(topics=topics, starts=tuple(starts)))

    return transaction
