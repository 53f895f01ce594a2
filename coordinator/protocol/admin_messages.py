"""Requests and replies of people who run a group: reads, which change nothing, and actions, which need the admin token.

Rule: an action's ``execute`` is false by default; its answer then says what the action would do, and nothing changes.
Offsets are inclusive, times are milliseconds by the wall clock.
"""

from __future__ import annotations

from typing import Generic, TypeAlias

import msgspec

from coordinator.protocol.messages import GroupRequest, Message, PartitionDescription, Reply, Request
from coordinator.protocol.task_messages import TaskProgress
from coordinator.protocol.values import Count, Int64, Milliseconds, Offset, PartitionIndex

Cursor: TypeAlias = tuple[str, PartitionIndex, Offset]
"""(topic id, partition, offset) from which a list goes on."""


# --- looks


class GroupListing(Message, frozen=True, tag=False):
    """A group in a list. ``state``: EMPTY or STABLE (KIP-932), UNKNOWN where no coordinator could be asked.
    ``coordinator``: the coordinator that serves the group, if that is not the one that answers: the host:port of
    a standalone one, else its host, with its process in brackets."""

    group_id: str
    state: str
    coordinator: str = ""


class GroupsListed(Message, frozen=True):
    """The groups, by id. ``read_from``: empty, or the store in words where no coordinator runs and it was read."""

    groups: tuple[GroupListing, ...] = ()
    read_from: str = ""


class ListGroups(Request[GroupsListed], frozen=True):
    """The groups of the coordinator's state store. ``group_ids``: these only; empty: all that the store has.
    ``group_id``: the coordinator that serves this one is asked; empty: any."""

    group_ids: tuple[str, ...] = ()
    group_id: str = ""


class OffsetsListed(Message, frozen=True):
    """The share partitions of a group; ``read_from`` as in GroupsListed."""

    partitions: tuple[PartitionDescription, ...] = ()
    read_from: str = ""


class ListOffsets(GroupRequest[OffsetsListed], frozen=True):
    """Start offset, end offset and lag of the group's share partitions. ``topics``: of these only; empty: of all;
    ``partitions``: these numbers only; empty: all."""

    topics: tuple[str, ...] = ()
    partitions: tuple[PartitionIndex, ...] = ()


class RunInFlight(Message, frozen=True, tag=False):
    """Records ``first`` to ``last`` in one state. ``query_failures``: those of the ``failures`` that were a query's.
    ``plan_id`` and ``member_id``: the plan that holds the records, or whose query may come back to them, and its
    member. ``since_ms``: when that plan was acquired; ``first_signal_ms``, ``last_signal_ms`` and ``hint``: the
    progress that its holder signalled, a query's task for the whole batch (None: none). ``stage``: the stage of
    isolation."""

    topic: str
    topic_id: str
    partition: int
    first: int
    last: int
    state: str
    delivery_count: int = 0
    failures: int = 0
    releases: int = 0
    query_failures: int = 0
    plan_id: str = ""
    member_id: str = ""
    client_id: str = ""
    client_host: str = ""
    since_ms: int | None = None
    first_signal_ms: int | None = None
    last_signal_ms: int | None = None
    hint: str = ""
    lock_deadline_ms: int | None = None
    not_before_ms: int | None = None
    stage: str = "normal"
    disposition: str = ""
    reason: str = ""


class InFlightPage(Message, frozen=True):
    """One page of the runs in flight, in the order of topic id, partition and offset, at ``now_ms`` of the
    coordinator's clock. ``cursor``: where the next page begins; None: this was the last one. A page may hold fewer runs
    than the limit, or none, and have a cursor all the same: one request scans a bounded number of runs.
    ``staleness_threshold_ms``: the group's group.share.in.progress.staleness.threshold.ms. ``read_from`` as in
    GroupsListed."""

    runs: tuple[RunInFlight, ...] = ()
    cursor: Cursor | None = None
    now_ms: int = 0
    staleness_threshold_ms: int = 0
    read_from: str = ""


class ListInFlight(GroupRequest[InFlightPage], frozen=True):
    """A page of the runs in flight: those in one of ``states``; empty: all that are not terminal.
    ``held_longer_than_ms``: only held runs whose plan was acquired longer ago. ``progress_staleness_ms``: only held
    runs whose holder has signalled no progress for longer. ``member_id``: only runs of this member's plans."""

    states: tuple[str, ...] = ()
    held_longer_than_ms: Milliseconds | None = None
    progress_staleness_ms: Milliseconds | None = None
    member_id: str = ""
    cursor: Cursor | None = None
    limit: Count = 1_000


class Window(Message, frozen=True, tag=False):
    """Offsets ``first`` to ``last`` of a share partition, whose first ``limit`` runs are requested."""

    topic_id: str
    partition: PartitionIndex
    first: Offset
    last: Offset
    limit: Count = 1_000


class WindowsListed(Message, frozen=True):
    """A page of the runs in flight of each window, in the order of the request. A page's ``cursor``: where the rest of
    its window begins; None: these are all runs of the window."""

    pages: tuple[InFlightPage, ...] = ()


class ListWindows(GroupRequest[WindowsListed], frozen=True):
    """The runs in flight of several windows, at one moment. One request scans and shows a bounded number of runs: it
    may show none of the last windows."""

    windows: tuple[Window, ...] = ()


class PlanInFlight(Message, frozen=True, tag=False):
    """A query's newest plan. ``state``: a PlanState; ``records``: how many records its last delivery held; ``held``:
    how many records are in runs that still carry its id; ``attempt``: from 0, how often a later process reclaimed the
    plan. ``batch_id``: Spark's number of the batch, from the sink that staged last for the plan; None before, after the
    start of a coordinator, and without a sink, as Spark does not tell it to a reader (docs/trust/facts.md, S13);
    ``stage``: the furthest stage of isolation of its records. ``evidence``: the query has completed a batch which says
    that processing works. ``tasks``: the tasks' signals about their work on the batch while it is not completed, newest
    first: some of ``tasks_total``, which counts up to a hundred. ``client_id``: the member's name."""

    plan_id: str
    member_id: str
    query_id: str
    state: str
    acquired_ms: int
    records: int
    held: int
    attempt: int
    batch_id: int | None = None
    stage: str = "normal"
    evidence: bool = False
    tasks: tuple[TaskProgress, ...] = ()
    tasks_total: int = 0
    client_id: str = ""


class PlansListed(Message, frozen=True):
    """The newest plans of the group's queries, by member; ``read_from`` as in GroupsListed."""

    plans: tuple[PlanInFlight, ...] = ()
    read_from: str = ""


class ListPlans(GroupRequest[PlansListed], frozen=True):
    """The newest plan of each query of the group."""


class HistoryEntry(Message, frozen=True, tag=False):
    """A change of a record: ``event``, in words. ``at_ms``: when; None where the state store does not say: an SQLite
    file knows the times of acquisitions alone. The counts are those after it. ``plan_id``: the plan that had the
    record, of ``member_id``; ``query_id``: Spark's id of its query, known once a sink has decided; ``client_id``: its
    name; ``client_host``: where the member joined last. ``not_before_ms``: it was not to be acquired before this
    time."""

    event: str
    at_ms: int | None = None
    delivery_count: int = 0
    failures: int = 0
    releases: int = 0
    plan_id: str = ""
    member_id: str = ""
    query_id: str = ""
    client_id: str = ""
    client_host: str = ""
    not_before_ms: int | None = None
    reason: str = ""


class HistoryRead(Message, frozen=True):
    """The history of a record as the state log has it, the oldest entry first. ``is_whole``: it begins with the first
    delivery; else the log does not hold what was before (it was pruned), or ``is_cut``: it was not read that far back.
    ``more``: entries before these that the limit left out. ``read_from`` as in GroupsListed."""

    entries: tuple[HistoryEntry, ...] = ()
    is_whole: bool = False
    is_cut: bool = False
    more: int = 0
    read_from: str = ""


class ReadHistory(GroupRequest[HistoryRead], frozen=True, kw_only=True):
    """The history of the record at an offset: who held it, when, and how each delivery ended; the newest ``limit``
    entries.

    Raises:
        GroupIdNotFound, UnknownSharePartition: there is none.
    """

    topic: str
    partition: PartitionIndex
    offset: Offset
    limit: Count = 100


# --- actions


class Action(GroupRequest[Reply], Generic[Reply], frozen=True):
    """Base class of actions. ``reason``: why, for the audit log. ``execute`` false: only say what it would do. ``by``:
    who asks, as the server knows it, and ``name``: the name of the token; what a client sends there has no effect.

    ``action_id``: of the client's making, the same in all tries of one action, which is carried out once: another try
    gets the answer of the first. ``seen``: the ``state`` of an earlier answer with ``execute`` false; empty: not
    checked.

    Raises:
        GroupChanged: the state is another one than ``seen``.
    """

    execute: bool = False
    reason: str = ""
    by: str = ""
    name: str = ""
    action_id: str = ""
    seen: str = ""


class Effect(Message, frozen=True, tag=False):
    """One thing that an action changes, before and after, in words."""

    what: str
    before: str
    after: str


class Altered(Message, frozen=True):
    """The effects of an action, or (``executed`` false) those that it would have. ``notes``: sentences that a person
    must know before it is carried out. ``state``: what the action depends on (``Action.seen``)."""

    executed: bool
    effects: tuple[Effect, ...] = ()
    notes: tuple[str, ...] = ()
    state: str = ""


class AlteredOffsets(Message, frozen=True, tag=False):
    """A share partition's start offset before and after; ``before`` None: it had none, ``after`` None: it is deleted.
    ``acquired``: its records that members hold now."""

    topic: str
    topic_id: str
    partition: int
    before: int | None
    after: int | None
    acquired: int = 0


class OffsetChanges(Message, frozen=True):
    """The start offsets that an action changes, or would change; ``notes`` and ``state`` as in Altered."""

    executed: bool
    partitions: tuple[AlteredOffsets, ...] = ()
    notes: tuple[str, ...] = ()
    state: str = ""


class AlterOffsets(Action[OffsetChanges], frozen=True):
    """Set start offsets (AlterShareGroupOffsets): all of them, or none. ``to``: earliest, latest, timestamp (``value``
    in ms), offset (``value``), shift (by ``value``), or offsets, which ``offsets`` has by topic and partition.
    ``topics``: topics and their partitions; no topic: all of the group's; no partition: all of the topic's. ``force``:
    also while the group has members.

    Raises:
        GroupNotEmpty: the group has members, and ``force`` is not set.
        MembersNotKnown: the coordinator has just loaded the group, and does not know yet which members live.
        GroupIdNotFound, UnknownTopic, UnknownPartition: it does not exist. InvalidReset: the target can't be used.
    """

    to: str = "earliest"
    value: Int64 = 0
    offsets: dict[str, dict[str, Int64]] = msgspec.field(default_factory=dict)
    topics: dict[str, tuple[PartitionIndex, ...]] = msgspec.field(default_factory=dict)
    force: bool = False


class DeleteOffsets(Action[OffsetChanges], frozen=True, kw_only=True):
    """Forget the share partitions of these topics (DeleteShareGroupOffsets). A member that subscribes to one of them
    later gives it a new start.

    Raises:
        GroupSubscribedToTopic: a member with a session subscribes to one of the topics.
        MembersNotKnown: the coordinator has just loaded the group, and does not know yet which members live.
        DeadLettersNotWritten: records of the topics wait for their dead letters, and ``force`` is not set.
    """

    topics: tuple[str, ...]
    force: bool = False


class DeleteGroup(Action[Altered], frozen=True):
    """Delete the group (DeleteGroups). A later group of the same id is another incarnation.

    Raises:
        GroupNotEmpty: the group has members.
        MembersNotKnown: the coordinator has just loaded the group, and does not know yet which members live.
        DeadLettersNotWritten: records of the group wait for their dead letters, and ``force`` is not set.
    """

    force: bool = False


class AlterGroupConfigs(Action[Altered], frozen=True):
    """Set and unset configs of the group (IncrementalAlterConfigs of a GROUP resource). ``force``: also a dead letter
    topic for which records wait; they get no dead letter."""

    set: dict[str, str] = msgspec.field(default_factory=dict)
    unset: tuple[str, ...] = ()
    force: bool = False


class ReleaseMember(Action[Altered], frozen=True, kw_only=True):
    """End the session of a member now, as its timeout would: others may acquire what it holds. A process that still
    runs joins again by itself. A query then keeps the records that nobody took meanwhile; a ShareConsumer keeps only
    those in progress, for group.share.in.progress.rebalance.grace.ms.

    Raises:
        MemberNotFound: the group does not know the member.
    """

    member_id: str


class DecideRecords(Action[Altered], frozen=True, kw_only=True):
    """Archive or release records by hand: ``decision`` is archive or release. ``archive`` gives up records that are
    AVAILABLE, with ``reason`` in their dead letters. ``release`` makes records available now, out of quarantine and
    without a pause, their tries counted from 0; those that a member holds lose their lock.

    Raises:
        UnknownSharePartition: the group has no such share partition.
        InvalidRequest: the decision is neither archive nor release, or has no reason.
        RecordsHeld: records that are to be archived are held by a member.
        NotInFlight: there is no such record in flight.
    """

    decision: str
    topic: str
    partition: PartitionIndex
    first: Offset
    last: Offset


AnyAdminRequest: TypeAlias = (
    ListGroups
    | ListOffsets
    | ListInFlight
    | ListWindows
    | ListPlans
    | ReadHistory
    | AlterOffsets
    | DeleteOffsets
    | DeleteGroup
    | AlterGroupConfigs
    | ReleaseMember
    | DecideRecords
)
AnyAdminReply: TypeAlias = (
    GroupsListed | OffsetsListed | InFlightPage | WindowsListed | PlansListed | HistoryRead | Altered | OffsetChanges
)
