"""Requests and replies, as they cross the RPC and as the core takes them. Each request names the type of its reply.

All are frozen msgspec structs, tagged with their class name. ``member_epoch`` is checked on every request of a member.
A plan's ``plan_id`` is text, ``INCARNATION.n``: the numbers of a group only rise, and no plan id is valid in another
incarnation of the group. Offsets are inclusive.
"""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

import msgspec

from coordinator.protocol.values import (
    AcquiredRange,
    AlteredStart,
    CappedLock,
    ClientText,
    Count,
    Int64,
    MemberId,
    Milliseconds,
    Offset,
    OutcomeRun,
    PartitionIndex,
    ReleaseDelay,
)

Reply = TypeVar("Reply")


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Base class of requests, replies and the values inside of them."""


class Request(Message, Generic[Reply], frozen=True):
    """Base class of messages that are answered by a ``Reply``. A command of the core is one as well."""


class GroupRequest(Request[Reply], Generic[Reply], frozen=True):
    """Base class of requests that name a share group."""

    group_id: str


class MemberRequest(GroupRequest[Reply], Generic[Reply], frozen=True):
    """Base class of requests of a member that has joined. They raise UnknownMemberId if its session has ended, and
    FencedMemberEpoch if a later process of the member has joined."""

    member_id: MemberId
    member_epoch: Int64


# --- values inside of messages


class PartitionPlan(Message, frozen=True, tag=False):
    """The offsets of one share partition that a plan holds; ``ranges`` are ascending and disjoint."""

    topic: str
    topic_id: str
    partition: PartitionIndex
    ranges: tuple[AcquiredRange, ...]


class Plan(Message, frozen=True, tag=False):
    """The batch that a query reads next. ``plan_id`` is empty if nothing was acquired. ``trial``: the plan's one
    record is on trial, and archived if it fails."""

    plan_id: str = ""
    partitions: tuple[PartitionPlan, ...] = ()
    trial: bool = False


class LeftOut(Message, frozen=True, tag=False):
    """Offsets that a plan, or the group, continues without, and the reason: ``count`` offsets between ``first`` and
    ``last``, which are all of them, or fewer where an entry sums up scattered offsets. An entry with an empty topic
    counts the offsets of all partitions beyond the number that is named.

    reason: ``lost`` (another member took them after the session ended, or they were decided), ``cut`` (isolation
    returned them), ``quarantined``, ``archived`` (a failed trial), ``unsubscribed`` (released), ``data_loss``,
    ``altered`` (an administrator altered the group's offsets); ``end_unknown`` (data was lost from ``first`` on, the
    amount is unknown: the count is 0); ``several`` where one entry sums up several reasons."""

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
    says: one type for all of them, or one per offset (KIP-932, AcknowledgementBatches). ``reason``: of the rejected
    ones' dead letters. ``delay_ms``: the released ones are not acquired for so long; None: for the group's backoff."""

    first: Offset
    last: Offset
    delivery_count: Count
    types: tuple[int, ...]
    reason: str = ""
    delay_ms: ReleaseDelay | None = None


class PartitionAcks(Message, frozen=True, tag=False):
    """The acknowledgements of one share partition; a request names each offset at most once."""

    topic_id: str
    partition: PartitionIndex
    batches: tuple[AckBatch, ...]


class ProgressBatch(Message, frozen=True, tag=False):
    """Offsets ``first..last``, delivered at ``delivery_count`` (the receipt), are being worked on. ``hint``: the
    program's words about it, up to MOST_HINT_BYTES of UTF-8; None: the hint of the signal before stays."""

    first: Offset
    last: Offset
    delivery_count: Count
    hint: str | None = None


class PartitionProgress(Message, frozen=True, tag=False):
    """The signals of one share partition; a request names each offset at most once."""

    topic_id: str
    partition: PartitionIndex
    batches: tuple[ProgressBatch, ...]


class PartitionOutcomes(Message, frozen=True, tag=False):
    """A sink's outcomes for the records of one share partition; ``runs`` are ascending and disjoint."""

    topic_id: str
    partition: int
    runs: tuple[OutcomeRun, ...]


# --- replies


class SinkOpened(Message, frozen=True):
    """The values that a sink works with. ``topics``: the names of the topics that the group knows, by id;
    ``old_topics``: those ids of them that the topic of that name no longer has. ``ends`` by topic id and partition: the
    first offset that was never acquired. An empty ``dead_letter_topic``: no dead letters are wanted;
    ``dead_letter_partitions``: that topic's number of partitions; ``copy_record``: a dead letter contains the record.
    ``replaced``: the group configs that the sink's own changed, with the earlier values."""

    incarnation: str = ""
    topics: dict[str, str] = {}
    old_topics: tuple[str, ...] = ()
    ends: dict[str, dict[str, int]] = {}
    dead_letter_topic: str = ""
    dead_letter_partitions: int = 0
    copy_record: bool = True
    replaced: dict[str, str] = {}


class OutcomesStaged(Message, frozen=True):
    """The numbers of the rows' records that were staged, and that were stale; ``stale_sample`` names some stale ones as
    ``topic-partition@offset (delivery count)``. ``attempt``, ``plan_id``, ``member_id``: the delivery, from 0, of the
    batch that the request speaks for, its plan and the member that holds it; None and empty: the request names no
    batch, and changed nothing. ``contradicted``: the number of records that are released since this request names
    another outcome than an earlier request of the same attempt."""

    staged: int = 0
    stale: int = 0
    stale_sample: tuple[str, ...] = ()
    attempt: int | None = None
    plan_id: str = ""
    member_id: str = ""
    contradicted: int = 0


class Done(Message, frozen=True):
    """The request was carried out and is durable."""


class Joined(Message, frozen=True):
    """The session has begun; heartbeat at least every ``heartbeat_interval_ms``. ``configs``: the group's configs that
    are set now, as texts.

    In the answer to a join only: ``created``: the join created the group; ``begun``: the partitions that got their
    start offset; ``replaced``: the configs that the join changed in an existing group, with the earlier values;
    ``missing``: the topics of a ShareConsumer that do not exist.
    """

    member_epoch: int
    incarnation: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    isolation_level: str = "read_uncommitted"
    configs: dict[str, str] = {}
    created: bool = False
    begun: int = 0
    replaced: dict[str, str] = {}
    missing: tuple[str, ...] = ()


class ReleaseBreaker(Message, frozen=True, tag=False):
    """The open breaker on releases of a query: since ``since_ms`` sinks have released most of each of its batches,
    ``released`` of ``records`` records in all. It acquires nothing before ``until_ms``. ``keeps_tries``: its releases
    use up no tries."""

    since_ms: int
    until_ms: int
    released: int
    records: int
    keeps_tries: bool = True


class PlanReply(Message, frozen=True):
    """The answer to NextPlan and StartPlan. An empty ``plan.plan_id``: there is nothing to acquire.

    ``data_loss``: offsets that the log no longer holds: of the plan, found by this request or before it, and those of
    deleted topics that the group had still to report. A repeated request of the same member epoch gets them again. A
    reader with failOnDataLoss fails for them once. ``isolation_level``: the group's level at a StartPlan, which may
    have changed since the member joined. ``given_up``: records that this request gave up at the delivery limit, which
    the coordinator logs as well. ``outcomes``: how many records of the completed plan were accepted, released and
    rejected, by these words. A repeated request gets neither again. ``undecided_left``: the plan to complete is not
    completed yet, since this many of the offsets that no sink decided must still be checked in the log; the member asks
    again. ``altered``: the first of ``altered_total`` share partitions whose start offsets an administrator altered
    since the named plan was acquired. ``held_back``: nothing was acquired, since this number of records wait for their
    dead letters. ``breaker``: the query's, while it is open.
    """

    plan: Plan = Plan()
    left_out: tuple[LeftOut, ...] = ()
    data_loss: tuple[LeftOut, ...] = ()
    isolation_level: str = ""
    given_up: tuple[GivenUp, ...] = ()
    outcomes: dict[str, int] = {}
    undecided_left: int = 0
    altered: tuple[AlteredStart, ...] = ()
    altered_total: int = 0
    held_back: int = 0
    breaker: ReleaseBreaker | None = None


class OffsetsReply(Message, frozen=True):
    """The end offsets by topic and partition; the partition is text, since JSON's keys are. ``now_ms``: the
    coordinator's time of the reading."""

    ends: dict[str, dict[str, int]]
    now_ms: int = 0


class AcquiredReply(Message, frozen=True):
    """The records that a ShareConsumer acquired, under one plan id; empty: none was available. ``lock_timeout_ms``: how
    long their locks last from now on. ``errors``: of the request's acknowledgements, as in AcknowledgeReply.
    ``isolation_level``: the group's level now, at which the records are read. ``held_back`` as in PlanReply."""

    plan_id: str = ""
    partitions: tuple[PartitionPlan, ...] = ()
    lock_timeout_ms: int = 0
    errors: dict[str, str] = {}
    isolation_level: str = ""
    held_back: int = 0


class AcknowledgeReply(Message, frozen=True):
    """The errors by partition; all others were applied. ``done_below``: start offsets below which nobody holds what was
    to be renewed. ``lock_timeout_ms``: how long renewed locks last, except those of ``capped``; 0: none was renewed."""

    errors: dict[str, str] = {}
    done_below: dict[str, int] = {}
    capped: tuple[CappedLock, ...] = ()
    lock_timeout_ms: int = 0


class ProgressReply(Message, frozen=True):
    """By partition Kafka's name of the error, and the named error as text; all signals of the others were taken."""

    errors: dict[str, tuple[str, str]] = {}


class PartitionDescription(Message, frozen=True, tag=False):
    """A share partition as kafka-share-groups.sh shows it; ``lag`` is None where the end of the log is unknown.
    ``archived``: the records of ``archived_total`` by disposition; ``none`` are offsets without a record. ``removed``,
    ``deleted``: those of ``archived_total`` that Kafka removed before they were done, by retention or delete-records,
    or with their topic. ``without_dead_letter``: the records that were given up while the group had no dead letter
    topic, by disposition. ``skipped``, ``repeated``: offsets that resets skipped, or made available again.
    ``archiving``: records whose dead letters are not written yet. ``runs_total``: the runs of its window."""

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    lag: int | None
    acquired: int
    archived_total: int
    archived: dict[str, int] = {}
    accepted: int = 0
    removed: int = 0
    deleted: int = 0
    skipped: int = 0
    repeated: int = 0
    without_dead_letter: dict[str, int] = {}
    archiving: int = 0
    runs_total: int = 0

    @property
    def given_up(self) -> int:
        """How many records were given up: offsets without a record are archived, and no records."""
        return _given_up(self.archived)


class TopicPartitions(Message, frozen=True, tag=False):
    """Partitions of one topic, ascending."""

    topic: str
    partitions: tuple[int, ...]


class MemberDescription(Message, frozen=True, tag=False):
    """The description of a member; ``active``: it has a session. ``topics`` or ``topic_pattern``: its subscription.
    ``assignment``: some of the ``assigned_total`` partitions that it acquires from; a query acquires from all of its
    subscription. ``breaker``: a query's breaker on releases, while it slows the query: it is open, the query has a
    session, and the group has records in flight. ``client_id``: the member's name, here and in all that is shown of a
    group: the config member.name, else the query's name, known once a sink has decided for it, else client.id, else the
    name of the application or program. ``client_pid``: its process, 0 if it is not known. ``checkpoint``: the query's;
    its sink tells it as well."""

    member_id: str
    member_epoch: int
    active: bool
    newest_plan: str = ""
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    client_id: str = ""
    client_host: str = ""
    client_pid: int = 0
    checkpoint: str = ""
    assigned_total: int = 0
    assignment: tuple[TopicPartitions, ...] = ()
    breaker: ReleaseBreaker | None = None


class RecordCounts(Message, frozen=True, tag=False):
    """The counts of the records of all share partitions that a group has or had, whose topics may be deleted since: by
    what became of them. No number but ``still_there`` falls while the group exists. ``reached``: their offsets from the
    first start offset to the end of what was acquired. ``unaccounted`` must be 0: ``reached`` and ``repeated`` less the
    other counts; another number is a mistake of the counts. The others are as in PartitionDescription."""

    reached: int = 0
    accepted: int = 0
    archived: dict[str, int] = {}
    removed: int = 0
    deleted: int = 0
    skipped: int = 0
    repeated: int = 0
    still_there: int = 0
    unaccounted: int = 0
    without_dead_letter: dict[str, int] = {}

    @property
    def given_up(self) -> int:
        """How many records were given up, as in PartitionDescription."""
        return _given_up(self.archived)


def _given_up(archived: dict[str, int]) -> int:
    return sum(count for disposition, count in archived.items() if disposition != "none")


class GroupDescription(Message, frozen=True):
    """The description of a group; state is EMPTY, STABLE or DEAD (KIP-932), or UNKNOWN where no coordinator could be
    asked. ``members``: some of ``members_total``, those with a session first. ``group_epoch`` is above
    ``assignment_epoch`` while the assignment of partitions to ShareConsumers is older than their last change.
    ``records``: the counts of all its share partitions. ``forgotten``: by topic and partition (as text), up to where
    the group acquired topics that are deleted, of the last ones. ``read_from``: empty, or the store in words where no
    coordinator runs and it was read. ``coordinator``: the coordinator that serves the group, as host:port and its
    process id in brackets; empty where none does. Clients reach the port of one on demand on its own host alone."""

    group_id: str
    state: str
    incarnation: str
    group_epoch: int = 0
    assignment_epoch: int = 0
    partitions: tuple[PartitionDescription, ...] = ()
    members: tuple[MemberDescription, ...] = ()
    members_total: int = 0
    configs: dict[str, str] = {}
    records: RecordCounts = RecordCounts()
    forgotten: dict[str, dict[str, int]] = {}
    read_from: str = ""
    coordinator: str = ""

    @property
    def lag(self) -> int | None:
        """The sum of the share partitions' lags; None: the lag of one of them is unknown."""
        lags = [partition.lag for partition in self.partitions]
        return None if None in lags else sum(lag or 0 for lag in lags)


# --- requests of members, over RPC


class JoinGroup(GroupRequest[Joined], frozen=True):
    """Become a member, or renew a membership whose session lapsed.

    ``member_epoch`` None: a new process; the member's epoch is bumped (appended first) and the process before is
    fenced, but asking again with the same ``process_id`` answers the same epoch. A number: this process had a session
    and it lapsed; refused (FencedMemberEpoch) if a higher epoch exists.
    ``query`` tells queries (plans, session-long locks) from ShareConsumers (a lock per acquisition).
    ``topics`` are the subscribed topics' names, resolved by the service to ids. ``configs`` are group configs to set,
    by the join that raises the epoch alone. ``starting_offsets`` is for partitions that have no start offset yet:
    None takes share.auto.offset.reset. ``member_name``: the config member.name; ``client_id``: client.id, else the
    name of the application or program; ``client_pid``: its process, 0 if it is not known."""

    member_id: MemberId
    process_id: MemberId
    member_epoch: Int64 | None = None
    query: bool = True
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assign: dict[str, tuple[PartitionIndex, ...]] | None = None
    configs: dict[str, str] = {}
    starting_offsets: str | None = None
    member_name: ClientText = ""
    client_id: ClientText = ""
    client_host: ClientText = ""
    client_pid: Offset = 0


class Heartbeat(MemberRequest[Joined], frozen=True):
    """Renew the session, and with it a query's locks."""


class LeaveGroup(MemberRequest[Done], frozen=True):
    """End the session now. A query loses its locks as by a timeout. A ShareConsumer's records are released: a try, and
    no failure; those in progress after group.share.in.progress.rebalance.grace.ms."""


class NextPlan(MemberRequest[PlanReply], frozen=True):
    """``latestOffset(start)``: complete ``start`` if it is the member's newest plan, then acquire the next one.

    ``start`` is the plan id in Spark's start offset, empty for the initial offset. ``max_records`` None: no limit.
    ``wait_ms``: how long to wait for records when there are none. ``until``, ``began_ms``: acquire only below these
    ends, by topic and partition, and only what no member has released since that time, or later than its delay then:
    both are those of the start of an AvailableNow run.
    """

    start: str = ""
    max_records: Offset | None = None
    wait_ms: Milliseconds = 100
    until: dict[str, dict[str, Offset]] | None = None
    began_ms: Milliseconds | None = None


class StartPlan(MemberRequest[PlanReply], frozen=True):
    """``partitions(end)``: start the plan's delivery, or, in a later process, reclaim the plan (delivery count + 1).
    Idempotent for one member epoch and plan. ``acknowledgement_mode``: the query's own mode for records of the batch
    that no sink decides; empty: the group's share.acknowledgement.mode.

    ``logged``: the plan as Spark's log holds it; None: the member has no log. ``acquired_here``: this process acquired
    the plan and logged the answer, so each logged offset is in the group's plan or left out for a reason.

    Raises:
        PlanDiffersFromLog: the group's plan is not the logged one; nothing was changed.
    """

    plan_id: str
    fail_on_data_loss: bool = True
    acknowledgement_mode: str = ""
    logged: tuple[PartitionPlan, ...] | None = None
    acquired_here: bool = False


class LatestOffsets(MemberRequest[OffsetsReply], frozen=True):
    """``reportLatestOffset()`` and the ends of an AvailableNow run: the end offset of each subscribed partition."""


class DescribeGroup(GroupRequest[GroupDescription], frozen=True):
    """The state of a group: offsets, members, counts of records."""


# --- requests of ShareConsumers


class AcquireRecords(MemberRequest[AcquiredReply], frozen=True):
    """Acquire for a ShareConsumer (ShareFetch). ``max_records``: share.fetch.max.records (KIP-1206). ``wait_ms``: how
    long to wait for records when there are none; a request with ``acknowledgements``, which are applied first, does not
    wait. ``after``: the plan id of the last reply that the consumer received (empty: none; None: it does not say); the
    oldest plan acquired after that is returned again, since its reply was lost. ``acquire_mode``: the consumer's own;
    empty: the group's. ``ahead``: acquire nothing if a record is due that isolation delivers apart from others.
    ``without``: partitions, as (topic id, partition), to acquire nothing from."""

    max_records: Count
    wait_ms: Milliseconds = 0
    after: str | None = None
    acquire_mode: str = ""
    acknowledgements: tuple[PartitionAcks, ...] = ()
    ahead: bool = False
    without: tuple[tuple[str, PartitionIndex], ...] = ()


class Acknowledge(MemberRequest[AcknowledgeReply], frozen=True):
    """Acknowledge delivered records (ShareAcknowledge): per partition all or nothing. ``unread``: the member could not
    read what it releases here, so no try is counted, and the records do not wait."""

    partitions: tuple[PartitionAcks, ...]
    unread: bool = False


class MarkInProgress(MemberRequest[ProgressReply], frozen=True):
    """A ShareConsumer works on these records (KAFKA-20458): per partition all or nothing. A signal extends the lock of
    a record that the member holds, up to group.share.in.progress.max.lock.extension.ms after its acquisition."""

    partitions: tuple[PartitionProgress, ...]


class AcknowledgeRows(MemberRequest[AcknowledgeReply], frozen=True):
    """Acknowledge, with the records as Arrow rows beside the request: for many records with different outcomes."""


# --- requests of sinks


class OpenSink(GroupRequest[SinkOpened], frozen=True):
    """Open a query's sink: set group configs, check the dead letter topic, and get the incarnation and the topic ids
    whose rows the sink takes."""

    configs: dict[str, str] = {}


class StageOutcomes(GroupRequest[OutcomesStaged], frozen=True):
    """Stage the outcomes in a batch's rows, durably, on the plans that carry them (docs/trust/protocol.md, "Outcomes of
    a sink"); the rows are Arrow rows beside the request. It takes effect when the plan completes. Rows whose receipt
    matches no live plan are stale: they are counted, and with ``fail_on_stale`` the whole is refused. ``incarnation``:
    the group's, which the rows' receipts name; empty: not checked. ``plans``: the plans of the batch, as the sink's
    tasks found them, with the epoch of the member whose tasks read them. ``acknowledgement_mode``: the mode that the
    sink's options name, which has to be the batch's; empty: none. ``replaces``: the query's output of a batch takes the
    place of what an earlier attempt wrote; ``has_target``: the query has an output besides dead letters and archive.
    ``unreadable``: the driver rejects records that can't be read; no sink does. ``rows`` is how many the batch had.
    ``lost_replacements``: rejected rows whose own key, value or headers could not be written, so that the coordinator
    writes the original. ``contradicting``: records whose rows named different outcomes, and are released. ``query_id``
    (Spark's), ``query_name``, ``checkpoint``: the query's, for people; empty: not known."""

    incarnation: str = ""
    plans: dict[str, int] = {}
    query_id: str = ""
    query_name: ClientText = ""
    checkpoint: ClientText = ""
    acknowledgement_mode: str = ""
    replaces: bool = False
    has_target: bool = True
    unreadable: bool = False
    batch_id: Int64 = -1
    rows: Offset = 0
    lost_replacements: Offset = 0
    contradicting: Offset = 0
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
    | MarkInProgress
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
    | ProgressReply
    | GroupDescription
    | SinkOpened
    | OutcomesStaged
)
