"""A new group begins at a position from elsewhere: what is done is not delivered, and everything else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.commands import InitializePartitions, PartitionStart
from coordinator.core.commands.import_position import ImportPosition
from coordinator.core.decide import decide
from coordinator.protocol.admin_messages import GroupPosition, PartitionPosition, PositionRun, ReadPosition
from coordinator.protocol.errors import InvalidImport
from tests.support.group_driver import TOPIC_ID, GroupDriver, ranges

LAST = 30
DONE = ("ACKNOWLEDGED", "ARCHIVED")


def position_of(start, *runs):
    runs = tuple(PositionRun(*run) for run in runs)
    return PartitionPosition(topic="orders", topic_id=TOPIC_ID, partition=0, start=start, runs=runs)


def imported(*positions, records=LAST + 10):
    """A group that begins at these positions, and the effects that the import told."""
    group = GroupDriver(partitions=0)
    group.ends, group.log_starts = {0: records}, {0: 0}
    starts = (PartitionStart(topic_id=TOPIC_ID, partition=0, start_offset=positions[0].start),)
    group.run(InitializePartitions(topics=(), starts=starts))
    return group, group.run(ImportPosition(partitions=positions, execute=True))


def delivered(group):
    """The delivery count of each record that the group delivers, by offset, until there is nothing more."""
    found, plan_id = {}, ""
    group.join()
    while plan_id := (reply := group.next(plan_id)).plan.plan_id:
        for first, last, count in ranges(reply):
            assert not found.keys() & set(range(first, last + 1))
            found.update(dict.fromkeys(range(first, last + 1), count))
        group.start(plan_id)
    return found


def test_records_beyond_the_start_keep_what_they_are():
    runs = (0, 1, "ARCHIVED", 1), (5, 6, "ACKNOWLEDGED", 1), (9, 9, "AVAILABLE", 3), (12, 12, "ARCHIVED", 5)
    group, reply = imported(position_of(4, *runs))
    (effect,) = reply.effects
    assert effect.after == "start 4, 3 done beyond it, 1 to deliver again (1 after delivery 3)"
    assert delivered(group) == {**dict.fromkeys([4, 7, 8, 10, 11, *range(13, 40)], 1), 9: 4}


def test_a_position_without_runs_is_a_start_offset():
    group, _ = imported(position_of(7))
    assert delivered(group) == dict.fromkeys(range(7, 40), 1)


def test_a_dry_run_has_no_records_and_the_same_effects():
    position = position_of(4, (5, 6, "ARCHIVED", 1))
    decision = decide(GroupDriver(partitions=0).group, ImportPosition(partitions=(position,), execute=False), 0)
    assert not decision.records
    assert not decision.reply.executed
    assert decision.reply.effects == imported(position)[1].effects


@pytest.mark.parametrize(
    ("positions", "reason"),
    [
        ([position_of(0, (3, 4, "AVAILABLE"), (4, 5, "ARCHIVED"))], "offsets 4 to 5 come after 4"),
        ([position_of(0, (3, 2, "AVAILABLE"))], "offsets 3 to 2 come after -1"),
        ([position_of(0, (3, 3, "ACQUIRED"))], "ACQUIRED is no state"),
        ([position_of(0), position_of(1)], "a partition is there twice"),
    ],
)
def test_what_is_no_position_is_refused(positions, reason):
    with pytest.raises(InvalidImport, match=reason):
        imported(*positions)


runs_of = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([*DONE, "AVAILABLE"]), st.integers(0, 6)),
    max_size=8,
)


@st.composite
def positions(draw):
    """A position in any form that a source yields: runs with gaps between them, also below the start."""
    at, runs = 0, []
    for gap, more, state, count in draw(runs_of):
        first = at + gap
        runs.append((first, first + more, state, count))
        at = first + more + 1
    return position_of(draw(st.integers(0, LAST)), *runs)


@given(positions())
def test_each_undone_record_is_delivered_once_with_the_next_count(position):
    """The promise by single offset. A naive model says what is done, and how often a record was delivered."""
    group, _ = imported(position, records=LAST + 60)
    naive = dict.fromkeys(range(position.start, LAST + 60), 0)
    for run in position.runs:
        for offset in range(max(run.first, position.start), run.last + 1):
            if run.state in DONE:
                del naive[offset]
            else:
                naive[offset] = run.delivery_count
    partition = group.partition()
    assert partition.unaccounted == 0
    assert delivered(group) == {offset: count + 1 for offset, count in naive.items()}


@given(positions())
def test_a_position_that_is_read_and_imported_again_is_the_same(position):
    group, _ = imported(position)
    read = group.run(ReadPosition(group_id="billing"))
    again, _ = imported(*read.partitions)
    assert again.run(ReadPosition(group_id="billing")).partitions == read.partitions


def test_a_held_record_is_available_with_the_count_of_this_delivery():
    group = GroupDriver(records=4)
    group.join()
    group.start(group.acquire(limit=2).plan.plan_id)
    read = group.run(ReadPosition(group_id="billing"))
    assert isinstance(read, GroupPosition)
    assert read.partitions[0].runs == (PositionRun(0, 1, "AVAILABLE", 1),)
    assert (read.members, read.of_plans) == (1, 2)
