"""The state log: updates combine as a dict of offsets says, and a projection is the partition without its locks."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.core.record_state import TERMINAL, RecordState
from coordinator.core.runs import FRESH, Run
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import SharePartitionKey
from coordinator.state_log.combiner import combine
from coordinator.state_log.kafka_values import decode_update
from coordinator.state_log.projection import Change, Projection, changed, project, project_runs
from coordinator.state_log.record_values import MAX_DELIVERY_COUNT, ShareUpdateValue, StateBatch, encode_update
from tests.kip932.worked_example import GOLDEN, Example, Written
from tests.support.state_records import (
    INT32_MAX,
    LAST,
    TOPIC_ID,
    merged,
    naive_combined,
    projection_of,
    small,
    small_lists,
    without_locks,
)

# --- the combiner


@settings(max_examples=200)
@given(small_lists, small_lists, st.none() | small)
def test_batches_combine_like_a_dict_of_offsets(
    before: list[StateBatch], newer: list[StateBatch], start_offset: int | None
) -> None:
    assert combine(before, newer, start_offset) == merged(naive_combined([*before, *newer], start_offset))


@given(small_lists, st.randoms(use_true_random=False))
def test_neither_order_nor_repetition_of_batches_makes_a_difference(batches: list[StateBatch], chance: Any) -> None:
    shuffled = [*batches, *batches[:3]]
    chance.shuffle(shuffled)
    assert (
        combine(batches, (), None) == combine((), shuffled, None) == combine(combine(batches, (), None), batches, None)
    )


# --- the projection


small_runs = st.builds(
    Run,
    st.sampled_from([RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED]),
    delivery_count=st.integers(1, 3),
    failures=st.integers(0, 1),
    plan_id=st.sampled_from([None, 1, 2]),
    quarantined=st.sampled_from([False, False, True]),
)
pieces = st.lists(st.tuples(small, small, small_runs), max_size=10)


def partition_of(changes: list[tuple[int, int, Run]], start_offset: int) -> SharePartition:
    """A share partition, its window from ``start_offset`` on, whose runs were changed one after the other."""
    partition = SharePartition(SharePartitionKey(TOPIC_ID, 0), start_offset)
    for one, other, run in changes:
        first, last = sorted((one, other))
        if first >= partition.start_offset:
            partition.apply([(first, last, run)])
    return partition


@given(pieces, small, st.integers(0, LAST))
def test_a_projection_is_the_partition_without_its_locks(changes: Any, start_offset: int, log_start: int) -> None:
    partition = partition_of(changes, start_offset)
    partition.move_log_start(log_start)
    projection = project(partition)
    assert projection == projection_of(without_locks(partition.runs), partition.start_offset)
    assert not [batch for batch in projection.state_batches if batch.delivery_state == RecordState.ACQUIRED]
    terminal = [b for b in projection.state_batches if b.delivery_state in TERMINAL]
    assert projection.delivery_complete_count == sum(b.last_offset - b.first_offset + 1 for b in terminal)


def test_a_change_has_the_states_of_records_below_the_new_start() -> None:
    """The reader drops them by the start offset; who reads the trail sees how each of them ended."""
    partition = SharePartition(SharePartitionKey(TOPIC_ID, 0), 0)
    runs = [(0, 4, Run(RecordState.ACKNOWLEDGED, 2)), (6, 9, Run(RecordState.ARCHIVED, 1))]
    partition.apply([(0, 9, Run(RecordState.ACQUIRED, 1, plan_id=1))])
    partition.apply(runs)
    assert changed(partition, runs) == Change(
        5, (StateBatch(0, 4, RecordState.ACKNOWLEDGED, 2), StateBatch(6, 9, RecordState.ARCHIVED, 1)), 4
    )


def test_archived_offsets_that_were_never_delivered_are_in_a_batch() -> None:
    """A gap in the log, or what the log start moved over: its delivery count is 0, and it is no fresh record."""
    gone = Run(RecordState.ARCHIVED)
    assert project_runs([(3, 4, gone), (5, 9, FRESH)]) == (StateBatch(3, 4, RecordState.ARCHIVED, 0),)


def test_a_complete_count_beyond_kafkas_field_is_shown_as_the_largest() -> None:
    done = StateBatch(1, 3 * INT32_MAX, RecordState.ACKNOWLEDGED, 1)
    assert Projection(0, (done,)).delivery_complete_count == INT32_MAX
    partition = SharePartition(SharePartitionKey(TOPIC_ID, 0), 0)
    runs = [(1, 3 * INT32_MAX, Run(RecordState.ACKNOWLEDGED, 1))]
    partition.apply(runs)
    assert changed(partition, runs) == Change(0, (done,), INT32_MAX)
    update = ShareUpdateValue(0, None, *changed(partition, runs))
    assert decode_update(encode_update(update)) == update


def test_a_delivery_count_beyond_kafkas_field_is_shown_as_the_largest() -> None:
    often = MAX_DELIVERY_COUNT + 5
    held, done = Run(RecordState.ACQUIRED, often), Run(RecordState.ACKNOWLEDGED, often)
    said = project_runs([(0, 0, held), (1, 1, done)])
    assert said == (
        StateBatch(0, 0, RecordState.AVAILABLE, MAX_DELIVERY_COUNT),
        StateBatch(1, 1, RecordState.ACKNOWLEDGED, MAX_DELIVERY_COUNT),
    )
    update = ShareUpdateValue(0, None, 0, said, 1)
    assert decode_update(encode_update(update)) == update


# --- KIP-932's worked example


class AsProjected(Example):
    """KIP-932's worked example, with what is durable taken from the projection."""

    def _appended(self) -> Written:
        written, projection = Written(), project(self.group.partition())
        written.start_offset = projection.start_offset
        for batch in projection.state_batches:
            written.put(*batch)
        return written


def test_the_projection_equals_the_kips_worked_example() -> None:
    assert AsProjected().play(GOLDEN) == GOLDEN
