"""Requests and replies, as they go over RPC and as the core takes them. Each request names the type of its reply.

All are frozen msgspec structs, tagged with their class name. Every request of a member has the ``member_epoch``, which
is checked. A plan's ``plan_id`` is a text, ``INCARNATION.n``: the numbers of a group only rise, and no plan id is valid
in another incarnation of the group. Offsets are inclusive."""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

import msgspec

from coordinator.protocol.values import (
    AcquiredRange,
    AlteredStart,
    CappedLock,
    ClientText,
    Count,
    EndingText,
    ErrorName,
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
    """Base class of requests, replies and values inside of them."""


class Request(Message, Generic[Reply], frozen=True):
    """Base class of messages that are answered by a ``Reply``; commands of the core are among them."""


class GroupRequest(Request[Reply], Generic[Reply], frozen=True):
    """Base class of requests that name a share group."""

    group_id: str


class MemberRequest(GroupRequest[Reply], Generic[Reply], frozen=True):
    """Base class of requests of a member that has joined.

    Raises:
        UnknownMemberId: the member's session has ended.
        FencedMemberEpoch: a later process of the member has joined."""

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
    """The batch that a query reads next. ``plan_id`` is empty if nothing was acquired. ``trial``: the plan has one
    record, which is on trial, and archived if it fails."""

    plan_id: str = ""
    partitions: tuple[PartitionPlan, ...] = ()
    trial: bool = False


class LeftOut(Message, frozen=True, tag=False):
    """Offsets that a plan, or the group, goes on without. There are ``count`` offsets between ``first`` and ``last``:
    all of these, or fewer if the entry sums up scattered offsets. An entry without a topic counts the offsets of all
    partitions that are too many to name. The reasons are:

    - ``lost``: another member took the records after the session ended, or they were decided.
    - ``cut``: isolation gave the records back. ``quarantined``: they are delivered alone. ``archived``: a trial failed.
    - ``unsubscribed``: the topic is no longer in the subscription, and the records were released.
    - ``altered``: an administrator altered the group's offsets.
    - ``data_loss``: the log lost the records. ``end_unknown``: the log lost records from ``first`` on, and nobody knows
      how many, so the count is 0.
    - ``several``: the entry sums up several reasons."""

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
    """How many records were given up at the limit of tries, or for their age, for one reason, which is a Disposition in
    lower case. ``sample``: the first ranges of them, as (topic, partition, first, last)."""

    disposition: str
    count: int
    sample: tuple[tuple[str, int, int, int], ...]


class PartitionBounds(Message, frozen=True, tag=False):
    """The bounds of a partition's log now. ``end``, which is exclusive, is the high watermark, or with
    ``read_committed`` the last stable offset."""

    topic_id: str
    partition: int
    log_start: int
    end: int


class AckBatch(Message, frozen=True, tag=False):
    """Acknowledges offsets ``first..last``, which were delivered at ``delivery_count`` (the receipt). ``types``: one
    type for all offsets, or one for each (KIP-932, AcknowledgementBatches). ``reason``: the reason in the dead letters
    of rejected records. ``delay_ms``: released records are not acquired for this long; None: for the group's
    backoff."""

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
    """Work on offsets ``first..last``, which were delivered at ``delivery_count`` (the receipt), goes on. ``hint``:
    what the program says about it, up to MOST_HINT_BYTES of UTF-8; None: the last hint stays."""

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
    """What a sink needs to know.

    topics: the names of the topics that the group knows, by id. old_topics: ids of replaced topics among them.
    ends: the first offset that was never acquired, by topic id and partition.
    dead_letter_topic: empty if no dead letters are wanted. dead_letter_partitions: its number of partitions.
    copy_record: a dead letter contains the record.
    delivery_count_limit: no record with a lower delivery count is given up by a release; 0: it is not known.
    replaced: the group configs that the sink's configs changed, with their earlier values."""

    incarnation: str = ""
    topics: dict[str, str] = {}
    old_topics: tuple[str, ...] = ()
    ends: dict[str, dict[str, int]] = {}
    dead_letter_topic: str = ""
    dead_letter_partitions: int = 0
    copy_record: bool = True
    delivery_count_limit: int = 0
    replaced: dict[str, str] = {}


class OutcomesStaged(Message, frozen=True):
    """How many of the rows' records were staged, and how many were stale.

    stale_sample: some stale records, as ``topic-partition@offset (delivery count)``.
    attempt, plan_id, member_id: of the batch to which the request applies: the number of its delivery (from 0), its
        plan, and the member that holds the plan. None and empty if the request applies to no batch, and changed
        nothing.
    contradicted: how many records are released because an earlier request of the same attempt named another outcome."""

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
    """The session has begun, or goes on. Send a heartbeat at least every ``heartbeat_interval_ms``. ``configs``: the
    group's configs that are set now, as texts. The following are in the answer to a join only.

    created: the join created the group. begun: how many partitions got their start offset.
    replaced: the configs that the join changed in an existing group, with their earlier values.
    missing: topics of a ShareConsumer's subscription that do not exist."""

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
    """A query's open breaker on releases. Since ``since_ms`` sinks have released most of each batch of the query,
    ``released`` of ``records`` records in all. The query acquires nothing before ``until_ms``. ``keeps_tries``: its
    releases use up no tries, and will use up none before ``tries_kept_until_ms``."""

    since_ms: int
    until_ms: int
    released: int
    records: int
    keeps_tries: bool = True
    tries_kept_until_ms: int = 0


class PlanReply(Message, frozen=True):
    """The answer to NextPlan and StartPlan. If ``plan.plan_id`` is empty, there is nothing to acquire.

    data_loss: offsets of the plan, and of deleted topics, that the logs no longer hold. A repeated request of the same
        member epoch gets them again. A reader with failOnDataLoss fails for them once.
    isolation_level: the group's level at a StartPlan, which may have changed since the member joined.
    ordered: at a StartPlan, whether the group is ordered by partition: no task may then have a part of a partition.
    given_up: records that this request gave up at the limit of tries. The coordinator logs them as well.
    outcomes: how many records of the completed plan were accepted, released, rejected and deferred, by these words. A
        repeated request gets neither ``given_up`` nor ``outcomes`` again.
    undecided_left: if not 0, the plan is not completed yet: this many offsets that no sink decided must still be looked
        up in the log. Ask again.
    altered: the first of ``altered_total`` share partitions whose start offsets an administrator altered since the
        named plan was acquired.
    held_back: if not 0, nothing was acquired, because this many records wait for their dead letters.
    holders: in an ordered group, some members that hold the share partitions for which this member waits.
    limited_by: the key of the group by which nothing was acquired (docs/run/flow.md). retry_ms: after how many
        milliseconds that may change; 0: nobody knows.
    breaker: the query's breaker on releases, while it is open."""

    plan: Plan = Plan()
    left_out: tuple[LeftOut, ...] = ()
    data_loss: tuple[LeftOut, ...] = ()
    isolation_level: str = ""
    ordered: bool = False
    given_up: tuple[GivenUp, ...] = ()
    outcomes: dict[str, int] = {}
    undecided_left: int = 0
    altered: tuple[AlteredStart, ...] = ()
    altered_total: int = 0
    held_back: int = 0
    breaker: ReleaseBreaker | None = None
    holders: tuple[str, ...] = ()
    limited_by: str = ""
    retry_ms: int = 0


class OffsetsReply(Message, frozen=True):
    """The end offsets by topic and partition; partitions are texts, as JSON's keys are. ``now_ms``: when the offsets
    were read, by the coordinator's clock."""

    ends: dict[str, dict[str, int]]
    now_ms: int = 0


class AcquiredReply(Message, frozen=True):
    """The records that a ShareConsumer acquired under one plan id, which is empty if no record was available.

    lock_timeout_ms: how long the locks last from now on. isolation_level: the level at which to read the records.
    errors: of the request's acknowledgements, as in AcknowledgeReply. held_back, holders, limited_by, retry_ms: as in
    PlanReply.
    ordered: the group is ordered by partition: a release gives back all later records of its share partition."""

    plan_id: str = ""
    partitions: tuple[PartitionPlan, ...] = ()
    lock_timeout_ms: int = 0
    errors: dict[str, str] = {}
    isolation_level: str = ""
    held_back: int = 0
    holders: tuple[str, ...] = ()
    limited_by: str = ""
    retry_ms: int = 0
    ordered: bool = False


class AcknowledgeReply(Message, frozen=True):
    """The errors by partition; the acknowledgements of all other partitions were applied.

    done_below: start offsets of partitions in which records below were to be renewed; these records are done.
    lock_timeout_ms: how long renewed locks last, except those in ``capped``; 0 if no lock was renewed."""

    errors: dict[str, str] = {}
    done_below: dict[str, int] = {}
    capped: tuple[CappedLock, ...] = ()
    lock_timeout_ms: int = 0


class ProgressReply(Message, frozen=True):
    """By refused partition, Kafka's name of the error and the named error as text. All other signals were taken."""

    errors: dict[str, tuple[str, str]] = {}


class AwaitedRecord(Message, frozen=True, tag=False):
    """The first record of an ordered share partition that is not done, if it can't be acquired with others now. All
    later records of the share partition wait for it.

    stage: its stage of isolation.
    since_ms: when it failed alone for the first time. If it did not: when the member that holds it acquired it, or when
        it was released. None: not known.
    until_ms: it is not acquired before this time; None: it has no delay.
    member_id, client_id, client_host: the member that holds it; empty if nobody does."""

    offset: int
    stage: str = "normal"
    tries: int = 0
    since_ms: int | None = None
    until_ms: int | None = None
    member_id: str = ""
    client_id: str = ""
    client_host: str = ""

    @property
    def is_alone(self) -> bool:
        """Whether the record is delivered only alone, because it failed in all of its tries."""
        return self.stage in ("quarantined", "failed alone", "trial")

    @property
    def is_in_batch(self) -> bool:
        """Whether a member holds the record, as it holds others."""
        return bool(self.member_id) and not self.is_alone


class PartitionDescription(Message, frozen=True, tag=False):
    """A share partition as kafka-share-groups.sh shows it, with more counts.

    lag: None if the end of the log is unknown.
    archived: the records of ``archived_total`` by disposition; ``none`` are offsets without a record.
    removed, deleted: the records of ``archived_total`` that Kafka removed before they were done: by retention or
        delete-records (``removed``), or with their topic (``deleted``).
    without_dead_letter: the records that were given up while the group had no dead letter topic, by disposition.
    skipped, repeated: offsets that resets skipped, or made available again.
    archiving: records whose dead letters are not written yet. runs_total: the runs of the window.
    waits_for: in an ordered group, the record that holds up the share partition; None: there is none."""

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
    waits_for: AwaitedRecord | None = None

    @property
    def given_up(self) -> int:
        """How many records were given up. Offsets without a record are archived as well, and left out here."""
        return _given_up(self.archived)


class TopicPartitions(Message, frozen=True, tag=False):
    """Partitions of one topic, ascending."""

    topic: str
    partitions: tuple[int, ...]


class QueryEnding(Message, frozen=True, tag=False):
    """How the processes of a query ended since it last completed a batch.

    times: how many ended. first_ms, last_ms: when the first and the last of them ended, by the wall clock.
    error, text: the named error of the last one; both are empty if it ended without a named error.
    runs: a newer process of the query runs."""

    times: int
    first_ms: int
    last_ms: int
    error: str = ""
    text: str = ""
    runs: bool = False


class MemberDescription(Message, frozen=True, tag=False):
    """The description of a member.

    active: the member has a session.
    topics, topic_pattern: the subscription, by one of the two.
    assignment: some of the ``assigned_total`` partitions from which the member acquires; a query acquires from all in
        its subscription.
    breaker: a query's breaker on releases, if it is open, the query has a session, and the group has records in flight.
    client_id: the member's name, here and in all other messages about a group. That is the first that is known of
        these: the config member.name, the query's name (from a sink), client.id, the name of the application or
        program.
    client_pid: the process id; 0 if it is not known. checkpoint: the query's, once a sink has named it.
    ending: how the query's processes ended, if the query ended with a named error, or keeps ending.
    waits: in an ordered group, the member found nothing but share partitions that other members hold."""

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
    ending: QueryEnding | None = None
    waits: bool = False


class RecordCounts(Message, frozen=True, tag=False):
    """What became of the records of all share partitions that a group has or had. While the group exists, no number but
    ``still_there`` falls.

    reached: the offsets from the first start offsets to the ends of what was acquired.
    unaccounted: ``reached`` plus ``repeated`` less the other counts. Another number than 0 is a bug.

    The other counts are as in PartitionDescription."""

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
    """The description of a group.

    state: EMPTY, STABLE or DEAD (KIP-932), or UNKNOWN if no coordinator could be asked.
    group_epoch: above ``assignment_epoch`` while a new assignment of partitions to ShareConsumers is due.
    members: some of ``members_total``, those with a session first.
    records: the counts of all share partitions of the group.
    forgotten: the deleted topics that the group forgot last. By topic and partition (as text): the offset after the
        last one that the group had acquired.
    read_from: empty; or, if no coordinator runs, the store from which the state was read, in words.
    dead_letter_topic_missing: the group has members, and the dead letter topic in its config did not exist when its
        coordinator looked last, up to a minute ago.
    limited_by: the key of the rate or of the limit of records in flight, if that is used up at this moment.
    in_force: the configs that the coordinator's own defaults and bounds change (group.share.* in its file). By key: the
        value that holds instead of that in ``configs``, or instead of the key's default.
    coordinator: the coordinator that serves the group, as host:port with its process id in brackets; empty if none
        does. Only clients on the same host reach the port of a coordinator on demand."""

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
    dead_letter_topic_missing: bool = False
    limited_by: str = ""
    in_force: dict[str, str] = {}

    @property
    def all_configs(self) -> dict[str, str]:
        """The configs that hold, but for those that have their key's own default."""
        return {**self.configs, **self.in_force}

    @property
    def lag(self) -> int | None:
        """The sum of the share partitions' lags; None: the lag of one of them is unknown."""
        lags = [partition.lag for partition in self.partitions]
        return None if None in lags else sum(lag or 0 for lag in lags)


# --- requests of members, over RPC


class JoinGroup(GroupRequest[Joined], frozen=True):
    """Become a member, or begin a new session after the last one ended.

    member_epoch: None for a new process. The member's epoch is raised, durably, and the process before is fenced;
        asking again with the same ``process_id`` gets the same epoch. A number says that this process had a session in
        that epoch; it is refused (FencedMemberEpoch) if there is a higher epoch.
    query: True for a query (plans, locks as long as the session), False for a ShareConsumer (a lock per acquisition).
    topics: the names of the subscribed topics.
    configs: group configs to set; only a join that raises the epoch sets them.
    starting_offsets: for partitions that have no start offset yet. None: share.auto.offset.reset decides.
    member_name: the config member.name. client_id: client.id; without it, the name of the application or program.
    client_pid: the process id; 0 if it is not known."""

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
    """Extend the session, and with it a query's locks."""


class LeaveGroup(MemberRequest[Done], frozen=True):
    """End the session now. A query loses its locks, as after a timeout. A ShareConsumer's records are released, which
    is a try and no failure; those in progress are released after group.share.in.progress.rebalance.grace.ms."""


class ReportEnding(GroupRequest[Done], frozen=True):
    """Say with which named error a process of a query ends. Only people see it (QueryEnding). A session goes on to its
    timeout, so that a query that restarts within it keeps its batch.

    member_id, member_epoch: of the process itself. No epoch: the join of the process ``process_id`` was refused. No
    member id: a sink reports. Its query is the one that has a batch in the driver of ``client_host`` and
    ``client_pid``; if several have one, it is the query with this checkpoint.
    is_over: False if a task says it, which Spark may try again."""

    error: ErrorName
    text: EndingText
    member_id: ClientText = ""
    member_epoch: Int64 | None = None
    process_id: ClientText = ""
    client_host: ClientText = ""
    client_pid: Offset = 0
    checkpoint: ClientText = ""
    is_over: bool = True


class NextPlan(MemberRequest[PlanReply], frozen=True):
    """``latestOffset(start)``: complete ``start`` if it is the member's newest plan, then acquire the next plan.

    start: the plan id in Spark's start offset; empty for the initial offset.
    max_records: None for no limit. wait_ms: how long to wait if there are no records.
    until, began_ms: of an AvailableNow run, the ends of the logs at its start, by topic and partition, and the time of
        its start. Only records below these ends are acquired, and none that was released after that time, or delayed
        beyond it.
    """

    start: str = ""
    max_records: Offset | None = None
    wait_ms: Milliseconds = 100
    until: dict[str, dict[str, Offset]] | None = None
    began_ms: Milliseconds | None = None


class StartPlan(MemberRequest[PlanReply], frozen=True):
    """``partitions(end)``: start the plan's delivery, or, in a later process, reclaim the plan (delivery count + 1).
    The same request again in the same member epoch changes nothing.

    acknowledgement_mode: the query's own share.acknowledgement.mode; empty: the group's applies.
    logged: the plan as Spark's log holds it; None: the member has no log.
    acquired_here: this process acquired the plan and logged the answer, so each logged offset must be in the group's
        plan or left out for a reason.

    Raises:
        PlanDiffersFromLog: the group's plan is not the logged one; nothing was changed."""

    plan_id: str
    fail_on_data_loss: bool = True
    acknowledgement_mode: str = ""
    logged: tuple[PartitionPlan, ...] | None = None
    acquired_here: bool = False


class ReportProgress(MemberRequest[Done], frozen=True):
    """Say that a task of the member's query works on the plan. ``task``: Spark's id of the task, which is unique in the
    application. ``hint``: what the task says about the work, up to MOST_HINT_BYTES of UTF-8; None: the hint of the
    signal before stays. Only people see the signal. If the plan is not the query's newest, it has no effect."""

    plan_id: str
    task: Offset
    host: str = ""
    hint: str | None = None


class LatestOffsets(MemberRequest[OffsetsReply], frozen=True):
    """Each subscribed partition's end offset, for ``reportLatestOffset()`` and the ends of an AvailableNow run."""


class DescribeGroup(GroupRequest[GroupDescription], frozen=True):
    """Asks for the state of a group: offsets, members, counts of records."""


# --- requests of ShareConsumers


class AcquireRecords(MemberRequest[AcquiredReply], frozen=True):
    """Acquire for a ShareConsumer (ShareFetch).

    max_records: share.fetch.max.records (KIP-1206).
    wait_ms: how long to wait if there are no records. A request with ``acknowledgements`` does not wait.
    after: the plan id of the last reply that the consumer received; empty if it has received none; None: not checked.
        The oldest plan that was acquired after that is returned again, because its reply was lost.
    acquire_mode: the consumer's own mode; empty: the group's applies.
    acknowledgements: applied before anything is acquired.
    ahead: acquire nothing if a record is due that isolation delivers apart from others.
    without: partitions, as (topic id, partition), from which nothing is acquired."""

    max_records: Count
    wait_ms: Milliseconds = 0
    after: str | None = None
    acquire_mode: str = ""
    acknowledgements: tuple[PartitionAcks, ...] = ()
    ahead: bool = False
    without: tuple[tuple[str, PartitionIndex], ...] = ()


class Acknowledge(MemberRequest[AcknowledgeReply], frozen=True):
    """Acknowledge delivered records (ShareAcknowledge), those of each partition all or none. ``unread``: the member
    could not read the records that it releases here, so no try is counted, and the records do not wait."""

    partitions: tuple[PartitionAcks, ...]
    unread: bool = False


class MarkInProgress(MemberRequest[ProgressReply], frozen=True):
    """Say that a ShareConsumer works on these records (KAFKA-20458); the signals of each partition are taken all or
    none. A signal extends the lock of a record, up to group.share.in.progress.max.lock.extension.ms after its
    acquisition."""

    partitions: tuple[PartitionProgress, ...]


class AcknowledgeRows(MemberRequest[AcknowledgeReply], frozen=True):
    """As Acknowledge, with the records as Arrow rows after the request, for many records with different outcomes."""


# --- requests of sinks


class OpenSink(GroupRequest[SinkOpened], frozen=True):
    """Open a query's sink: set group configs, check the dead letter topic, and get what the sink needs to know."""

    configs: dict[str, str] = {}


class StageOutcomes(GroupRequest[OutcomesStaged], frozen=True):
    """Stage the outcomes in a batch's rows, durably, on the plans that carry them (docs/trust/protocol.md, "Outcomes of
    a sink"). They take effect when the plan completes. The rows come as Arrow rows after the request.

    incarnation: the group's, as in the rows' receipts; empty: not checked.
    plans: the plans of the batch, as the sink's tasks found them, with the epoch of the member whose tasks read them.
    query_id, query_name, checkpoint: of the query, for people; Spark's id. Empty: not known.
    acknowledgement_mode: the mode in the sink's options, which must be the batch's; empty: the options name none.
    replaces: the query's output of a batch replaces what an earlier attempt wrote.
    has_target: the query has an output besides dead letters and archive.
    unreadable: the driver, and no sink, rejects records that can't be read.
    rows: how many rows the batch had.
    lost_replacements: how many rejected rows had a key, value or headers of their own that could not be written, so
        that the coordinator writes the original record.
    contradicting: how many records are released because their rows named different outcomes.
    fail_on_stale: refuse the request if a row is stale, that is, if its receipt matches no live plan. If False, stale
        rows are only counted."""

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


_OfMembers: TypeAlias = JoinGroup | Heartbeat | LeaveGroup | DescribeGroup
_OfQueries: TypeAlias = ReportEnding | NextPlan | StartPlan | ReportProgress | LatestOffsets | OpenSink | StageOutcomes
_OfConsumers: TypeAlias = AcquireRecords | Acknowledge | MarkInProgress | AcknowledgeRows
AnyRequest: TypeAlias = _OfMembers | _OfQueries | _OfConsumers
_ToQueries: TypeAlias = PlanReply | OffsetsReply | SinkOpened | OutcomesStaged
_ToConsumers: TypeAlias = AcquiredReply | AcknowledgeReply | ProgressReply
AnyReply: TypeAlias = Done | Joined | GroupDescription | _ToQueries | _ToConsumers
