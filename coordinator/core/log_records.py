"""Log records: the results of commands. A group changes only when they are replayed.

The runtime appends the durable records, then replays all. The others hold soft state, such as sessions and lock
deadlines, with which a new owner begins anew. Offsets are inclusive; plan ids are the group's ints, without its
incarnation.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from coordinator.core.endings import Ending
from coordinator.core.left_out import LeftOutRange
from coordinator.core.record_counts import RecordTotals
from coordinator.core.release_breaker import Breaker
from coordinator.core.runs import Run
from coordinator.core.staging import StagedRun
from coordinator.protocol.values import Int64, Offset, PartitionIndex


class Record(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base class of the log records. ``durable``: the record is appended; other records are only replayed."""

    durable: ClassVar[bool] = True


class GroupCreated(Record, frozen=True):
    """The group was created. ``topic_ids``: its cluster gives topic ids."""

    incarnation: str
    topic_ids: bool


class ConfigsAltered(Record, frozen=True):
    """The group's configs from now on: all keys that are set, as texts."""

    configs: dict[str, str]


class TopicRegistered(Record, frozen=True):
    """The topic has this id from now on; a topic with an older id of the same name does not exist any more."""

    topic: str
    topic_id: str


class TopicDeleted(Record, frozen=True):
    """The topic of this id was deleted. Its records are archived, except those that members hold: their holders decide
    them. ``deleted_ms``: when the group learnt of the deletion, by the wall clock."""

    topic_id: str
    deleted_ms: Int64 = 0


class PartitionInitialized(Record, frozen=True):
    """A share partition begins at ``start_offset``; only a snapshot sets the other fields. ``archived``: an older
    version's count of ARCHIVED records that are in no run any more. ``totals``: the counts, without the records in
    runs. ``highest_count``: the highest delivery count of any record so far. ``altered_after``: the group's last plan
    id when an administrator altered the start offset (0: never)."""

    topic_id: str
    partition: PartitionIndex
    start_offset: Offset
    log_start: Offset = 0
    archived: tuple[Offset, ...] = ()
    end_offset: Offset | None = None
    highest_count: Offset = 0
    altered_after: Offset = 0
    totals: RecordTotals | None = None


class OffsetsAltered(Record, frozen=True):
    """An administrator gave share partitions new start offsets, as (partition, offset); offset None: the state of the
    share partition is deleted. No plan holds records of these share partitions any more. ``altered_after``: the group's
    last plan id."""

    topic_id: str
    starts: tuple[tuple[PartitionIndex, Offset | None], ...]
    altered_after: Offset


class PartitionDeleted(Record, frozen=True):
    """A snapshot's record of a share partition whose state an administrator deleted: what it had handed out."""

    topic_id: str
    partition: PartitionIndex
    end_offset: Offset
    highest_count: Offset
    altered_after: Offset


class GroupDeleted(Record, frozen=True):
    """The group does not exist any more. A later group of the same id keeps nothing of this one."""


class ActionDone(Record, frozen=True):
    """An administrator's action of this id was carried out, with this answer (JSON). Its effect is in the same
    append."""

    action_id: str
    answer: bytes


class MemberJoined(Record, frozen=True):
    """The member joined with a new epoch and this subscription, at ``seen_ms`` by the wall clock."""

    member_id: str
    member_epoch: Offset
    process_id: str
    fenced_processes: tuple[str, ...] = ()
    query: bool = True
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assign: dict[str, tuple[PartitionIndex, ...]] | None = None
    starting_offsets: str | None = None
    member_name: str = ""
    client_id: str = ""
    client_host: str = ""
    client_pid: Offset = 0
    seen_ms: Int64 = 0


class MemberSeen(Record, frozen=True):
    """The member sent a heartbeat at ``seen_ms``. The record is written rarely: only if the group last noted the member
    an eighth of share.member.retention.ms ago."""

    member_id: str
    seen_ms: Int64


class MembersForgotten(Record, frozen=True):
    """The group forgot members that held nothing and were away for too long. ``forgotten_epoch``: the highest epoch of
    all forgotten members; every new member gets a higher one. ``unreported_losses``: the group's from now on (None:
    unchanged)."""

    member_ids: tuple[str, ...]
    forgotten_epoch: Offset
    unreported_losses: tuple[LeftOutRange, ...] | None = None


class PartitionsForgotten(Record, frozen=True):
    """The group dropped share partitions of a topic that does not exist any more; they held no runs. Replay adds their
    counts to the group's. ``whole_topic``: the group has nothing more of the topic. Older versions dropped single share
    partitions, and their records do not have this field."""

    topic_id: str
    partitions: tuple[PartitionIndex, ...]
    whole_topic: bool = False


class TopicForgotten(Record, frozen=True):
    """A snapshot's record of a topic that the group has forgotten: its share partitions, each as (partition, end of
    what was acquired, highest delivery count of any record)."""

    topic_id: str
    topic: str
    ends: tuple[tuple[PartitionIndex, Offset, Offset], ...]


class Swept(Record, frozen=True):
    """The group has forgotten the members and topics that it could; the next such sweep is due at ``next_ms``."""

    durable: ClassVar[bool] = False
    next_ms: int


class SessionRenewed(Record, frozen=True):
    """The member's session lives until ``deadline_ms``."""

    durable: ClassVar[bool] = False
    member_id: str
    deadline_ms: int


class SessionEnded(Record, frozen=True):
    """The member's session ended. RunsChanged records before this one took the member's records away."""

    durable: ClassVar[bool] = False
    member_id: str


class MemberWaits(Record, frozen=True):
    """In an ordered group, the member found nothing but share partitions of these topics that other members hold.
    Until ``until_ms`` they leave it a part of their share partitions."""

    durable: ClassVar[bool] = False
    member_id: str
    topic_ids: tuple[str, ...]
    until_ms: int


class AssignmentMade(Record, frozen=True):
    """The group's assignment has this epoch from now on."""

    assignment_epoch: Offset


class PartitionsAssigned(Record, frozen=True):
    """The assignment, made at ``now_ms``, as (member id, topic id, partitions); members without partitions are left
    out."""

    durable: ClassVar[bool] = False
    now_ms: int
    assigned: tuple[tuple[str, str, tuple[int, ...]], ...]


class StartsAlteredBy(Record, frozen=True):
    """This administrator gave share partitions new start offsets. The log of each query's driver says who it was."""

    durable: ClassVar[bool] = False
    topic_id: str
    partitions: tuple[PartitionIndex, ...]
    by: str


class QueryEnded(Record, frozen=True):
    """How the processes of the member ended since its last completed batch, up to now; also in a snapshot. Replay of a
    PlanCompleted forgets it."""

    member_id: str
    ending: Ending


class TaskSignalled(Record, frozen=True):
    """A task of the member's query, on this host, signalled at ``now_ms`` that it works on the plan. ``hint``: what the
    task says about the work; None: its last hint stays."""

    durable: ClassVar[bool] = False
    member_id: str
    task: int
    host: str
    hint: str | None
    now_ms: int


class BatchNamed(Record, frozen=True):
    """A sink said which of Spark's batches the plan is."""

    durable: ClassVar[bool] = False
    plan_id: Offset
    batch_id: int


class RunsChanged(Record, frozen=True):
    """The records of these offsets are in these runs from now on."""

    topic_id: str
    partition: PartitionIndex
    runs: tuple[tuple[Offset, Offset, Run], ...]


class LocksRenewed(Record, frozen=True):
    """As RunsChanged, but only lock deadlines change (KIP-1222: RENEW writes nothing)."""

    durable: ClassVar[bool] = False
    topic_id: str
    partition: PartitionIndex
    runs: tuple[tuple[Offset, Offset, Run], ...]


class DeadlinesPassed(Record, frozen=True):
    """All locks whose deadline lies before ``now_ms`` were ended; ``plan_ids``: only those of these plans; None: of
    all. Times of runs that were ahead of the clock have been bounded."""

    durable: ClassVar[bool] = False
    now_ms: int
    plan_ids: tuple[int, ...] | None


class DeadlinesExtended(Record, frozen=True):
    """All locks end later by ``stalled_ms``. ``until_ms``: until then all holders have a full session timeout, as after
    a load. ``is_full``: that timeout begins now, and no present lock ends before ``until_ms``."""

    durable: ClassVar[bool] = False
    stalled_ms: int
    until_ms: int
    is_full: bool


class PlanAcquired(Record, frozen=True):
    """A member acquired these ranges. A query's acquisition is the member's newest plan.

    unreported_losses: what the logs lost while no query read it; the start of the plan reports these losses. They
        include all losses that the group had to report of the topics ``reported_topic_ids``.
    superseded_plans: plans that this one supersedes, the oldest first.
    explicit: if Spark commits the batch without reading it, its records are released.
    """

    plan_id: Offset
    member_id: str
    member_epoch: Offset
    acquired_ms: Int64
    trial: bool = False
    explicit: bool = False
    ranges: tuple[tuple[str, PartitionIndex, tuple[tuple[Offset, Offset], ...]], ...] = ()
    reported_topic_ids: tuple[str, ...] = ()
    unreported_losses: tuple[LeftOutRange, ...] = ()
    superseded_plans: tuple[Offset, ...] = ()


class RangesAdded(Record, frozen=True):
    """More ranges of the plan that the PlanAcquired or PlanKept before names. A single record would be too large."""

    plan_id: Offset
    member_id: str
    ranges: tuple[tuple[str, PartitionIndex, tuple[tuple[Offset, Offset], ...]], ...]


class PlanStarted(Record, frozen=True):
    """The plan was started in this member epoch, or only reclaimed. RunsChanged records before this one changed the
    runs that the plan holds from now on.

    started: the delivery has begun, so that a replay counts as a failure.
    reclaims: how often a later process has reclaimed the plan.
    explicit: in this attempt at the batch, records that no sink decided are released.
    data_loss: the losses that the reply reports, among them those that the group had to report of the topics
        ``reported_topic_ids``.
    unreported_losses: losses that are still to be reported.
    replaced_plan_id: the newest plan, if this superseded plan replaces it; this plan is empty then.
    fail_on_data_loss: whether a task of this attempt fails if a record is gone when the task reads.
    """

    plan_id: Offset
    member_id: str
    member_epoch: Offset
    started: bool
    reclaims: Offset
    explicit: bool = False
    data_loss: tuple[LeftOutRange, ...] = ()
    left_out: tuple[LeftOutRange, ...] = ()
    unreported_losses: tuple[LeftOutRange, ...] = ()
    reported_topic_ids: tuple[str, ...] = ()
    replaced_plan_id: Offset | None = None
    fail_on_data_loss: bool = True


class PlanStaged(Record, frozen=True):
    """Outcomes that sinks decided for the plan's records, by (topic id, partition); replay lays them over what was
    staged before. None in any field below means: unchanged.

    explicit_attempts: the plan's attempts in explicit mode in which a sink wrote.
    replaces: whether all sinks of this attempt have said that their target replaces its output of a batch.
    query_id, query_name, checkpoint: of the member's query.
    reject_window, explicit: only older versions wrote these, when each commit of a sink was judged, and had a mode.
    """

    plan_id: Offset
    member_id: str
    partitions: tuple[tuple[str, PartitionIndex, tuple[StagedRun, ...]], ...] = ()
    reject_window: tuple[Offset, Offset] | None = None
    explicit_attempts: tuple[Offset, ...] | None = None
    explicit: bool | None = None
    replaces: bool | None = None
    query_id: str | None = None
    query_name: str | None = None
    checkpoint: str | None = None


class PlanCompleted(Record, frozen=True):
    """The plan is completed; ``records`` of its records were accepted or rejected. The other fields hold from now on:
    whether the member has ``evidence`` that processing works, the member's ``breaker`` on releases, and the (decided,
    rejected) records of the group's reject ratio; a ``reject_window`` of None leaves these unchanged."""

    plan_id: Offset
    member_id: str
    records: Offset
    evidence: bool = False
    breaker: Breaker | None = None
    reject_window: tuple[int, int] | None = None


class EvidenceCleared(Record, frozen=True):
    """A record was quarantined, or failed alone for the first time: no member has evidence any more. Deliveries that
    began before this record are no evidence when they complete."""


class EvidenceUsed(Record, frozen=True):
    """A failed trial used up the member's evidence."""

    member_id: str


class LogStartMoved(Record, frozen=True):
    """The log of this partition begins at ``log_start`` now. ``archived``: how many records the RunsChanged just before
    this record archived because Kafka removed them; all were at or above the earlier log start."""

    topic_id: str
    partition: PartitionIndex
    log_start: Offset
    archived: Offset = 0


class DataLost(Record, frozen=True):
    """The log lost offsets that are archived now. With ``plan_id`` and ``member_id``, the member's newest plan held
    them, and that plan's next start reports them; without, no plan held them, and the query that acquires next reports
    them. ``lost_if_completed``: those of them that the plan's completion reports if it comes before a start.

    Both lists add to the unreported losses so far, and replay bounds the sum: one decision may have several such
    records, none of which knows the sum."""

    lost: tuple[LeftOutRange, ...]
    lost_if_completed: tuple[LeftOutRange, ...] = ()
    plan_id: Offset | None = None
    member_id: str | None = None


class PlanKept(Record, frozen=True):
    """A plan in a snapshot: PlanAcquired and PlanStarted in one. ``newest``: the plan is its member's newest.
    ``carried``: a run carries the plan's id."""

    plan_id: Offset
    member_id: str
    member_epoch: Offset
    acquired_ms: Int64
    trial: bool
    started: bool
    counts_as_evidence: bool
    newest: bool
    carried: bool
    data_loss: tuple[LeftOutRange, ...] = ()
    unreported_losses: tuple[LeftOutRange, ...] = ()
    lost_if_completed: tuple[LeftOutRange, ...] = ()
    left_out: tuple[LeftOutRange, ...] = ()
    ranges: tuple[tuple[str, PartitionIndex, tuple[tuple[Offset, Offset], ...]], ...] = ()
    reclaims: Offset = 0
    superseded_plans: tuple[Offset, ...] = ()
    explicit: bool = False
    explicit_attempts: tuple[Offset, ...] = ()
    replaces: bool | None = None
    fail_on_data_loss: bool = True


class GroupProgressKept(Record, frozen=True):
    """A snapshot's numbers of the group: the last plan id, the reject window, the highest epoch of forgotten members,
    the epoch of the assignment, and the counts of dropped share partitions (None: no share partition was dropped)."""

    last_plan_id: Offset
    decided: Offset = 0
    rejected: Offset = 0
    forgotten_epoch: Offset = 0
    assignment_epoch: Offset = 0
    dropped: RecordTotals | None = None


class MemberProgressKept(Record, frozen=True):
    """A snapshot's facts about a member: the plan that it completed last (0: none), whether it has evidence, whether a
    sink decided a record of it, its query's id, name and checkpoint, how many plans it acquired, and its breaker on
    releases."""

    member_id: str
    completed: Offset
    evidence: bool = False
    decides: bool = False
    query_id: str = ""
    query_name: str = ""
    checkpoint: str = ""
    acquisitions: Offset = 0
    breaker: Breaker | None = None
