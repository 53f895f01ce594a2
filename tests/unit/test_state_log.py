"""The state log: updates combine as a dict of offsets says, and updates alone can tell whatever the engine does."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coordinator.errors import ShareGroupError
from coordinator.record_state import TERMINAL, RecordState
from coordinator.records import PartitionInitialized, RunsChanged, decode_record
from coordinator.runs import FRESH, Run
from coordinator.share_partition import SharePartition
from coordinator.state_log.combiner import apply_update, combine
from coordinator.state_log.projection import Projection, project, project_runs, update_between
from coordinator.state_log.record_values import (
    MAX_DELIVERY_COUNT,
    ShareSnapshotValue,
    ShareUpdateValue,
    StateBatch,
    decode_snapshot,
    decode_update,
    encode_snapshot,
    encode_update,
)
from coordinator.values import AcknowledgeType, TopicIdPartition
from tests.kip932.consumers import ShareConsumers
from tests.kip932.test_worked_example import GOLDEN, Example, Written

TOPIC_ID = "mSvrxBsrSxCKhSluKu37cQ"
LAST = 24
INT32_MAX = 2**31 - 1


# Few offsets, states and counts, so that batches meet.
small = st.integers(0, LAST)
small_batches = st.builds(
    lambda edges, state, count: StateBatch(min(edges), max(edges), state, count),
    st.tuples(small, small),
    st.sampled_from(RecordState),
    st.integers(0, 3),
)
small_lists = st.lists(small_batches, max_size=8)


# --- the combiner

Naive = dict[int, tuple[RecordState, int]]


def merged(naive: Naive) -> tuple[StateBatch, ...]:
    found: list[StateBatch] = []
    for offset, said in sorted(naive.items()):
        if found and found[-1][1:] == (offset - 1, *said):
            found[-1] = found[-1]._replace(last_offset=offset)
        else:
            found.append(StateBatch(offset, offset, *said))
    return tuple(found)


def naive_combined(batches: list[StateBatch], start_offset: int | None) -> Naive:
    naive: Naive = {}
    for first, last, state, count in batches:
        for offset in range(max(first, start_offset or 0), last + 1):
            old_state, old_count = naive.get(offset, (state, count))
            count_, state_ = max((old_count, old_state), (count, state))
            naive[offset] = (state_, count_)
    return naive


@settings(max_examples=200)
@given(small_lists, small_lists, st.none() | small)
def test_batches_combine_as_a_dict_of_offsets_says(
    before: list[StateBatch], newer: list[StateBatch], start_offset: int | None
) -> None:
    assert combine(before, newer, start_offset) == merged(naive_combined([*before, *newer], start_offset))


@given(small_lists, st.randoms(use_true_random=False))
def test_the_order_of_batches_makes_no_difference_nor_does_one_that_comes_twice(
    batches: list[StateBatch], chance: Any
) -> None:
    shuffled = [*batches, *batches[:3]]
    chance.shuffle(shuffled)
    assert (
        combine(batches, (), None) == combine((), shuffled, None) == combine(combine(batches, (), None), batches, None)
    )


def test_an_older_delivery_that_went_further_is_not_taken_back() -> None:
    three, one = StateBatch(0, 9, RecordState.AVAILABLE, 3), StateBatch(0, 9, RecordState.ACKNOWLEDGED, 1)
    assert combine([three], [one], None) == (three,)


def test_an_update_without_a_start_offset_changes_neither_it_nor_the_complete_count() -> None:
    acknowledged = StateBatch(8, 9, RecordState.ACKNOWLEDGED, 1)
    before = ShareSnapshotValue(4, 2, 1, 5, 100, 200, (StateBatch(5, 9, RecordState.AVAILABLE, 1),), 0)
    after = apply_update(before, ShareUpdateValue(4, None, None, (acknowledged,), 2))
    assert after == before._replace(state_batches=(StateBatch(5, 7, RecordState.AVAILABLE, 1), acknowledged))
    after = apply_update(before, ShareUpdateValue(4, 3, 8, (acknowledged,), 2))
    assert after == ShareSnapshotValue(4, 2, 3, 8, 100, 200, (acknowledged,), 2)


# --- the projection

small_runs = st.builds(
    Run,
    st.sampled_from([RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED]),
    delivery_count=st.integers(1, 3),
    failures=st.integers(0, 1),
    acquisition=st.sampled_from([None, 1, 2]),
    set_aside_ms=st.sampled_from([None, None, 0]),
)
pieces = st.lists(st.tuples(small, small, small_runs), max_size=10)


def partition_of(changes: list[tuple[int, int, Run]], start_offset: int) -> SharePartition:
    """A share partition, its window from ``start_offset`` on, whose runs were changed one after the other."""
    partition = SharePartition(TopicIdPartition(TOPIC_ID, 0), start_offset)
    for one, other, run in changes:
        first, last = sorted((one, other))
        if first >= partition.start_offset:
            partition.apply([(first, last, run)])
    return partition


def projection_of(naive: Naive, start_offset: int) -> Projection:
    return Projection(start_offset, merged({at: said for at, said in naive.items() if at >= start_offset}))


def without_locks(runs: Any) -> Naive:
    """By offset what is left when nobody holds anything, records that were never delivered left out."""
    naive: Naive = {}
    for first, last, run in runs:
        said = (run.state, run.delivery_count)
        if run.state == RecordState.ACQUIRED:
            said = (RecordState.AVAILABLE, run.delivery_count - 1)
        for offset in range(first, last + 1):
            naive[offset] = said
            if said == (RecordState.AVAILABLE, 0):
                del naive[offset]
    return naive


@given(pieces, small, st.integers(0, LAST))
def test_a_projection_is_the_partition_without_its_locks(changes: Any, start_offset: int, log_start: int) -> None:
    partition = partition_of(changes, start_offset)
    partition.move_log_start(log_start)
    projection = project(partition)
    assert projection == projection_of(without_locks(partition.runs), partition.start_offset)
    assert not [batch for batch in projection.state_batches if batch.delivery_state == RecordState.ACQUIRED]
    terminal = [b for b in projection.state_batches if b.delivery_state in TERMINAL]
    assert projection.delivery_complete_count == sum(b.last_offset - b.first_offset + 1 for b in terminal)


@given(pieces, small)
def test_it_counts_as_complete_what_the_partition_does(changes: Any, start_offset: int) -> None:
    partition = partition_of(changes, start_offset)
    assert project(partition).delivery_complete_count == partition.delivery_complete_count


def test_runs_that_differ_only_in_what_kafka_does_not_keep_are_one_batch() -> None:
    held = Run(RecordState.ACQUIRED, 3, acquisition=7)
    came_back = Run(RecordState.AVAILABLE, 2, failures=1)
    assert project_runs([(0, 4, held), (5, 9, came_back), (11, 12, held)], 2) == (
        StateBatch(2, 9, RecordState.AVAILABLE, 2),
        StateBatch(11, 12, RecordState.AVAILABLE, 2),
    )


def test_what_was_never_delivered_before_is_in_no_batch() -> None:
    assert project_runs([(0, 4, Run(RecordState.ACQUIRED, 1, acquisition=1)), (5, 9, FRESH)], 0) == ()


def test_what_is_gone_before_it_was_ever_delivered_is_told() -> None:
    """A gap in the log, or what the log start moved over: its delivery count is 0, and it is no fresh record."""
    gone = Run(RecordState.ARCHIVED)
    assert project_runs([(3, 4, gone), (5, 9, FRESH)], 0) == (StateBatch(3, 4, RecordState.ARCHIVED, 0),)


def test_a_window_behind_a_stuck_record_is_complete_up_to_what_its_field_can_say() -> None:
    done = StateBatch(1, 3 * INT32_MAX, RecordState.ACKNOWLEDGED, 1)
    assert Projection(0, (done,)).delivery_complete_count == INT32_MAX
    update = update_between(Projection(0, ()), Projection(0, (done,)), snapshot_epoch=0, leader_epoch=None)
    assert update is not None
    assert decode_update(encode_update(update)) == update


def test_a_record_that_is_tried_for_weeks_is_told_at_the_largest_count_there_is() -> None:
    often = MAX_DELIVERY_COUNT + 5
    held, done = Run(RecordState.ACQUIRED, often), Run(RecordState.ACKNOWLEDGED, often)
    before = Projection(0, project_runs([(0, 0, held), (1, 1, Run(RecordState.AVAILABLE, 1))], 0))
    after = Projection(0, project_runs([(0, 0, held), (1, 1, done)], 0))
    update = update_between(before, after, snapshot_epoch=0, leader_epoch=None)
    assert update is not None
    assert update.state_batches == (StateBatch(1, 1, RecordState.ACKNOWLEDGED, MAX_DELIVERY_COUNT),)
    assert decode_update(encode_update(update)) == update


# --- updates

projections = st.builds(
    lambda batches, start: Projection(start, combine(batches, (), start)), small_lists, st.integers(0, LAST)
)


def told(projection: Projection) -> Naive:
    return {at: (s, c) for first, last, s, c in projection.state_batches for at in range(first, last + 1)}


@settings(max_examples=200)
@given(projections, projections)
def test_an_update_brings_one_projection_to_the_other_or_there_is_none(before: Projection, after: Projection) -> None:
    update = update_between(before, after, snapshot_epoch=4, leader_epoch=2)
    old, new = told(before), told(after)
    falls = after.start_offset < before.start_offset or any(
        at not in new or (new[at][1], new[at][0]) < (said[1], said[0])
        for at, said in old.items()
        if at >= after.start_offset
    )
    assert (update is None) == falls
    if update is None:
        return
    assert combine(before.state_batches, update.state_batches, update.start_offset) == after.state_batches
    named = {at for first, last, _, _ in update.state_batches for at in range(first, last + 1)}
    assert named == {at for at, said in new.items() if old.get(at) != said}, "only what is new is named"
    assert (update.start_offset, update.delivery_complete_count) == (after.start_offset, after.delivery_complete_count)


def test_nothing_that_changed_is_an_update_without_batches() -> None:
    same = Projection(3, (StateBatch(5, 9, RecordState.ARCHIVED, 1),))
    update = update_between(same, same, snapshot_epoch=1, leader_epoch=None)
    assert update == ShareUpdateValue(1, None, 3, (), 5)


# --- the engine


class Told(ShareConsumers):
    """A group that a state topic is told of: after each append, by the bytes of an update, as Kafka would replay it."""

    def __init__(self, **fields: Any) -> None:
        self.state: ShareSnapshotValue | None = None
        self.by_records: tuple[StateBatch, ...] = ()
        self.projection = Projection(0, ())
        super().__init__(**fields)

    def append(self, records: Any) -> None:
        records = tuple(records)
        start_offset = self.projection.start_offset
        for record in records:
            if isinstance(record, RunsChanged):
                self.by_records = combine(self.by_records, project_runs(record.runs, start_offset), start_offset)
        super().append(records)
        partition = self.group.partitions.get(TopicIdPartition("T", 0))
        if partition is None:
            return
        before, self.projection = self.projection, project(partition)
        if self.state is None:
            snapshot = self.projection.snapshot(
                snapshot_epoch=0, state_epoch=0, leader_epoch=None, create_timestamp_ms=0, write_timestamp_ms=0
            )
            self.state = decode_snapshot(encode_snapshot(snapshot))
        elif before != self.projection:
            update = update_between(before, self.projection, snapshot_epoch=0, leader_epoch=None)
            assert update is not None, "a command lowered a record"
            self.state = apply_update(self.state, decode_update(encode_update(update)))
        self.check()

    def check(self) -> None:
        assert self.state is not None
        assert (self.state.start_offset, self.state.state_batches) == self.projection
        assert self.state.delivery_complete_count == self.partition().delivery_complete_count
        now_told = combine(self.by_records, (), self.projection.start_offset)
        assert now_told == self.projection.state_batches, "what each record said before it was replayed is as good"
        naive: Naive = {}
        for record in map(decode_record, self.log):
            if isinstance(record, RunsChanged):
                for first, last, run in record.runs:
                    naive = {at: said for at, said in naive.items() if not first <= at <= last}
                    naive |= without_locks([(first, last, run)])
            elif isinstance(record, PartitionInitialized):
                naive = {}
        assert self.projection == projection_of(naive, self.partition().start_offset), "what the records said, in sum"


def play(group: Told, newest: dict[str, str], what: str, who: int, first: int, size: int) -> None:
    """One thing that a consumer, a query or the world does; it may be refused."""
    consumer, query = f"c{who % 2 + 1}", f"q{who % 2 + 1}"
    if what == "join":
        group.join(consumer if who < 2 else query, query=who >= 2)
    elif what == "fetch":
        group.fetch(consumer, size)
    elif what == "acknowledge":
        for at, last, run in list(group.partition().runs.between(first, first + size)):
            group.acknowledge(AcknowledgeType(who), at, last, count=run.delivery_count, member=consumer)
    elif what == "batch":
        newest[query] = group.next(newest.get(query, ""), query, size).plan.number or newest.get(query, "")
    elif what == "use":
        group.use(newest.get(query, ""), query)
    elif what == "restart":
        group.restart(newest.get(query, ""), query)
    elif what == "time":
        group.pass_time(first * 2_000)
    elif what == "log start":
        group.move_log_start(min(max(group.log_starts[0], first), group.ends[0]))
    elif what == "records":
        group.ends[0] += size


WORLD = ("join", "fetch", "fetch", "acknowledge", "batch", "batch", "use", "restart", "time", "log start", "records")
steps = st.tuples(st.sampled_from(WORLD), st.integers(0, 3), small, st.integers(1, 12))


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, min_size=5, max_size=40), st.sampled_from([2, 3, 5]))
def test_whatever_the_engine_does_updates_tell_it(script: list[tuple[str, int, int, int]], limit: int) -> None:
    group = Told(end=16, members=2, share_delivery_count_limit=limit, share_isolation_base=5)
    newest: dict[str, str] = {}
    group.join("q1")
    group.join("q2")
    for what, who, first, size in script:
        try:
            play(group, newest, what, who, first, size)
        except ShareGroupError:
            continue
    assume(group.partition().end_offset)


def test_the_window_of_a_partition_that_went_through_everything_is_told() -> None:
    group = Told(end=20, members=2)
    group.fetch("c1", 10)
    assert group.projection == Projection(0, ()), "what was never delivered before is not told while it is held"
    group.acknowledge(AcknowledgeType.RELEASE, 0, 1)
    group.acknowledge(AcknowledgeType.REJECT, 3, 4)
    group.acknowledge(AcknowledgeType.ACCEPT, 5, 9)
    expected = Projection(
        0,
        (
            StateBatch(0, 1, RecordState.AVAILABLE, 1),
            StateBatch(3, 4, RecordState.ARCHIVED, 1),
            StateBatch(5, 9, RecordState.ACKNOWLEDGED, 1),
        ),
    )
    assert group.projection == expected
    assert group.fetch("c2", 2) == [(0, 1, 2)]
    assert group.projection == expected, "an acquisition is not told"
    group.acknowledge(AcknowledgeType.ACCEPT, 0, 1, count=2, member="c2")
    group.acknowledge(AcknowledgeType.ACCEPT, 2)
    assert group.projection == Projection(10, ())


class AsProjected(Example):
    """KIP-932's worked example, with what is durable taken from the projection."""

    def _appended(self) -> Written:
        written, projection = Written(), project(self.group.partition())
        written.start_offset = projection.start_offset
        for batch in projection.state_batches:
            written.put(*batch)
        return written


def test_the_projection_is_what_the_kips_worked_example_writes() -> None:
    assert AsProjected().play(GOLDEN) == GOLDEN
