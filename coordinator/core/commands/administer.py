"""An administrator's commands to a group: new start offsets, deletion, the release of a member, and the decision of
single records by hand.

Rules: a command with ``execute`` false makes the same decision without log records, so its answer says what it would
do. A change takes records away from every plan that holds them, and never lowers a delivery count
(docs/trust/protocol.md, "An administrator").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from functools import partial

from coordinator.core.changes import Changes, MemoizedTransition, archived, count_records, moved, split_at
from coordinator.core.commands import Decision
from coordinator.core.commands.membership import end_session
from coordinator.core.failed_deliveries import data_lost
from coordinator.core.log_records import GroupDeleted, OffsetsAltered, Record, RunsChanged, StartsAlteredBy
from coordinator.core.order import held_after
from coordinator.core.record_state import HELD, TERMINAL, Event, RecordState
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol import admin_messages
from coordinator.protocol.admin_messages import (
    Altered,
    AlteredOffsets,
    DecideRecords,
    DeleteGroup,
    Effect,
    ReleaseMember,
)
from coordinator.protocol.errors import (
    DeadLettersNotWritten,
    GroupNotEmpty,
    InvalidRequest,
    MemberNotFound,
    MembersNotKnown,
    NotInFlight,
    RecordsHeld,
    UnknownSharePartition,
)
from coordinator.protocol.messages import Request
from coordinator.protocol.values import Disposition, SharePartitionKey

MOST_EFFECTS = 100
"""A reply names up to this many effects."""
ARCHIVE, RELEASE = "archive", "release"
HELD_UNTIL = (
    "{count} record(s) that members hold are delivered again; what these members write of them is written twice, and "
    "their acknowledgements are refused or have no effect."
)
DECIDED = {
    ARCHIVE: "{count} of {asked} record(s) are given up and not delivered again; {dead_letters}.",
    RELEASE: "{count} of {asked} record(s) become available now, out of quarantine, with 0 tries.",
}
LOST = "{count} record(s) are given up: the log does not hold them any more."
DONE_AGAIN = "{count} record(s) that are done are delivered again."
BELOW_AGAIN = "{count} record(s) below the start offset of before are delivered, also those that were done."
WAITING_AGAIN = "{count} record(s) that wait for their dead letters are delivered again instead."
SKIPPED = "{count} record(s) that are not done are skipped: no member gets them."
HELD_BELOW = (
    "{count} record(s) that members hold lie below the new start: their acknowledgements have no effect any more."
)
FORGOTTEN = (
    "The state of {done} record(s) that are done and of {undone} that are not is forgotten: the start offset of the "
    "next member that subscribes decides which of them are delivered."
)
DELIVERED_AGAIN = "records that members hold are then delivered again."
GOES_ON = "a member that is there goes on from the new start offsets."
NO_DEAD_LETTER = "{count} record(s) that wait for their dead letters get none."
AGAIN = "Records from the new start offset on are delivered, also those that were done; tries are counted anew."


class AlterStartOffsets(Request[admin_messages.OffsetChanges], frozen=True):
    """Give share partitions new start offsets, as (topic id, partition, offset), all or none; offset None: delete the
    share partition's state.

    force: also while the group has members.
    drop_dead_letters: also while dead letters of deleted state are not written.
    subscribers: members that must not have a session, even with ``force``.
    by: who asks.
    """

    starts: tuple[tuple[str, int, int | None], ...]
    execute: bool
    force: bool = False
    drop_dead_letters: bool = False
    subscribers: frozenset[str] = frozenset()
    by: str = ""


_AGAIN = {
    RecordState.ACKNOWLEDGED: DONE_AGAIN,
    RecordState.ARCHIVED: DONE_AGAIN,
    RecordState.ARCHIVING: WAITING_AGAIN,
    **dict.fromkeys(HELD, HELD_UNTIL),
}
"""The note about records from the new start offset on, by the state of their run."""


def alter_start_offsets(
    group: ShareGroup, command: AlterStartOffsets, now_ms: int
) -> Decision[admin_messages.OffsetChanges]:
    """Alter all start offsets, or none.

    Raises:
        GroupNotEmpty: the group has members with a session.
        MembersNotKnown: the group may have such members, which have sent nothing since the load.
        DeadLettersNotWritten: state that is to be deleted has records that wait for their dead letters.
        UnknownSharePartition: the group has no state of a partition.
    """
    if not command.force:
        _check_empty(group, now_ms, f", or force the action: {DELIVERED_AGAIN}", f" Or force the action: {GOES_ON}")
    _check_heard(group, command.subscribers, now_ms)
    by_topic: dict[str, list[tuple[int, int | None]]] = {}
    rows: list[AlteredOffsets] = []
    dropped = 0
    told: Counter[str] = Counter()
    for topic_id, index, wanted in command.starts:
        partition = _partition(group, topic_id, index)
        if wanted is None and not command.drop_dead_letters:
            _check_dead_letters(group, [partition])
        dropped += partition.archiving_count if wanted is None else 0
        start = None if wanted is None else max(wanted, partition.log_start)
        told.update(_forgotten(partition) if start is None else _moved(partition, start))
        by_topic.setdefault(topic_id, []).append((index, start))
        rows.append(
            AlteredOffsets(
                topic=group.topic_names[topic_id],
                topic_id=topic_id,
                partition=index,
                before=partition.start_offset,
                after=start,
                acquired=partition.acquired_count,
            )
        )
    notes = (
        *_in_sentences(told, is_reset=any(row.after is not None for row in rows)),
        *_counted(NO_DEAD_LETTER, dropped),
    )
    records: list[Record] = []
    for topic_id, starts in by_topic.items():
        partitions = tuple(index for index, _ in starts)
        records += [
            OffsetsAltered(topic_id=topic_id, starts=tuple(starts), altered_after=group.last_plan_id),
            StartsAlteredBy(topic_id=topic_id, partitions=partitions, by=command.by),
        ]
    reply = admin_messages.OffsetChanges(executed=command.execute, partitions=tuple(rows), notes=notes)
    return Decision(tuple(records) if command.execute else (), reply)


def _moved(partition: SharePartition, start: int) -> Counter[str]:
    """The number of records for each note about a new start offset."""
    told: Counter[str] = Counter()
    told[BELOW_AGAIN] = max(0, partition.start_offset - start)
    for first, last, run in _between(partition, max(start, partition.start_offset), partition.end_offset):
        told[_AGAIN.get(run.state, "")] += last - first + 1
    not_done = max(0, start - partition.start_offset)
    for first, last, run in _between(partition, partition.start_offset, start):
        not_done -= last - first + 1 if run.state in TERMINAL or run.state == RecordState.ARCHIVING else 0
    told[SKIPPED] = not_done
    told[HELD_BELOW] = partition.acquired_count - told[HELD_UNTIL]
    return told


def _between(partition: SharePartition, first: int, end: int) -> Iterator[Segment]:
    return partition.runs.between(first, end - 1) if first < end else iter(())


def _forgotten(partition: SharePartition) -> Counter[str]:
    undone = partition.runs.counts[RecordState.AVAILABLE] + partition.acquired_count
    return Counter(done=partition.delivery_complete_count, undone=undone)


def _in_sentences(told: Counter[str], *, is_reset: bool) -> Iterator[str]:
    """Yield the notes that a person must know before start offsets are altered, with their numbers."""
    if is_reset:
        yield AGAIN
    for sentence in (DONE_AGAIN, BELOW_AGAIN, WAITING_AGAIN, HELD_UNTIL, SKIPPED, HELD_BELOW):
        yield from _counted(sentence, told[sentence])
    if told["done"] or told["undone"]:
        yield FORGOTTEN.format(done=f"{told['done']:,}", undone=f"{told['undone']:,}")


def delete_group(group: ShareGroup, command: DeleteGroup, now_ms: int) -> Decision[Altered]:
    """Delete the group with all that it knows.

    Raises:
        GroupNotEmpty: the group has members with a session, even with ``force``.
        MembersNotKnown: the group may have such members, which have sent nothing since the load, even with ``force``.
        DeadLettersNotWritten: records wait for their dead letters.
    """
    _check_empty(group, now_ms, ": a group with members can't be deleted.")
    if not command.force:
        _check_dead_letters(group, list(group.partitions.values()))
    dropped = group.waiting_for_dead_letters
    undone = sum(p.runs.counts[RecordState.AVAILABLE] + p.acquired_count for p in group.partitions.values())
    effects = (
        Effect(
            what=f"share group {group.group_id}", before=f"{len(group.partitions)} share partitions", after="deleted"
        ),
        Effect(what="records that were delivered and not done", before=str(undone), after="not delivered again"),
        Effect(what="members that may come back", before=str(len(group.members)), after="refused (ForeignPlan)"),
    )
    reply = Altered(executed=command.execute, effects=effects, notes=_counted(NO_DEAD_LETTER, dropped))
    return Decision((GroupDeleted(),) if command.execute else (), reply)


def release_member(group: ShareGroup, command: ReleaseMember, now_ms: int) -> Decision[Altered]:
    """End the member's session, as a timeout would.

    Raises:
        MemberNotFound: the group does not know the member.
    """
    member = group.members.get(command.member_id)
    if member is None:
        raise MemberNotFound(group_id=group.group_id, member_id=command.member_id)
    records = end_session(group, member, now_ms, left=False) if member.active else []
    become: Counter[RecordState] = Counter()
    for record in records:
        if isinstance(record, RunsChanged):
            for first, last, run in record.runs:
                become[run.state] += last - first + 1
    available, kept = become[RecordState.AVAILABLE], sum(become[state] for state in HELD)
    given_up = become.total() - available - kept
    after = f"{available:,} available to others"
    after += f", {given_up:,} given up" if given_up else ""
    after += f", {kept:,} kept for it for a while, since it works on them" if kept else ""
    what = f"records that member {member.member_id} ({member.client}) holds"
    effects = (Effect(what=what, before=f"{become.total():,}", after=after),)
    notes = _counted(HELD_UNTIL, available)
    if not member.active:
        notes = ("The member has no session, and holds nothing.",)
    reply = Altered(executed=command.execute, effects=effects, notes=notes)
    return Decision(tuple(records) if command.execute else (), reply)


def decide_records(group: ShareGroup, command: DecideRecords, now_ms: int) -> Decision[Altered]:
    """Archive or release records in flight by hand.

    Raises:
        UnknownSharePartition: the group has no such share partition.
        InvalidRequest: the decision is neither archive nor release, or has no reason, or the offsets are no range.
        RecordsHeld: records that are to be archived are held by a member.
        NotInFlight: there is no such record in flight.
    """
    if command.last < command.first:
        raise InvalidRequest(what=f"{command.first}-{command.last} is no range of offsets.")
    if command.decision not in (ARCHIVE, RELEASE):
        raise InvalidRequest(what=f"{command.decision!r} is no decision: it is {ARCHIVE} or {RELEASE}.")
    if command.decision == ARCHIVE and not command.reason.strip():
        raise InvalidRequest(what="A record is archived by hand with a reason: it stands in its dead letter.")
    topic_id = group.topics.get(command.topic)
    if topic_id is None:
        raise UnknownSharePartition(group_id=group.group_id, partition=f"{command.topic}-{command.partition}")
    partition = _partition(group, topic_id, command.partition)
    changes = Changes()
    effects: list[Effect] = []
    count = held = runs = 0
    lost: list[tuple[SharePartitionKey, Segment]] = []
    back: Iterable[Segment] = ()
    decided = MemoizedTransition(partial(_by_hand, group, command))
    runs_of_command = partition.runs.between(command.first, command.last)
    for segment in (part for run in runs_of_command for part in split_at(run, partition.log_start)):
        first, last, run = segment
        if (after := decided(run)) is None:
            continue
        _check_not_held(group, command, segment)
        if last < partition.log_start and run.state in HELD:
            after = moved(run, Event.LOG_START)  # the log has lost it, so nobody gets it again
            lost.append((partition.key, segment))
        count += last - first + 1
        held += last - first + 1 if run.state in HELD else 0
        runs += 1
        if runs <= MOST_EFFECTS:
            where = f"{command.topic}-{command.partition} offsets {first} to {last}"
            effects.append(Effect(what=where, before=_in_words(run), after=_in_words(after)))
        if command.execute:
            changes.put(partition.key, first, last, after)
            if run.deadline_ms is not None and after.state == RecordState.AVAILABLE:
                back = held_after(group, partition, command.last)  # a query keeps its plan until it completes it
    changes.put_all(partition.key, back)
    if not effects:
        fields = {name: getattr(command, name) for name in ("topic", "partition", "first", "last")}
        raise NotInFlight(group_id=group.group_id, **fields)
    gone = count_records(segment for _, segment in lost)
    notes = (*_in_numbers(group, command, count - gone, held - gone), *_counted(LOST, gone), *_rest(runs))
    reply = Altered(executed=command.execute, effects=tuple(effects), notes=notes)
    return Decision((*changes.records(), *data_lost(group, lost)) if command.execute else (), reply)


def _in_numbers(group: ShareGroup, command: DecideRecords, count: int, held: int) -> Iterator[str]:
    """Yield the notes about the number of records, and of those that a member holds."""
    topic = group.config.errors_deadletterqueue_topic_name
    dead_letters = f"their dead letters go to {topic}" if topic else "the group has no dead letter topic"
    asked = command.last - command.first + 1
    yield DECIDED[command.decision].format(count=f"{count:,}", asked=f"{asked:,}", dead_letters=dead_letters)
    yield from _counted(HELD_UNTIL, held)


def _counted(note: str, count: int) -> tuple[str, ...]:
    """The note about ``count`` records; empty if the count is 0."""
    return (note.format(count=f"{count:,}"),) if count else ()


def _rest(runs: int) -> tuple[str, ...]:
    return (f"{runs - MOST_EFFECTS} more runs are changed alike.",) if runs > MOST_EFFECTS else ()


def _check_not_held(group: ShareGroup, command: DecideRecords, segment: Segment) -> None:
    """Raises RecordsHeld if a member holds what is to be archived."""
    first, last, run = segment
    if command.decision == ARCHIVE and run.state in HELD:
        plan = group.plan_of(run)
        where = {"topic": command.topic, "partition": command.partition, "first": first, "last": last}
        member = None if plan is None else group.members.get(plan.member_id)
        who = ("", "") if member is None else (member.member_id, member.client)
        raise RecordsHeld(group_id=group.group_id, member_id=who[0], holder=who[1], **where)


def _by_hand(group: ShareGroup, command: DecideRecords, run: Run) -> Run | None:
    """The run after the decision; None if the decision does not change it."""
    if run.state in TERMINAL or run.state == RecordState.ARCHIVING:
        return None
    if command.decision == ARCHIVE:
        return archived(run, Event.REJECT, group.config, Disposition.REJECTED, _why(command))
    # A quarantined record loses its plan id: a plan on trial that comes back would archive it in spite of its new
    # tries.
    anew = Run(run.state, run.delivery_count, plan_id=None if run.quarantined else run.plan_id)
    after = moved(anew, Event.RELEASE)
    return None if after == run._replace(reason="") else after._replace(reason=_why(command))


def _why(command: DecideRecords) -> str:
    """The reason and the administrator's name, as far as they are known, for the record's history."""
    return f"{command.reason} (by {command.name})".strip() if command.name else command.reason.strip()


def _in_words(run: Run) -> str:
    tries = f", {run.tries} tries" if run.tries else ""
    return f"{run.state.name}{' in quarantine' if run.quarantined else ''}{tries}"


def _partition(group: ShareGroup, topic_id: str, index: int) -> SharePartition:
    partition = group.partitions.get(SharePartitionKey(topic_id, index))
    if partition is None:
        topic = group.topic_names.get(topic_id, topic_id)
        raise UnknownSharePartition(group_id=group.group_id, partition=f"{topic}-{index}")
    return partition


def _check_empty(group: ShareGroup, now_ms: int, force: str, or_force: str = "") -> None:
    if group.sessions:
        raise GroupNotEmpty(group_id=group.group_id, members=len(group.sessions), force=force)
    _check_heard(group, group.unheard, now_ms, or_force)


def _check_heard(group: ShareGroup, member_ids: Set[str], now_ms: int, or_force: str = "") -> None:
    """Raises MembersNotKnown until members from before the load have had a session timeout to send something."""
    unheard, wait_ms = group.unheard & member_ids, group.deadlines_extended_until_ms - now_ms
    if unheard and wait_ms >= 0:
        raise MembersNotKnown(group_id=group.group_id, members=len(unheard), wait_ms=wait_ms + 1, force=or_force)


def _check_dead_letters(group: ShareGroup, partitions: list[SharePartition]) -> None:
    if waiting := sum(partition.archiving_count for partition in partitions):
        raise DeadLettersNotWritten(group_id=group.group_id, count=waiting)
