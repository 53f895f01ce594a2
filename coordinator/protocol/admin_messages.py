"""Requests and replies for people who run a group: reads, which change nothing, and actions, which need the admin
token.

Rule: an action's ``execute`` is False by default. Then nothing changes, and the answer says what the action would do.
Offsets are inclusive; times are milliseconds by the wall clock."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeAlias

import msgspec

from coordinator.protocol.messages import GroupRequest, Message, PartitionDescription, Reply, Request
from coordinator.protocol.values import Count, Int64, Milliseconds, Offset, PartitionIndex, PositiveCount

Cursor: TypeAlias = tuple[str, PartitionIndex, Offset]
"""(topic id, partition, offset) from which a list goes on."""


# --- looks


class GroupListing(Message, frozen=True, tag=False):
    """A group in a list. ``state``: EMPTY or STABLE (KIP-932), or UNKNOWN if no coordinator could be asked.
    ``coordinator``: the coordinator that serves the group: the host:port of a standalone one, or the host of one on
    demand, with the process id in brackets. Empty if it is the coordinator that answers."""

    group_id: str
    state: str
    coordinator: str = ""


class GroupsListed(Message, frozen=True):
    """The groups, by id. ``read_from``: empty; or, if no coordinator runs, the store that was read, in words."""

    groups: tuple[GroupListing, ...] = ()
    read_from: str = ""


class ListGroups(Request[GroupsListed], frozen=True):
    """Asks for the groups of the coordinator's state store. ``group_ids``: only these groups; empty: all. ``group_id``:
    the coordinator that serves this group is asked; empty: any coordinator."""

    group_ids: tuple[str, ...] = ()
    group_id: str = ""


class OffsetsListed(Message, frozen=True):
    """The share partitions of a group; ``read_from`` as in GroupsListed."""

    partitions: tuple[PartitionDescription, ...] = ()
    read_from: str = ""


class ListOffsets(GroupRequest[OffsetsListed], frozen=True):
    """Asks for start offset, end offset and lag of the group's share partitions. ``topics``: only of these topics;
    ``partitions``: only partitions with these numbers; empty: all."""

    topics: tuple[str, ...] = ()
    partitions: tuple[PartitionIndex, ...] = ()


class RunInFlight(Message, frozen=True, tag=False):
    """Records ``first`` to ``last``, which are all in one state.

    query_failures: how many of the ``failures`` were a query's.
    plan_id, member_id: the plan that holds the records, or whose query may come back to them, and the plan's member.
    since_ms: when that plan was acquired.
    first_signal_ms, last_signal_ms, hint: the signals of the holder; a query's tasks signal for the whole batch. None
        if there was no signal.
    stage: the stage of isolation.
    behind: in an ordered group, the offset of the earlier record for which these AVAILABLE records wait."""

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
    behind: int | None = None


class InFlightPage(Message, frozen=True):
    """A page of the runs in flight, in the order of topic id, partition and offset, at ``now_ms`` by the coordinator's
    clock.

    cursor: where the next page begins; None after the last page. One request scans a bounded number of runs, so a page
        with a cursor may have fewer runs than the limit, or none.
    staleness_threshold_ms: the group's group.share.in.progress.staleness.threshold.ms.
    read_from: as in GroupsListed."""

    runs: tuple[RunInFlight, ...] = ()
    cursor: Cursor | None = None
    now_ms: int = 0
    staleness_threshold_ms: int = 0
    read_from: str = ""


class ListInFlight(GroupRequest[InFlightPage], frozen=True):
    """Asks for a page of the runs in flight, from ``cursor`` on. The other fields choose runs:

    states: in one of these states; empty: in any state that is not terminal.
    held_longer_than_ms: held, and acquired longer ago than this.
    progress_staleness_ms: held, and without a signal for longer than this.
    member_id: in a plan of this member."""

    states: tuple[str, ...] = ()
    held_longer_than_ms: Milliseconds | None = None
    progress_staleness_ms: Milliseconds | None = None
    member_id: str = ""
    cursor: Cursor | None = None
    limit: PositiveCount = 1_000


class Window(Message, frozen=True, tag=False):
    """Offsets ``first`` to ``last`` of a share partition, of which the first ``limit`` runs are asked for."""

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
    """Asks for the runs in flight of several windows, at one moment. One request scans and shows a bounded number of
    runs, so the last windows may show none."""

    windows: tuple[Window, ...] = ()


class TaskProgress(Message, frozen=True, tag=False):
    """The signals of one task: Spark's id of the task, its host, the times of its first and last signal in ms by the
    wall clock, and its newest hint."""

    task: int
    host: str
    first_ms: int
    last_ms: int
    hint: str = ""


class PlanInFlight(Message, frozen=True, tag=False):
    """A query's newest plan.

    state: a PlanState. records: how many records the last delivery held.
    held: how many records are in runs that still carry the plan's id.
    attempt: how often a later process reclaimed the plan.
    batch_id: Spark's number of the batch, from the sink that staged last for the plan. None if no sink has staged since
        the coordinator started: Spark does not tell the number to a reader (docs/trust/facts.md, S13).
    stage: the furthest stage of isolation of its records.
    evidence: the query has completed a batch which shows that processing works.
    tasks: signals of tasks that work on the batch while it is not completed, the newest first; some of ``tasks_total``,
        which counts up to a hundred.
    client_id: the member's name."""

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
    """Asks for the newest plan of each query of the group."""


class HistoryEntry(Message, frozen=True, tag=False):
    """A change of a record.

    event: what happened, in words. The counts are those after the event.
    at_ms: when it happened; None if the state store does not say: an SQLite file has only the times of acquisitions.
    plan_id, member_id: the plan that had the record, and the plan's member.
    query_id: Spark's id of the member's query, known once a sink has decided a record.
    client_id, client_host: the member's name, and the host from which it joined last.
    not_before_ms: the record was not to be acquired before this time."""

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
    """The history of a record as the state log has it, the oldest entry first.

    is_whole: the history begins with the first delivery. If not, the log was pruned, or ``is_cut``.
    is_cut: the log was not read back to its beginning.
    more: how many earlier entries the limit left out.
    read_from: as in GroupsListed."""

    entries: tuple[HistoryEntry, ...] = ()
    is_whole: bool = False
    is_cut: bool = False
    more: int = 0
    read_from: str = ""


class ReadHistory(GroupRequest[HistoryRead], frozen=True, kw_only=True):
    """Asks for the history of the record at an offset: who held it, when, and how each delivery ended. The answer has
    the newest ``limit`` entries. Raises GroupIdNotFound or UnknownSharePartition if the group, or the share partition,
    does not exist."""

    topic: str
    partition: PartitionIndex
    offset: Offset
    limit: Count = 100


class PositionRun(NamedTuple):
    """Records ``first`` to ``last`` of a position. ``state``: AVAILABLE, or ACKNOWLEDGED or ARCHIVED, which are done.
    The other fields are those of the core's run: only a group of sharegroup knows of tries and quarantine."""

    first: Offset
    last: Offset
    state: str
    delivery_count: Offset = 0
    failures: Offset = 0
    releases: Offset = 0
    query_failures: Offset = 0
    quarantined: bool = False


class PartitionPosition(Message, frozen=True, tag=False):
    """How far a group has come in one partition. ``runs``: ascending and disjoint, from ``start`` on. A record that is
    in none of them was never delivered. ``topic_id``: the topic's id where the position was read; empty: not known."""

    topic: str
    partition: PartitionIndex
    start: Offset
    runs: tuple[PositionRun, ...] = ()
    topic_id: str = ""


class GroupPosition(Message, frozen=True):
    """How far a group has come, wherever it lives: the form between the source of an import and the import.

    configs: those that are set for the group, if it is one of sharegroup.
    members: how many have a session. unheard: how many may have one, until ``wait_ms`` ms from now.
    archiving: records that wait for their dead letters; in ``partitions`` they count as ARCHIVED.
    of_plans: records of batches that queries have not completed; in ``partitions`` they are AVAILABLE.
    read_from: as in GroupsListed."""

    partitions: tuple[PartitionPosition, ...] = ()
    configs: dict[str, str] = msgspec.field(default_factory=dict)
    members: int = 0
    unheard: int = 0
    wait_ms: int = 0
    archiving: int = 0
    of_plans: int = 0
    read_from: str = ""


class ReadPosition(GroupRequest[GroupPosition], frozen=True):
    """Asks how far the group has come in the topics that exist. A record that a member holds is AVAILABLE, and keeps
    the delivery count of this delivery."""


# --- actions


class Action(GroupRequest[Reply], Generic[Reply], frozen=True):
    """Base class of actions.

    execute: False: change nothing, and say what the action would do.
    reason: why the action is wanted, for the audit log.
    by, name: who asks, and the name of the token. The server sets both; what a client sends there has no effect.
    action_id: the client makes it, and sends the same in all tries of one action. The action is carried out once, and
        all tries get the same answer.
    seen: the ``state`` of an earlier answer with ``execute`` False; empty: not checked.

    Raises:
        GroupChanged: the state is no longer ``seen``."""

    execute: bool = False
    reason: str = ""
    by: str = ""
    name: str = ""
    action_id: str = ""
    seen: str = ""


class Effect(Message, frozen=True, tag=False):
    """One thing that an action changes, and its state before and after, in words."""

    what: str
    before: str
    after: str


class Altered(Message, frozen=True):
    """The effects of an action, or, with ``executed`` False, those that it would have. ``notes``: sentences to read
    before the action is carried out. ``state``: the state on which the action depends (``Action.seen``)."""

    executed: bool
    effects: tuple[Effect, ...] = ()
    notes: tuple[str, ...] = ()
    state: str = ""


class AlteredOffsets(Message, frozen=True, tag=False):
    """A share partition's start offset before and after. ``before`` None: it had none. ``after`` None: its state is
    deleted. ``acquired``: how many of its records members hold now."""

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
    """Set start offsets (AlterShareGroupOffsets), all or none.

    to: earliest, latest, timestamp (``value`` in ms), offset (``value``), shift (by ``value``), or offsets (in
        ``offsets``, by topic and partition).
    topics: the topics and their partitions. Without a topic, all topics of the group; without a partition, all
        partitions of the topic.
    force: also while the group has members.

    Raises:
        GroupNotEmpty: the group has members, and ``force`` is not set.
        MembersNotKnown: the coordinator has just loaded the group, and does not know yet which members live.
        GroupIdNotFound, UnknownTopic, UnknownPartition: the group, topic or partition does not exist.
        InvalidReset: the target can't be used."""

    to: str = "earliest"
    value: Int64 = 0
    offsets: dict[str, dict[str, Int64]] = msgspec.field(default_factory=dict)
    topics: dict[str, tuple[PartitionIndex, ...]] = msgspec.field(default_factory=dict)
    force: bool = False


class DeleteOffsets(Action[OffsetChanges], frozen=True, kw_only=True):
    """Forget the share partitions of these topics (DeleteShareGroupOffsets). They begin anew when a member subscribes
    to their topic again.

    Raises:
        GroupSubscribedToTopic: a member with a session subscribes to one of the topics.
        MembersNotKnown: the coordinator has just loaded the group, and does not know yet which members live.
        DeadLettersNotWritten: records of the topics wait for their dead letters, and ``force`` is not set."""

    topics: tuple[str, ...]
    force: bool = False


class DeleteGroup(Action[Altered], frozen=True):
    """Delete the group (DeleteGroups). A later group of the same id is another incarnation.

    Raises:
        GroupNotEmpty: the group has members.
        MembersNotKnown: the coordinator has just loaded the group, and does not know yet which members live.
        DeadLettersNotWritten: records of the group wait for their dead letters, and ``force`` is not set."""

    force: bool = False


class AlterGroupConfigs(Action[Altered], frozen=True):
    """Set and unset configs of the group (IncrementalAlterConfigs of a GROUP resource). ``force``: also unset a dead
    letter topic for which records wait; these get no dead letters."""

    set: dict[str, str] = msgspec.field(default_factory=dict)
    unset: tuple[str, ...] = ()
    force: bool = False


class ReleaseMember(Action[Altered], frozen=True, kw_only=True):
    """End the session of a member now, as a timeout would, so that others may acquire its records. If the member's
    process still runs, it joins again. A query then keeps the records that nobody took meanwhile. A ShareConsumer keeps
    only those in progress, for group.share.in.progress.rebalance.grace.ms. Raises MemberNotFound if the group does not
    know the member."""

    member_id: str


class DecideRecords(Action[Altered], frozen=True, kw_only=True):
    """Archive or release records by hand. ``decision`` is one of these:

    - archive: give up records that are AVAILABLE, with ``reason`` in their dead letters.
    - release: make records available now, out of quarantine and without a delay. Their tries count from 0 again, and
      records that a member holds lose their lock.

    Raises:
        UnknownSharePartition: the group has no such share partition.
        InvalidRequest: the decision is neither archive nor release, or has no reason.
        RecordsHeld: records that are to be archived are held by a member.
        NotInFlight: there is no such record in flight."""

    decision: str
    topic: str
    partition: PartitionIndex
    first: Offset
    last: Offset


class ImportGroup(Action[Altered], frozen=True, kw_only=True):
    """Create the group with these configs, at this position, in one append.

    Raises:
        GroupExists: the group exists, also if an earlier import created it.
        InvalidImport: the position can't be taken here.
        UnknownTopic, UnknownPartition: the topic or partition does not exist.
        MaxGroupsReached: the coordinator has as many groups as it may have."""

    partitions: tuple[PartitionPosition, ...]
    configs: dict[str, str] = msgspec.field(default_factory=dict)


_Look: TypeAlias = ListGroups | ListOffsets | ListInFlight | ListWindows | ListPlans | ReadHistory | ReadPosition
_AlterGroup: TypeAlias = DeleteGroup | AlterGroupConfigs | ImportGroup
_AnyAction: TypeAlias = AlterOffsets | DeleteOffsets | _AlterGroup | ReleaseMember | DecideRecords
AnyAdminRequest: TypeAlias = _Look | _AnyAction
_Looked: TypeAlias = (
    GroupsListed | OffsetsListed | InFlightPage | WindowsListed | PlansListed | HistoryRead | GroupPosition
)
AnyAdminReply: TypeAlias = _Looked | Altered | OffsetChanges
