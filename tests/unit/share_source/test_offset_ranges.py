"""A plan is cut into tasks: every offset once, within the limits; and a cursor picks the records of its ranges."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.protocol.values import AcquiredRange
from share_source.executor.offset_ranges import SMALL_BATCH_RECORDS, PartitionRanges, plan_tasks
from share_source.executor.range_cursor import RangeCursor


def orders(partition: int, *ranges: tuple[int, int, int]) -> PartitionRanges:
    return PartitionRanges("orders", partition, tuple(AcquiredRange(*each) for each in ranges))


@st.composite
def partition_ranges(draw: st.DrawFn, topic: str, partition: int) -> PartitionRanges:
    at, ranges = draw(st.integers(0, 1000)), []
    for hole, length, count in draw(
        st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9000), st.integers(1, 5)), max_size=6)
    ):
        ranges.append(AcquiredRange(at + hole, at + hole + length - 1, count))
        at += hole + length
    return PartitionRanges(topic, partition, tuple(ranges))


@st.composite
def plans(draw: st.DrawFn) -> list[PartitionRanges]:
    keys = draw(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5)), unique=True, max_size=6))
    return [draw(partition_ranges(topic, partition)) for topic, partition in keys]


limits = st.fixed_dictionaries(
    {
        "min_partitions": st.none() | st.integers(1, 50),
        "max_records_per_partition": st.none() | st.integers(100, 30_000),
        "parallelism": st.integers(1, 8),
    }
)


def offsets(partitions) -> list[tuple[str, int, int, int]]:
    """(topic, partition, offset, delivery count) of each record, in the order in which they come."""
    return [
        (topic, partition, offset, count)
        for topic, partition, ranges, *_ in partitions
        for first, last, count in ranges
        for offset in range(first, last + 1)
    ]


@given(plans(), limits, st.randoms())
def test_a_plan_is_cut_into_even_tasks_within_the_limits(plan, options, random):
    """Each offset is in one task, with its delivery count; the order of the plan does not matter."""
    tasks = plan_tasks(plan, **options)
    assert [each for task in tasks for each in offsets(task)] == sorted(offsets(plan))
    assert all(each.ranges for task in tasks for each in task)
    sizes = [sum(each.records for each in task) for task in tasks]
    assert all(sizes)
    assert len(tasks) >= min(options["min_partitions"] or 1, sum(sizes)) or not sizes
    assert max(sizes, default=0) <= (options["max_records_per_partition"] or sum(sizes))
    if len(sizes) > 1:  # at the edges of partitions they are not even
        assert max(sizes) <= sum(sizes) / len(sizes) * 1.5 + 2
    for task in tasks:
        assert len({(each.topic, each.partition) for each in task}) == len(task)
    assert plan_tasks(random.sample(plan, len(plan)), **options) == tasks


def test_an_empty_plan_needs_no_task():
    assert plan_tasks([], parallelism=4, min_partitions=3) == []
    assert plan_tasks([orders(0)], parallelism=4) == []


def test_a_small_batch_is_one_task_over_all_its_partitions():
    plan = [orders(p, (0, 999, 1)) for p in range(8)]
    assert plan_tasks(plan, parallelism=4) == [tuple(plan)]


def test_a_batch_of_the_threshold_has_a_task_for_each_core():
    (below,) = plan_tasks([orders(0, (0, SMALL_BATCH_RECORDS - 2, 1))], parallelism=2)
    assert below[0].records == SMALL_BATCH_RECORDS - 1
    first, second = plan_tasks([orders(0, (0, SMALL_BATCH_RECORDS - 1, 1))], parallelism=2)
    assert first[0].ranges == ((0, SMALL_BATCH_RECORDS // 2 - 1, 1),)
    assert second[0].ranges == ((SMALL_BATCH_RECORDS // 2, SMALL_BATCH_RECORDS - 1, 1),)


@pytest.mark.parametrize(
    ("options", "tasks"), [({"min_partitions": 5}, 5), ({"max_records_per_partition": 30}, 4), ({}, 1)]
)
def test_the_options_make_more_tasks_of_a_small_batch(options, tasks):
    assert len(plan_tasks([orders(0, (0, 99, 1))], parallelism=2, **options)) == tasks


def test_partitions_of_nearly_equal_size_are_not_cut():
    plan = [orders(0, (0, 24_000, 1)), orders(1, (0, 26_000, 1)), orders(2, (5, 25_000, 1)), orders(3, (0, 24_500, 1))]
    assert [[each.partition for each in task] for task in plan_tasks(plan, parallelism=2)] == [[0, 1], [2, 3]]


@given(plans(), st.integers(1, 8))
def test_tasks_of_an_ordered_group_never_cut_a_partition(plan, parallelism):
    tasks = plan_tasks(plan, parallelism=parallelism, ordered=True)
    assert [each for task in tasks for each in task] == sorted(each for each in plan if each.ranges)
    assert len(tasks) <= parallelism


def test_partitions_of_an_ordered_group_are_divided_among_tasks():
    plan = [orders(p, (0, size - 1, 1)) for p, size in enumerate([1, 1, 60_000, 20_000])]
    tasks = plan_tasks(plan, parallelism=2, ordered=True)
    assert [[each.partition for each in task] for task in tasks] == [[0, 1, 2], [3]]
    assert len(plan_tasks([orders(0, (0, 99_999, 1))], parallelism=4, ordered=True)) == 1


@dataclass
class Record:
    at: int

    def offset(self) -> int:
        return self.at


def cursor_of(*ranges: tuple[int, int, int]) -> RangeCursor:
    return RangeCursor(PartitionRanges("orders", 0, tuple(AcquiredRange(*each) for each in ranges)))


@st.composite
def ranges(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    at, made = draw(st.integers(0, 5)), []
    sizes = st.tuples(st.integers(0, 4), st.integers(1, 6), st.integers(1, 3))
    for hole, length, count in draw(st.lists(sizes, min_size=1, max_size=6)):
        made.append((at + hole, at + hole + length - 1, count))
        at += hole + length
    return made


@given(ranges(), st.sets(st.integers(0, 70)), st.lists(st.integers(1, 9)))
def test_the_cursor_picks_exactly_the_log_records_in_its_ranges(asked, log, pieces):
    cursor = cursor_of(*asked)
    left = [Record(offset) for offset in sorted(log)]
    picked, counts, beyond = [], [], []
    while left:
        size = pieces.pop() if pieces else len(left)
        chunk, left = left[:size], left[size:]
        mine, runs, rest = cursor.take(chunk)
        assert sum(n for _, n in runs) == len(mine)
        picked += [record.at for record in mine]
        counts += [count for count, n in runs for _ in range(n)]
        beyond += [record.at for record in rest]
    wanted = [(o, count) for first, last, count in asked for o in range(first, last + 1) if o in log]
    assert list(zip(picked, counts, strict=True)) == wanted
    assert beyond == [offset for offset in sorted(log) if offset > cursor.last]
    assert cursor.done == any(offset >= cursor.last for offset in log)


@given(ranges(), st.integers(0, 70))
def test_the_cursor_loses_exactly_its_offsets_below_the_log_start(asked, log_start):
    cursor = cursor_of(*asked)
    lost = [offset for first, last in cursor.lose(log_start) for offset in range(first, last + 1)]
    assert lost == [o for first, last, _ in asked for o in range(first, last + 1) if o < log_start]
    assert cursor.lose(log_start) == []
    assert cursor.done == (log_start > cursor.last)
    assert cursor.done or cursor.wanted >= log_start


def test_the_wanted_offset_is_the_first_after_a_hole():
    cursor = cursor_of((5, 6, 1), (100, 110, 2))
    assert cursor.wanted == 5
    cursor.reached(7)
    assert (cursor.position, cursor.wanted, cursor.done) == (7, 100, False)
    cursor.reached(111)
    assert cursor.done
    assert cursor.take([Record(111)])[2] == [Record(111)]
