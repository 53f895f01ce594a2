"""A cursor picks the records of its ranges, whatever is missing from the log and however the log comes in pieces."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from coordinator.protocol.values import AcquiredRange
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_cursor import RangeCursor


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
