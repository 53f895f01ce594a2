"""Log records: the results of commands. A group changes only when they are replayed.

The runtime appends the durable ones, then replays all of them. The others carry soft state, which a new owner begins
anew: sessions and lock deadlines. Offsets are inclusive; plan ids are the group's ints, without its incarnation.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from coordinator.core.left_out import LeftOutRange
from coordinator.core.record_counts import RecordTotals
from coordinator.core.release_breaker import Breaker
from coordinator.core.runs import Run
from coordinator.core.staging import StagedRun
from coordinator.protocol.values import Int64, Offset, PartitionIndex


class _Record(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True, forbid_unknown_fields=True):
    durable: ClassVar[bool] = True


class GroupCreated(_Record, frozen=True):
    """The group was created; ``topic_ids``: its cluster gives topic ids."""

    incarnation: str
    topic_ids: bool


class ConfigsAltered(_Record, frozen=True):
    """The group's configs from now on: all keys that are set, as texts."""

    configs: dict[str, str]


class TopicRegistered(_Record, frozen=True):
    """The topic has this id from now on; a topic with an older id of the same name does not exist any more."""

    topic: str
    topic_id: str


class TopicDeleted(_Record, frozen=True):
    """The topic of this id was deleted. Its records are archived; those that are acquired stay their holders' to
    decide. ``deleted_ms``: when the group learnt of it, by the wall clock."""

    topic_id: str
    deleted_ms: Int64 = 0


class PartitionInitialized(_Record, frozen=True):
    """A share partition begins at ``start_offset``; the other fields are a snapshot's. ``archived``: an older
    version's count of ARCHIVED records, in no run any more. ``totals``: the counts, without the records in runs.
    ``highest_count``: the highest delivery count of any record so far. ``altered_after``: the group's last plan id when
    an administrator altered the start offset (0: never)."""

    topic_id: str
    partition: PartitionIndex
    start_offset: Offset
    log_start: Offset = 0
    archived: tuple[Offset, ...] = ()
    end_offset: Offset | None = None
    highest_count: Offset = 0
    altered_after: Offset = 0
    totals: RecordTotals | None = None


class OffsetsAltered(_Record, frozen=True):
    """An administrator gave share partitions new start offsets, as (partition, offset); offset None: their state is
    deleted. No plan holds a record of theirs any more. ``altered_after``: the group's last plan id."""

    topic_id: str
    starts: tuple[tuple[PartitionIndex, Offset | None], ...]
    altered_after: Offset


class StartsAlteredBy(_Record, frozen=True):
    """This administrator gave share partitions new start offsets. The log of a query's driver names the
    administrator."""

    durable: ClassVar[bool] = False
    topic_id: str
    partitions: tuple[PartitionIndex, ...]
    by: str


class PartitionDeleted(_Record, frozen=True):
    """A snapshot's record of a share partition whose state an administrator deleted: what was handed out of it."""

    topic_id: str
    partition: PartitionIndex
    end_offset: Offset
    highest_count: Offset
    altered_after: Offset


class GroupDeleted(_Record, frozen=True):
    """The group does not exist any more; a group that is created after it has nothing of it."""


class ActionDone(_Record, frozen=True):
    """An administrator's action of this id was carried out, with this answer (JSON): the same append has its effect."""

    action_id: str
    answer: bytes


class MemberJoined(_Record, frozen=True):
    """The member joined with a new epoch and this subscription. ``seen_ms``: when, by the wall clock."""

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


class MemberSeen(_Record, frozen=True):
    """The member sent a heartbeat at ``seen_ms``. Written rarely: only when the last record that tells of the
    member is old."""

    member_id: str
    seen_ms: Int64


class MembersForgotten(_Record, frozen=True):
    """Members that held nothing and were away for too long. ``forgotten_epoch``: the highest epoch of all members that
    the group forgot; no member is ever given it again. ``unreported_losses``: the group's from now on (None: as they
    were)."""

    member_ids: tuple[str, ...]
    forgotten_epoch: Offset
    unreported_losses: tuple[LeftOutRange, ...] | None = None


class PartitionsForgotten(_Record, frozen=True):
    """Share partitions of a topic that does not exist any more are dropped; they hold no runs. Replay adds their counts
    to the group's. ``whole_topic``: they are all that the group has of the topic (older versions dropped some alone,
    and did not say so)."""

    topic_id: str
    partitions: tuple[PartitionIndex, ...]
    whole_topic: bool = False


class TopicForgotten(_Record, frozen=True):
    """A snapshot's record of a topic that the group has forgotten: its share partitions, each as (partition, end of
    what was acquired, highest delivery count of any record)."""

    topic_id: str
    topic: str
    ends: tuple[tuple[PartitionIndex, Offset, Offset], ...]


class Swept(_Record, frozen=True):
    """The group was swept for members and topics to forget; the next sweep is due at ``next_ms``."""

    durable: ClassVar[bool] = False
    next_ms: int


class SessionRenewed(_Record, frozen=True):
    """The member's session lives until ``deadline_ms``."""

    durable: ClassVar[bool] = False
    member_id: str
    deadline_ms: int


class SessionEnded(_Record, frozen=True):
    """The member's session ended. RunsChanged before this record took its records away."""

    durable: ClassVar[bool] = False
    member_id: str


class AssignmentMade(_Record, frozen=True):
    """The group's assignment has this epoch from now on."""

    assignment_epoch: Offset


class PartitionsAssigned(_Record, frozen=True):
    """The partitions of each member that is assigned any, as (member id, topic id, partitions), since ``now_ms``."""

    durable: ClassVar[bool] = False
    now_ms: int
    assigned: tuple[tuple[str, str, tuple[int, ...]], ...]


class TaskSignalled(_Record, frozen=True):
    """A task of the member's query, on this host, signalled at ``now_ms`` that it works on the plan. ``hint``: its
    words about it; None: the hint of its signal before stays."""

    durable: ClassVar[bool] = False
    member_id: str
    task: int
    host: str
    hint: str | None
    now_ms: int


class BatchNamed(_Record, frozen=True):
    """A sink of the member's query said which batch of Spark's the plan is."""

    durable: ClassVar[bool] = False
    plan_id: Offset
    batch_id: int


class RunsChanged(_Record, frozen=True):
    """The records of these offsets are in these runs from now on."""

    topic_id: str
    partition: PartitionIndex
    runs: tuple[tuple[Offset, Offset, Run], ...]


class LocksRenewed(_Record, frozen=True):
    """As RunsChanged, for lock deadlines alone (KIP-1222: RENEW writes nothing)."""

    durable: ClassVar[bool] = False
    topic_id: str
    partition: PartitionIndex
    runs: tuple[tuple[Offset, Offset, Run], ...]


class DeadlinesPassed(_Record, frozen=True):
    """Locks whose deadline lies before ``now_ms`` have been ended; ``plan_ids``: of these plans alone, or of all. Times
    of runs that were ahead of the clock have been bounded."""

    durable: ClassVar[bool] = False
    now_ms: int
    plan_ids: tuple[int, ...] | None


class DeadlinesExtended(_Record, frozen=True):
    """All locks end later by ``stalled_ms``. ``until_ms``: until then all holders have a full session timeout, as
    after a load; ``is_full``: it is given now, and no lock of now ends before."""

    durable: ClassVar[bool] = False
    stalled_ms: int
    until_ms: int
    is_full: bool


class PlanAcquired(_Record, frozen=True):
    """A member acquired; ``ranges`` by (topic id, partition).

    A query's acquisition is the member's newest plan. ``unreported_losses``: what the logs lost while no query read it,
    to be reported when the plan is started; among them all that the group had of the topics ``reported_topic_ids``
    (ids). ``superseded_plans``: plans that this one supersedes, the oldest first. ``explicit``: if Spark commits the
    batch without reading it, its records are released."""

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


class RangesAdded(_Record, frozen=True):
    """More ranges of a plan, the one acquired or kept last. One record of all ranges would be too large."""

    plan_id: Offset
    member_id: str
    ranges: tuple[tuple[str, PartitionIndex, tuple[tuple[Offset, Offset], ...]], ...]


class PlanStarted(_Record, frozen=True):
    """The plan was started in this member epoch (``started``: its delivery has begun, so that a replay counts as a
    failure), or only reclaimed. The runs that the plan holds from now on were changed by the records before this one.

    ``explicit``: in this attempt at the batch, records that no sink decided are released.
    ``reclaims``: how often a later process has reclaimed the plan. ``data_loss``: losses that the reply reports, also
    those that the group had of the topics ``reported_topic_ids`` (ids); ``unreported_losses``: losses still to be
    reported. ``replaced_plan_id``: the newest plan, if this one is a superseded plan that replaces it, empty.
    ``fail_on_data_loss``: whether a task of this attempt fails if a record is gone when it reads."""

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


class PlanStaged(_Record, frozen=True):
    """Outcomes that sinks decided for the plan's records, by (topic id, partition); replay lays them over what was
    staged before.

    ``explicit_attempts``: the plan's attempts in explicit mode in which a sink wrote. ``replaces``: whether
    all sinks of this attempt have said that their target replaces its output of a batch. ``query_id``, ``query_name``,
    ``checkpoint``: of the member's query. None, in each of these: as it was. ``reject_window`` and ``explicit`` are
    an older version's, in which a sink's commit was judged, and had a mode."""

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


class PlanCompleted(_Record, frozen=True):
    """The plan is completed; ``records`` of its records were accepted or rejected. ``evidence``: whether the member has
    evidence from now on that processing works. ``breaker``: the member's breaker on releases from now on.
    ``reject_window``: (decided, rejected) records of the group's reject ratio from now on; None: as before."""

    plan_id: Offset
    member_id: str
    records: Offset
    evidence: bool = False
    breaker: Breaker | None = None
    reject_window: tuple[int, int] | None = None


class EvidenceCleared(_Record, frozen=True):
    """The evidence of all members is old: a record was quarantined, or failed alone for the first time. Deliveries that
    began before are no evidence when they are completed."""


class EvidenceUsed(_Record, frozen=True):
    """A failed trial used up the member's evidence."""

    member_id: str


class LogStartMoved(_Record, frozen=True):
    """The log of this partition begins at ``log_start`` now. ``archived``: how many records the RunsChanged just before
    this record archived at or above the log start of before since Kafka removed them."""

    topic_id: str
    partition: PartitionIndex
    log_start: Offset
    archived: Offset = 0


class DataLost(_Record, frozen=True):
    """The log lost offsets that are archived now: of the member's newest plan while no process read it, or (plan_id and
    member_id None) offsets that no plan held. The member's query gets the former reported; the query that acquires
    next, the latter.

    ``lost`` adds to what is unreported already, and replay bounds the sum: one decision may end several sessions whose
    losses all go to the group, so no record of it knows the sum."""

    lost: tuple[LeftOutRange, ...]
    plan_id: Offset | None = None
    member_id: str | None = None


class PlanKept(_Record, frozen=True):
    """A plan in a snapshot: PlanAcquired and PlanStarted in one. ``newest``: it is its member's newest plan;
    ``carried``: a run carries its id."""

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
    left_out: tuple[LeftOutRange, ...] = ()
    ranges: tuple[tuple[str, PartitionIndex, tuple[tuple[Offset, Offset], ...]], ...] = ()
    reclaims: Offset = 0
    superseded_plans: tuple[Offset, ...] = ()
    explicit: bool = False
    explicit_attempts: tuple[Offset, ...] = ()
    replaces: bool | None = None
    fail_on_data_loss: bool = True


class GroupProgressKept(_Record, frozen=True):
    """A snapshot's numbers of the group: its last plan id, its reject window, the highest epoch of members that it
    forgot, the epoch of its assignment, and the counts of share partitions that it dropped (None: there are none)."""

    last_plan_id: Offset
    decided: Offset = 0
    rejected: Offset = 0
    forgotten_epoch: Offset = 0
    assignment_epoch: Offset = 0
    dropped: RecordTotals | None = None


class MemberProgressKept(_Record, frozen=True):
    """A snapshot's facts of a member: the plan that it completed last (0: none), whether it has evidence, whether a
    sink decided for it, id, name and checkpoint of its query, how many plans it acquired, and its breaker on
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


Record: TypeAlias = (
    GroupCreated
    | ConfigsAltered
    | TopicRegistered
    | TopicDeleted
    | PartitionInitialized
    | OffsetsAltered
    | PartitionDeleted
    | GroupDeleted
    | ActionDone
    | MemberJoined
    | MemberSeen
    | MembersForgotten
    | PartitionsForgotten
    | TopicForgotten
    | Swept
    | SessionRenewed
    | SessionEnded
    | AssignmentMade
    | PartitionsAssigned
    | StartsAlteredBy
    | TaskSignalled
    | BatchNamed
    | RunsChanged
    | LocksRenewed
    | DeadlinesPassed
    | DeadlinesExtended
    | PlanAcquired
    | RangesAdded
    | PlanStarted
    | PlanStaged
    | PlanCompleted
    | EvidenceCleared
    | EvidenceUsed
    | LogStartMoved
    | DataLost
    | PlanKept
    | GroupProgressKept
    | MemberProgressKept
)
