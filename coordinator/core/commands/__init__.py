"""The commands of the core. :func:`coordinator.core.decide.decide` takes any of them.

Members' requests (:mod:`coordinator.protocol.messages`) are commands as they are. Where a decision needs facts that
only the brokers know, the command is the request with these facts: the service looks them up, and adds them.
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
    """A topic and its present id in the cluster."""

    topic: str
    topic_id: str


class PartitionStart(Message, frozen=True, tag=False):
    """The offset at which a share partition, or the log under it, begins."""

    topic_id: str
    partition: int
    start_offset: int


class CreateGroup(Request[Done], frozen=True):
    """Create the group if it does not exist. ``incarnation`` must be unique among all groups that ever had this id.
    ``topic_ids``: whether this cluster gives topic ids; the group stores that, and their later absence is an error."""

    incarnation: str
    topic_ids: bool


class AlterConfigs(Request[Done], frozen=True):
    """Set group configs; an empty text unsets a config. ``drop_dead_letters``: the dead letter topic may be unset while
    records wait for their dead letters; these records are then archived without dead letters."""

    configs: dict[str, str]
    drop_dead_letters: bool = False


class InitializePartitions(Request[Done], frozen=True):
    """Give share partitions their first start offsets, which the reset policy determined. A share partition that has a
    start offset keeps it."""

    topics: tuple[TopicWithId, ...]
    starts: tuple[PartitionStart, ...]


class PlanDone(Message, frozen=True):
    """The answer to CompletePlan.

    undecided: in explicit mode no sink has ever decided a record of this member, so all of the plan was given back, and
        no try was counted.
    too_many_rejects: the (decided, rejected) records with which the group's ratio of rejects would have been exceeded,
        so that the batch's rejected records were given back; None: the ratio was not exceeded.
    given_up: the records that this completion gave up.
    outcomes: how many records the completion accepted, released and rejected, by these words.
    """

    undecided: bool = False
    too_many_rejects: tuple[int, int] | None = None
    given_up: tuple[GivenUp, ...] = ()
    outcomes: dict[str, int] = msgspec.field(default_factory=dict)


class CompletePlan(Request[PlanDone], frozen=True):
    """Complete the member's newest plan, since Spark has committed the batch; completing twice is harmless.

    processed: False if the log holds none of the plan's offsets, so that the completion is no evidence that processing
        works.
    gaps: offsets that no sink decided and that the log does not hold. They are archived, not released.
    bounds: where Kafka's log of each partition of the plan begins and ends. They are given with failOnDataLoss=false
        alone, with which the plan's tasks skip records that are gone.
    """

    member_id: str
    member_epoch: int
    plan_id: str
    processed: bool = True
    gaps: tuple[OffsetRange, ...] = ()
    bounds: tuple[PartitionBounds, ...] = ()


class AcquirePlan(NextPlan, frozen=True):
    """NextPlan with the bounds of the subscribed partitions' logs. ``topics``: more topics of the subscription, whose
    losses the plan reports. A plan may hold nothing but such reports."""

    bounds: tuple[PartitionBounds, ...] = ()
    topics: tuple[str, ...] = ()


class StartOrReclaimPlan(StartPlan, frozen=True):
    """StartPlan with the bounds of the logs of those partitions of the plan that exist and are subscribed.

    deleted_topic_ids: topics that were deleted, or deleted and created anew. Their ranges of the plan are archived.
    unsubscribed_topic_ids: topics that are no longer in the query's subscription. Their ranges are released.

    With ``fail_on_data_loss`` a plan that lost offsets is not marked as started: the query fails and reads nothing of
    the plan, so this is no delivery.
    """

    bounds: tuple[PartitionBounds, ...] = ()
    deleted_topic_ids: frozenset[str] = frozenset()
    unsubscribed_topic_ids: frozenset[str] = frozenset()


class StageRuns(StageOutcomes, frozen=True):
    """StageOutcomes with the outcomes in its rows, by topic and partition."""

    partitions: tuple[PartitionOutcomes, ...] = ()


class AcquireForConsumer(AcquireRecords, frozen=True):
    """AcquireRecords with the bounds of the subscribed partitions' logs. ``beyond``: acquire also from partitions that
    are assigned to other members."""

    beyond: bool = False
    bounds: tuple[PartitionBounds, ...] = ()


def with_facts(command: type[Command], request: Request[Any], **facts: Any) -> Command:
    """The command with the fields of the request, and these facts."""
    return command(**msgspec.structs.asdict(request), **facts)


class MoveLogStarts(Request[Done], frozen=True):
    """The log starts of these partitions moved (retention, delete-records)."""

    starts: tuple[PartitionStart, ...]


class DeletedTopicsArchived(Message, frozen=True):
    """The answer to ArchiveDeletedTopics: the offsets that no plan held, and that were archived for that."""

    lost: tuple[LeftOutRange, ...] = ()


class ArchiveDeletedTopics(Request[DeletedTopicsArchived], frozen=True):
    """The cluster has deleted the topics of these ids. ``ends``: the ends of their logs, as far as the service has seen
    them. Records that no plan holds are archived, counted and reported, once for each topic."""

    topic_ids: tuple[str, ...]
    ends: tuple[PartitionStart, ...] = ()


class DeadLettersWritten(Message, frozen=True, tag=False):
    """Records that were given up at ``delivery_count`` and no longer wait for their dead letters."""

    offsets: OffsetRange
    delivery_count: int


class MarkDeadLettersWritten(Request[Done], frozen=True):
    """These records are ARCHIVED: their dead letters are written, or (``are_written`` false) never will be."""

    written: tuple[DeadLettersWritten, ...]
    are_written: bool = True


class ArchiveGaps(Request[Done], frozen=True):
    """The log holds no records at these offsets (compaction, transaction markers). Those that are AVAILABLE are
    archived, so that they are not delivered again."""

    gaps: tuple[OffsetRange, ...]


class ExpiredRecords(Message, frozen=True, tag=False):
    """The records of a share partition below ``end`` are older than share.record.ttl.ms. Its log was read over the
    offsets from ``read_from`` to ``read_end`` (exclusive)."""

    topic_id: str
    partition: int
    end: int
    read_from: int
    read_end: int


class ArchiveExpired(Request[Done], frozen=True):
    """Archive the AVAILABLE records that are older than ``ttl_ms``, but none if the group has another ttl by now.
    Records that were never acquired are archived as far as the log was read; at the ``gaps`` it has no record."""

    ttl_ms: int
    expired: tuple[ExpiredRecords, ...]
    gaps: tuple[OffsetRange, ...] = ()


class AssignPartitions(Request[Done], frozen=True):
    """Assign the partitions to the group's ShareConsumers anew if members, subscriptions or partitions have changed,
    and share.assignment.interval.ms has passed since the last assignment."""


class Expire(Request[Done], frozen=True):
    """End the sessions and locks whose deadline has passed."""


class ExtendDeadlines(Request[Done], frozen=True):
    """The coordinator was paused for the last ``stalled_ms`` and could receive no request, so members could not be
    heard. Sessions and locks are extended by that time. They are also extended to a full session timeout from now,
    unless that was done less than a session timeout ago."""

    stalled_ms: int


class Decision(msgspec.Struct, Generic[Reply], frozen=True):
    """The result of a command: log records to append and replay, and the reply to send once both are done.

    The runtime (:mod:`coordinator.service.runtime`), or whoever else asks for a decision, keeps this contract:

    1. A decision holds for the group that it was made on. Replay nothing else into the group before its records.
    2. All of ``records`` become durable together, or none of them does.
    3. Nobody outside sees ``reply``, or the group with ``records`` in it, before ``records`` are durable. A decision
       without records waits as well: its empty append proves that the process still owns the group.
    4. ``records`` are replayed once, in their order. The next command of the same round may be decided on them before
       they are durable. The order matters: PlanAcquired comes before the runs that carry its plan id, and PlanStarted
       after the runs that it reclaims.
    5. If it is not known whether an append succeeded, the group is dropped, and loaded from the log before its next
       decision. The asker gets an error, and asks again; so each command may be decided twice.
    6. An error that :func:`~coordinator.core.decide.decide` raises has no records, and changes nothing.
    """

    records: tuple[Record, ...]
    reply: Reply
