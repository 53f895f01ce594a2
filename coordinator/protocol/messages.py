"""Requests and replies, as they cross the RPC and as the core takes them. Each request names the type of its reply.

All are frozen msgspec structs, tagged with their class name. ``member_epoch`` is checked on every request of a member.
A plan's ``plan_id`` is text, ``INCARNATION.n``: the numbers of a group only rise, and no plan id is valid in another
incarnation of the group. Offsets are inclusive.
"""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

import msgspec

from coordinator.protocol.values import AcquiredRange, OutcomeRun

Reply = TypeVar("Reply")


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Base class of requests, replies and the values inside of them."""


class Request(Message, Generic[Reply], frozen=True):
    """Base class of messages that are answered by a ``Reply``; a command of the core is one, too."""


class GroupRequest(Request[Reply], Generic[Reply], frozen=True):
    """Base class of requests that name a share group."""

    group_id: str


class MemberRequest(GroupRequest[Reply], Generic[Reply], frozen=True):
    """Base class of requests of a member that has joined."""

    member_id: str
    member_epoch: int


# --- values inside of messages


class PartitionPlan(Message, frozen=True, tag=False):
    """The offsets of one share partition that a plan holds; ``ranges`` are ascending and disjoint."""

    topic: str
    topic_id: str
    partition: int
    ranges: tuple[AcquiredRange, ...]


class Plan(Message, frozen=True, tag=False):
    """The batch that a query reads next. ``plan_id`` is empty if nothing was acquired. ``trial``: the plan is one
    quarantined record, delivered alone."""

    plan_id: str = ""
    partitions: tuple[PartitionPlan, ...] = ()
    trial: bool = False


class LeftOut(Message, frozen=True, tag=False):
    """Offsets that a plan, or the group, continues without, and the reason: ``count`` offsets between ``first`` and
    ``last``, which are all of them, or fewer where an entry sums up scattered offsets. An entry with an empty topic
    counts the offsets of all partitions beyond the number that is named.

    reason: ``lost`` (another member took them after the session ended, or they were decided), ``cut`` (isolation
    returned them), ``quarantined``, ``archived`` (a failed trial), ``unsubscribed`` (released), ``data_loss``;
    ``end_unknown`` (data was lost from ``first`` on, and the amount is unknown: the count is 0); ``several`` where one
    entry sums up several reasons.
    """

    topic: str
    topic_id: str
    partition: int
    first: int
    last: int
    count: int
    reason: str

    def __str__(self) -> str:
        if not self.topic:
            return f"{self.count} records of other partitions"
        where = f"{self.topic}-{self.partition}"
        if self.reason == "end_unknown":
            return f"{where} what it may have had from offset {self.first} on"
        if self.count == self.last - self.first + 1:
            return f"{where} offsets {self.first} to {self.last}"
        return f"{where} {self.count} offsets between {self.first} and {self.last}"


class GivenUp(Message, frozen=True, tag=False):
    """The number of records that were given up at the delivery limit for one reason, a Disposition in lower case.
    ``sample``: the first ranges, as (topic, partition, first, last)."""

    disposition: str
    count: int
    sample: tuple[tuple[str, int, int, int], ...]


class PartitionBounds(Message, frozen=True, tag=False):
    """The bounds of a partition's log now: it holds ``[log_start, end)``. ``end`` is the high watermark, or the last
    stable offset under ``read_committed``."""

    topic_id: str
    partition: int
    log_start: int
    end: int


class AckBatch(Message, frozen=True, tag=False):
    """Acknowledge offsets ``first..last``, which were delivered at ``delivery_count`` (the receipt), each as ``types``
    says: one type for all of them, or one per offset (KIP-932, AcknowledgementBatches)."""

    first: int
    last: int
    delivery_count: int
    types: tuple[int, ...]


class PartitionAcks(Message, frozen=True, tag=False):
    """The acknowledgements of one share partition; a request names each offset at most once."""

    topic_id: str
    partition: int
    batches: tuple[AckBatch, ...]


class PartitionOutcomes(Message, frozen=True, tag=False):
    """A sink's outcomes for the records of one partition; ``runs`` are ascending and disjoint."""

    topic: str
    partition: int
    runs: tuple[OutcomeRun, ...]


# --- replies


class SinkOpened(Message, frozen=True):
    """The values that a sink works with. ``topic_ids`` of the group's topics, by name; ``ends`` by name and partition:
    the first offset that was never acquired. ``acknowledgement_mode`` decides about records that no row mentions. An
    empty ``dead_letter_topic``: no dead letters are wanted; ``dead_letter_partitions``: that topic's number of
    partitions; ``copy_record``: a dead letter contains the record."""

    incarnation: str = ""
    topic_ids: dict[str, str] = {}
    ends: dict[str, dict[str, int]] = {}
    acknowledgement_mode: str = "implicit"
    dead_letter_topic: str = ""
    dead_letter_partitions: int = 0
    copy_record: bool = True


class OutcomesStaged(Message, frozen=True):
    """The numbers of the rows' records that were staged, and that were stale; ``stale_sample`` names some stale ones as
    ``topic-partition@offset (delivery count)``. ``attempt``: the delivery of their batch, from 0, that the staged
    records belong to; None if no record was staged."""

    staged: int = 0
    stale: int = 0
    stale_sample: tuple[str, ...] = ()
    attempt: int | None = None


class Done(Message, frozen=True):
    """The request was carried out and is durable."""


class Joined(Message, frozen=True):
    """The session has begun; heartbeat at least every ``heartbeat_interval_ms``."""

    member_epoch: int
    incarnation: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    isolation_level: str = "read_uncommitted"


class PlanReply(Message, frozen=True):
    """The answer to NextPlan and StartPlan. An empty ``plan.plan_id``: there is nothing to acquire.

    ``data_loss``: offsets of the plan that the log no longer holds and that this request archived; a repeated request
    of the same member epoch gets them again. A reader with failOnDataLoss fails for them once. ``isolation_level``: the
    group's level at a StartPlan, which may have changed since the member joined. ``given_up``: records that this
    request gave up at the delivery limit; a repeated request does not get them again, and the coordinator logs them as
    well. ``undecided_left``: the plan to complete is not completed yet, since so many of the offsets that no sink
    decided must still be looked for in the log; the member asks again.
    """

    plan: Plan = Plan()
    left_out: tuple[LeftOut, ...] = ()
    data_loss: tuple[LeftOut, ...] = ()
    isolation_level: str = ""
    given_up: tuple[GivenUp, ...] = ()
    undecided_left: int = 0


class OffsetsReply(Message, frozen=True):
    """The end offsets by topic and partition; the partition is text, since JSON's keys are."""

    ends: dict[str, dict[str, int]]


class AcquiredReply(Message, frozen=True):
    """The records that a ShareConsumer acquired, under one plan id; empty: none was available."""

    plan_id: str = ""
    partitions: tuple[PartitionPlan, ...] = ()


class AcknowledgeReply(Message, frozen=True):
    """The errors by partition; all acknowledgements of a partition that is not named were applied."""

    errors: dict[str, str] = {}


class PartitionDescription(Message, frozen=True, tag=False):
    """A share partition as kafka-share-groups.sh shows it; ``lag`` is None where the end of the log is unknown.
    ``archived``: the records of ``archived_total`` by disposition; ``none`` are offsets that the log does not hold.
    ``archiving``: records whose dead letters are not written yet. ``runs``: the first of ``runs_total``."""

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    lag: int | None
    acquired: int
    archived_total: int
    archived: dict[str, int] = {}
    archiving: int = 0
    runs_total: int = 0
    runs: tuple[dict[str, int | str | bool | None], ...] = ()


class MemberDescription(Message, frozen=True, tag=False):
    """The description of a member; ``active``: it has a session."""

    member_id: str
    member_epoch: int
    active: bool
    newest_plan: str = ""
    topics: tuple[str, ...] = ()


class GroupDescription(Message, frozen=True):
    """The description of a group; state is EMPTY, STABLE or DEAD (KIP-932). ``members``: some of ``members_total``,
    those with a session first."""

    group_id: str
    state: str
    incarnation: str
    partitions: tuple[PartitionDescription, ...] = ()
    members: tuple[MemberDescription, ...] = ()
    members_total: int = 0
    configs: dict[str, str] = {}


# --- requests of members, over RPC


class JoinGroup(GroupRequest[Joined], frozen=True):
    """Become a member, or renew a membership whose session lapsed.

    ``member_epoch`` None: a new process; the member's epoch is bumped (appended first) and the process before is
    fenced, but asking again with the same ``process_id`` answers the same epoch. A number: this process had a session
    and it lapsed; refused (FencedMemberEpoch) if a higher epoch exists.
    ``query`` tells queries (plans, session-long locks) from ShareConsumers (a lock per acquisition).
    ``topics`` are the subscribed topics' names, resolved by the service to ids. ``configs`` are group configs to set.
    ``starting_offsets`` is for partitions that have no start offset yet: None takes share.auto.offset.reset.
    """

    member_id: str
    process_id: str
    member_epoch: int | None = None
    query: bool = True
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assign: dict[str, tuple[int, ...]] | None = None
    configs: dict[str, str] = {}
    starting_offsets: str | None = None
    client_id: str = ""
    client_host: str = ""


class Heartbeat(MemberRequest[Joined], frozen=True):
    """Renew the session, and with it a query's locks.

    Raises:
        UnknownMemberId: the session has ended; the member must join again.
    """


class LeaveGroup(MemberRequest[Done], frozen=True):
    """End the session now, as its timeout would later."""


class NextPlan(MemberRequest[PlanReply], frozen=True):
    """``latestOffset(start)``: complete ``start`` if it is the member's newest plan, then acquire the next one.

    ``start`` is the plan id in Spark's start offset, empty for the initial offset. ``max_records`` None: no limit.
    ``wait_ms``: how long to wait for records when there are none. ``until``: acquire only below these ends, by topic
    and partition, which are those of the start of an AvailableNow run.
    """

    start: str = ""
    max_records: int | None = None
    wait_ms: int = 100
    until: dict[str, dict[str, int]] | None = None


class StartPlan(MemberRequest[PlanReply], frozen=True):
    """``partitions(end)``: start the plan's delivery, or, in a later process, reclaim the plan (delivery count + 1).
    Idempotent for one member epoch and plan. ``acknowledgement_mode``: the query's own mode for records of the batch
    that no sink decides; empty: the group's share.acknowledgement.mode."""

    plan_id: str
    fail_on_data_loss: bool = True
    acknowledgement_mode: str = ""


class LatestOffsets(MemberRequest[OffsetsReply], frozen=True):
    """``reportLatestOffset()`` and the ends of an AvailableNow run: the end offset of each subscribed partition."""


class DescribeGroup(GroupRequest[GroupDescription], frozen=True):
    """The state of a group, for people and tests: offsets (SPSO, lag), members, in-flight runs."""


# --- requests of ShareConsumers


class AcquireRecords(MemberRequest[AcquiredReply], frozen=True):
    """Acquire for a ShareConsumer (ShareFetch). ``max_records`` is share.fetch.max.records of KIP-1206's modes."""

    max_records: int


class Acknowledge(MemberRequest[AcknowledgeReply], frozen=True):
    """Acknowledge delivered records (ShareAcknowledge): per partition all or nothing."""

    partitions: tuple[PartitionAcks, ...]


class AcknowledgeRows(MemberRequest[AcknowledgeReply], frozen=True):
    """Acknowledge, with the records as Arrow rows beside the request: for many records with different outcomes."""


# --- requests of sinks


class OpenSink(GroupRequest[SinkOpened], frozen=True):
    """Open a query's sink: set group configs, check the dead letter topic, and get the incarnation and the topic ids
    that the sink's staging is pinned to."""

    configs: dict[str, str] = {}


class StageOutcomes(GroupRequest[OutcomesStaged], frozen=True):
    """Stage what the rows of a batch said, durably, on the plans that carry them (docs/protocol.md, "Outcomes of a
    sink"); the rows are Arrow rows beside the request. It takes effect when the plan completes. Rows whose receipt
    matches no live plan are stale: they are counted, and with ``fail_on_stale`` the whole is refused. ``incarnation``
    and ``topic_ids`` (by name) are those that the sink was opened with; empty: not pinned. ``query_id`` is Spark's,
    empty where no query writes. ``acknowledgement_mode``: the sink's own, which holds for this attempt at the batch;
    empty: as its delivery began. ``replaces``: the query's output of a batch takes the place of what an earlier attempt
    wrote. ``rows`` is how many the batch had. ``lost_replacements``: rejected rows whose own key, value or headers
    could not be written, so that the coordinator writes the original."""

    incarnation: str = ""
    topic_ids: dict[str, str] = {}
    query_id: str = ""
    acknowledgement_mode: str = ""
    replaces: bool = False
    batch_id: int = -1
    rows: int = 0
    lost_replacements: int = 0
    fail_on_stale: bool = False


AnyRequest: TypeAlias = (
    JoinGroup
    | Heartbeat
    | LeaveGroup
    | NextPlan
    | StartPlan
    | LatestOffsets
    | DescribeGroup
    | AcquireRecords
    | Acknowledge
    | AcknowledgeRows
    | OpenSink
    | StageOutcomes
)
AnyReply: TypeAlias = (
    Done
    | Joined
    | PlanReply
    | OffsetsReply
    | AcquiredReply
    | AcknowledgeReply
    | GroupDescription
    | SinkOpened
    | OutcomesStaged
)
