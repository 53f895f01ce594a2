"""An action does what it says that it would do: over random states of a group, the numbers of its answer are compared
with the records before and after it."""

from __future__ import annotations

import contextlib
import re
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.core.commands import administer
from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.core.record_state import HELD, TERMINAL, RecordState
from coordinator.protocol.admin_messages import DecideRecords, DeleteGroup, ReleaseMember
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.values import AcknowledgeType, SharePartitionKey
from tests.support.group_driver import TOPIC_ID, GroupDriver, acknowledged, fetched

RECORDS = 24
KEY = SharePartitionKey(TOPIC_ID, 0)
HISTORIES = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.integers(1, 8), st.sampled_from(("completed", "started", "acquired"))),
        st.tuples(st.just("fetch"), st.integers(1, 8), st.sampled_from(("all", "accept", "reject", "release"))),
        st.tuples(st.just("time"), st.just(46_000), st.just("")),
        st.tuples(st.just("log"), st.integers(0, RECORDS), st.just("")),
    ),
    max_size=7,
)
KINDS = {"accept": AcknowledgeType.ACCEPT, "reject": AcknowledgeType.REJECT, "release": AcknowledgeType.RELEASE}
DEAD_LETTERS = "errors.deadletterqueue.topic.name"


def group_with(history, *, dead_letters=False):
    """A group with a query m1 and a ShareConsumer c1 after these steps; a step that can't be is passed over."""
    group = GroupDriver(records=RECORDS, **({DEAD_LETTERS: "dlq"} if dead_letters else {}))
    with group.unchecked():
        group.join("m1")
        group.join("c1", query=False)
        plan = ""
        for step in history:
            with contextlib.suppress(ShareGroupError):
                plan = lived(group, plan, *step)
    return group


def lived(group, plan, what, count, how):
    if what == "batch":
        found = group.acquire(plan, limit=count).plan.plan_id
        if how != "acquired":
            group.start(found)
        if how == "completed":
            group.complete(found)
            return found
    elif what == "fetch":
        for first, last, times in fetched(group, count):
            for offset in range(first, last + 1):
                if how == "all" or offset % 3:
                    acknowledged(group, offset, offset, times, KINDS.get(how, AcknowledgeType.ACCEPT))
    elif what == "time":
        group.pass_time(count)
        group.join("m1")
        group.join("c1", query=False)
    else:
        group.move_log_start(max(count, group.log_starts[0]))
    return plan


def records_of(group):
    """Each offset's state: a RecordState, ``below`` the start offset, or ``never`` acquired."""
    partition = group.group.partitions.get(KEY)
    if partition is None:
        return dict.fromkeys(range(RECORDS), "never")
    states = {offset: "below" if offset < partition.start_offset else "never" for offset in range(RECORDS)}
    for first, last, run in partition.runs:
        states |= dict.fromkeys(range(first, last + 1), run.state)
    return states


def carried_out(group, action_of):
    """The answer, which is the same without ``execute``, where nothing changes; and the states before and after."""
    before, log = records_of(group), list(group.log)
    preview = group.run(action_of(execute=False))
    assert (records_of(group), group.log, preview.executed) == (before, log, False)
    answer = group.run(action_of(execute=True))
    assert (answer.notes, getattr(answer, "effects", ())) == (preview.notes, getattr(preview, "effects", ()))
    return answer, before, records_of(group)


def told(notes, *sentences):
    """The number that the notes give of each sentence; 0: they do not have it."""
    found = Counter()
    for sentence in sentences:
        pattern = re.escape(sentence).replace(r"\{count\}", r"([\d,]+)")
        for note in notes:
            if matched := re.fullmatch(pattern, note):
                found[sentence] += int(matched[1].replace(",", ""))
    return {sentence: found[sentence] for sentence in sentences}


SAID = (
    administer.DONE_AGAIN,
    administer.BELOW_AGAIN,
    administer.WAITING_AGAIN,
    administer.HELD_UNTIL,
    administer.SKIPPED,
    administer.HELD_BELOW,
)


@settings(max_examples=150, deadline=None)
@given(history=HISTORIES, start=st.integers(0, RECORDS), dead_letters=st.booleans())
def test_a_reset_says_what_becomes_of_which_records(history, start, dead_letters):
    check_reset(history, start, dead_letters=dead_letters)


def check_reset(history, start, *, dead_letters=False):
    group = group_with(history, dead_letters=dead_letters)
    answer, before, after = carried_out(
        group, lambda execute: AlterStartOffsets(starts=((TOPIC_ID, 0, start),), execute=execute, force=True)
    )
    low = answer.partitions[0].after
    comes = {offset for offset in range(low, RECORDS) if after[offset] in ("never", RecordState.AVAILABLE)}
    again = Counter(before[offset] for offset in comes)
    gone = Counter(state for offset, state in before.items() if offset not in comes)
    held_below = sum(gone[state] for state in HELD)
    assert told(answer.notes, *SAID) == {
        administer.DONE_AGAIN: sum(again[state] for state in TERMINAL),
        administer.BELOW_AGAIN: again["below"],
        administer.WAITING_AGAIN: again[RecordState.ARCHIVING],
        administer.HELD_UNTIL: sum(again[state] for state in HELD),
        administer.SKIPPED: sum(
            offset not in comes
            and offset >= answer.partitions[0].before
            and state not in (*TERMINAL, RecordState.ARCHIVING)
            for offset, state in before.items()
        ),
        administer.HELD_BELOW: held_below,
    }


def test_a_reset_says_how_many_done_records_above_the_start_come_again():
    """4,000 are polled, the first is released and the others are accepted: the start offset stays."""
    group = GroupDriver(records=4_000)
    group.join("c1", query=False)
    ((first, last, count),) = fetched(group, 4_000)
    acknowledged(group, first, first, count, AcknowledgeType.RELEASE)
    acknowledged(group, first + 1, last, count, AcknowledgeType.ACCEPT)
    answer, _, after = carried_out(
        group, lambda execute: AlterStartOffsets(starts=((TOPIC_ID, 0, 0),), execute=execute, force=True)
    )
    assert "3,999 record(s) that are done are delivered again." in answer.notes
    assert (answer.partitions[0].before, answer.partitions[0].after) == (0, 0)
    assert set(after.values()) == {RecordState.AVAILABLE}


@settings(max_examples=60, deadline=None)
@given(history=HISTORIES)
def test_deleted_offsets_say_how_much_state_is_forgotten(history):
    group = group_with(history)
    answer, before, after = carried_out(
        group,
        lambda execute: AlterStartOffsets(
            starts=((TOPIC_ID, 0, None),), execute=execute, force=True, drop_dead_letters=True
        ),
    )
    assert set(after.values()) == {"never"}
    states = Counter(before.values())
    done, undone = sum(states[s] for s in TERMINAL), sum(states[s] for s in (RecordState.AVAILABLE, *HELD))
    forgotten = administer.FORGOTTEN.format(done=done, undone=undone)
    assert (forgotten in answer.notes) == bool(done or undone)


@settings(max_examples=100, deadline=None)
@given(history=HISTORIES, member=st.sampled_from(("m1", "c1")), dead_letters=st.booleans())
def test_a_released_member_says_what_becomes_of_its_records(history, member, dead_letters):
    group = group_with(history, dead_letters=dead_letters)
    held_by = group.group.held_by(group.group.members[member])
    answer, before, after = carried_out(
        group, lambda execute: ReleaseMember(group_id="billing", member_id=member, execute=execute)
    )
    changed = Counter(after[offset] for offset, state in before.items() if state in HELD and after[offset] not in HELD)
    (effect,) = answer.effects
    assert int(effect.before) == held_by
    assert effect.after.startswith(f"{changed[RecordState.AVAILABLE]} available to others")
    given_up = held_by - changed[RecordState.AVAILABLE]
    assert (f", {given_up} given up" in effect.after) == bool(given_up)


@settings(max_examples=100, deadline=None)
@given(
    history=HISTORIES,
    first=st.integers(0, RECORDS),
    size=st.integers(1, RECORDS),
    decision=st.sampled_from(("archive", "release")),
    dead_letters=st.booleans(),
)
def test_records_by_hand_are_counted_as_they_change(history, first, size, decision, dead_letters):
    group = group_with(history, dead_letters=dead_letters)
    fields = {"topic": "orders", "partition": 0, "first": first, "last": first + size - 1, "reason": "by hand"}

    def action_of(execute):
        return DecideRecords(group_id="billing", decision=decision, execute=execute, **fields)

    counts = {offset: state for offset, state in runs_of(group).items() if first <= offset < first + size}
    try:
        answer, before, _ = carried_out(group, action_of)
    except ShareGroupError:
        return
    now = runs_of(group)
    changed = [o for o, run in counts.items() if run.state not in TERMINAL and now.get(o) != run]
    gone = [o for o in changed if decision == "release" and (o not in now or now[o].state == RecordState.ARCHIVED)]
    sentence = administer.DECIDED[decision].replace("{asked}", str(size))
    sentence = sentence.replace(
        "{dead_letters}", "their dead letters go to dlq" if dead_letters else "the group has no dead letter topic"
    )
    numbers = told(answer.notes, sentence, administer.LOST, administer.HELD_UNTIL)
    held = [o for o in changed if before[o] in HELD and o not in gone]
    assert numbers == {sentence: len(changed) - len(gone), administer.LOST: len(gone), administer.HELD_UNTIL: len(held)}


def runs_of(group):
    return {offset: run for first, last, run in group.partition().runs for offset in range(first, last + 1)}


@settings(max_examples=60, deadline=None)
@given(history=HISTORIES, dead_letters=st.booleans())
def test_a_deleted_group_says_what_is_lost_with_it(history, dead_letters):
    group = group_with(history, dead_letters=dead_letters)
    group.pass_time(100_000)
    members = len(group.group.members)
    answer, before, after = carried_out(
        group, lambda execute: DeleteGroup(group_id="billing", execute=execute, force=True)
    )
    states = Counter(before.values())
    assert set(after.values()) == {"never"}
    assert [effect.before for effect in answer.effects] == [
        "1 share partitions",
        str(states[RecordState.AVAILABLE] + sum(states[s] for s in HELD)),
        str(members),
    ]
    assert told(answer.notes, administer.NO_DEAD_LETTER)[administer.NO_DEAD_LETTER] == states[RecordState.ARCHIVING]
