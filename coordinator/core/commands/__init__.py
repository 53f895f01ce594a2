"""The commands of the core. :func:`coordinator.core.decide.decide` takes any of them.

Members' requests (:mod:`coordinator.protocol.messages`) are commands as they are. Where the answer needs facts that
only the broker knows, the command is the request with these facts: the service looks them up, and adds them.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from coordinator.core.left_out import LeftOutRange
from coordinator.core.log_records import Record
from coordinator.protocol.messages import (
    AcquireRecords,
    Done,
    GivenUp,
    Message,
    NextPlan,
    PartitionBounds,
    PartitionOutcomes,
    Reply,
    Request,
    StageOutcomes,
    StartPlan,
)
from coordinator.protocol.values import OffsetRange

Command = TypeVar("Command", bound=Request[Any])


class TopicWithId(Message, frozen=True, tag=False):
    """A topic, and the id that the cluster has for it now."""

    topic: str
    topic_id: str


class PartitionStart(Message, frozen=True, tag=False):
    """The offset at which a share partition, or the log under it, begins."""

    topic_id: str
    partition: int
    start_offset: int


class CreateGroup(Request[Done], frozen=True):
    """Create the group if it does not exist. ``incarnation`` is unique among all groups that ever had this id.
    ``topic_ids``: whether this cluster gives topic ids at all (stored: a later absence is an error)."""

    incarnation: str
    topic_ids: bool


class AlterConfigs(Request[Done], frozen=True):
    """Set dynamic group configs; an empty text unsets a config. The service validates them before, and the core again;
    a running lock keeps its deadline. ``drop_dead_letters``: the dead letter topic may be unset while records wait for
    their dead letters, which are then archived without."""

    configs: dict[str, str]
    drop_dead_letters: bool = False


class InitializePartitions(Request[Done], frozen=True):
    """Give share partitions their first start offset, as the reset policy resolved to, before their first acquire.
    A partition that has a start offset keeps it."""

    topics: tuple[TopicWithId, ...]
    starts: tuple[PartitionStart, ...]


class PlanDone(Message, frozen=True):
    """The answer to CompletePlan. ``undecided``: in explicit mode no sink has ever decided a record of this member, so
    all of the plan was given back, with no try counted. ``given_up``: records that this completion gave up.
    ``outcomes``: how many records it accepted, released and rejected, by these words. ``too_many_rejects``: of how many
    records of the group how many would have been rejected: the batch's own rejected ones were given back; None: the
    ratio is kept."""

    undecided: bool = False
    too_many_rejects: tuple[int, int] | None = None
    given_up: tuple[GivenUp, ...] = ()
    outcomes: dict[str, int] = msgspec.field(default_factory=dict)


class CompletePlan(Request[PlanDone], frozen=True):
    """Complete the member's newest plan (the batch was committed by Spark); completing twice is harmless.
    ``processed`` false: the log holds none of the plan's offsets, so that its completion is no evidence that processing
    works. ``gaps``: offsets that no sink decided and that the log does not hold: they are archived, not released.
    ``bounds``: what the logs of the plan's partitions hold now, if its tasks go on without records that are gone
    (failOnDataLoss=false)."""

    member_id: str
    member_epoch: int
    plan_id: str
    processed: bool = True
    gaps: tuple[OffsetRange, ...] = ()
    bounds: tuple[PartitionBounds, ...] = ()


class AcquirePlan(NextPlan, frozen=True):
    """NextPlan with what the logs of the subscribed partitions hold now. ``topics``: more topics of the subscription,
    whose losses the plan reports. A plan may hold nothing but such reports."""

    bounds: tuple[PartitionBounds, ...] = ()
    topics: tuple[str, ...] = ()


class StartOrReclaimPlan(StartPlan, frozen=True):
    """StartPlan with what the logs hold now, for each partition of the plan that exists and is subscribed.
    ``deleted_topic_ids``: topics that were deleted, or deleted and created anew; the plan's ranges of them are
    archived. ``unsubscribed_topic_ids``: topics that are no longer in the query's subscription; their ranges are
    released. A plan that lost offsets is not marked as started where ``fail_on_data_loss``: the query fails and reads
    nothing of it, so it is no delivery."""

    bounds: tuple[PartitionBounds, ...] = ()
    deleted_topic_ids: frozenset[str] = frozenset()
    unsubscribed_topic_ids: frozenset[str] = frozenset()


class StageRuns(StageOutcomes, frozen=True):
    """StageOutcomes with its rows: the outcomes by topic and partition."""

    partitions: tuple[PartitionOutcomes, ...] = ()


class AcquireForConsumer(AcquireRecords, frozen=True):
    """AcquireRecords with what the logs of the subscribed partitions hold now. ``beyond``: also of those that are
    assigned to others."""

    beyond: bool = False
    bounds: tuple[PartitionBounds, ...] = ()


def with_facts(command: type[Command], request: Request[Any], **facts: Any) -> Command:
    """The command of a request: the request, and the facts beside it."""
    return command(**msgspec.structs.asdict(request), **facts)


class MoveLogStarts(Request[Done], frozen=True):
    """The log start of these partitions moved (retention, delete-records)."""

    starts: tuple[PartitionStart, ...]


class DeletedTopicsArchived(Message, frozen=True):
    """The answer to ArchiveDeletedTopics: the offsets that were archived since no plan held them."""

    lost: tuple[LeftOutRange, ...] = ()


class ArchiveDeletedTopics(Request[DeletedTopicsArchived], frozen=True):
    """The cluster has deleted the topics of these ids. ``ends``: where their logs ended, where the service has seen
    that. The records that no plan holds are archived, counted and reported, once for each topic."""

    topic_ids: tuple[str, ...]
    ends: tuple[PartitionStart, ...] = ()


class DeadLettersWritten(Message, frozen=True, tag=False):
    """Records that were given up at ``delivery_count`` and wait for their dead letters no longer."""

    offsets: OffsetRange
    delivery_count: int


class MarkDeadLettersWritten(Request[Done], frozen=True):
    """These records are ARCHIVED: their dead letters are written, or (``are_written`` false) never will be."""

    written: tuple[DeadLettersWritten, ...]
    are_written: bool = True


class ArchiveGaps(Request[Done], frozen=True):
    """The log holds no records at these offsets (compaction, transaction markers): they are archived where they are
    AVAILABLE, before they are delivered again."""

    gaps: tuple[OffsetRange, ...]


class AssignPartitions(Request[Done], frozen=True):
    """Assign the partitions to the group's ShareConsumers anew, if members, subscriptions or partitions have changed
    and share.assignment.interval.ms has passed since the last assignment."""


class Expire(Request[Done], frozen=True):
    """Time has passed: end sessions and locks whose deadline is over."""


class ExtendDeadlines(Request[Done], frozen=True):
    """For ``stalled_ms`` before now the coordinator could receive no request, so no member was silent. Sessions and
    locks are extended by that time, and to a full session timeout from now, unless such a full timeout was given less
    than a session timeout ago."""

    stalled_ms: int


class Decision(msgspec.Struct, Generic[Reply], frozen=True):
    """The result of a command: log records to append and replay, and the reply to send once both are done.

    The contract with whoever asks for a decision, as the runtime keeps it (:mod:`coordinator.service.runtime`):

    1. A decision holds for the group as it was decided on. Nothing else may be replayed into the group in between.
    2. All of ``records`` become durable together, or none of them does.
    3. Nobody outside hears of ``reply``, or sees the group with ``records`` in it, before ``records`` are durable. A
       decision without records waits, too: its append, which is empty, proves that the process still owns the group.
    4. ``records`` are replayed once, in their order, also where the next command of the same round is decided on them
       before they are durable. The order matters: PlanAcquired comes before the runs that carry its plan id, and
       PlanStarted after the runs that it reclaims.
    5. An append whose outcome is unknown is neither: the group is dropped, and loaded from the log before its next
       decision. The asker gets an error, and asks again; each command may be decided twice.
    6. An error that :func:`~coordinator.core.decide.decide` raises has no records, and changes nothing.
    """

    records: tuple[Record, ...]
    reply: Reply
