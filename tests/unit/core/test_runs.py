"""RunMap against a dict from offset to run."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.core.record_state import TERMINAL, RecordState
from coordinator.core.runs import Run, RunMap, Segment

LAST = 30
runs = st.builds(
    Run,
    st.sampled_from(sorted(set(RecordState) - {RecordState.IN_PROGRESS})),
    delivery_count=st.integers(0, 1),
    plan_id=st.sampled_from([None, 1, 2]),
    not_before_ms=st.sampled_from([None, None, 5]),
    quarantined=st.sampled_from([False, False, True]),
    last_tried_ms=st.sampled_from([None, 3]),
)
offsets = st.integers(0, LAST)
puts = st.tuples(st.just("put"), offsets, offsets, runs)
drops = st.tuples(st.just("drop"), offsets, offsets, st.none())


def naive_segments(naive: dict[int, Run]) -> list[Segment]:
    found: list[Segment] = []
    for offset in sorted(naive):
        if found and found[-1].last == offset - 1 and found[-1].run == naive[offset]:
            found[-1] = found[-1]._replace(last=offset)
        else:
            found.append(Segment(offset, offset, naive[offset]))
    return found


def check(runs: RunMap, naive: dict[int, Run]) -> None:
    segments = naive_segments(naive)
    assert list(runs) == segments, "sorted, disjoint, merged"
    assert runs.counts == [sum(run.state == state for run in naive.values()) for state in RecordState]
    numbers = [run.plan_id for run in naive.values() if run.plan_id is not None]
    assert runs.carried == {number: numbers.count(number) for number in set(numbers)}
    assert runs.terminal_count() == sum(run.state in TERMINAL for run in naive.values())
    free = [s for s in segments if s.run.state == RecordState.AVAILABLE]
    aside = [s for s in free if s.run.quarantined]
    delayed = [s for s in free if not s.run.quarantined and s.run.not_before_ms is not None]
    assert set(runs._quarantined) == {(s.run.last_tried_ms or 0, s.first) for s in aside}
    assert set(runs._delayed) == {(s.run.not_before_ms, s.first) for s in delayed}
    assert set(runs._ready) == {s.first for s in free} - {s.first for s in aside} - {s.first for s in delayed}
    waiting = [s.run.not_before_ms for s in free if s.run.not_before_ms is not None]
    assert runs.timed == len(waiting)
    assert runs.due_after(4) == (5 if waiting else None)
    assert runs.due_after(5) is None
    assert runs.first() == (segments[0] if segments else None)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(puts, puts, puts, drops), max_size=25), offsets, offsets)
def test_a_run_map_equals_a_dict_of_offsets_after_any_steps(
    steps: list[tuple[str, int, int, Run]], low: int, high: int
) -> None:
    runs, naive = RunMap(), dict[int, Run]()
    for what, one, other, run in steps:
        first, last = sorted((one, other))
        if what == "put":
            runs.put(first, last, run)
            naive.update(dict.fromkeys(range(first, last + 1), run))
        elif (segment := runs.at(first)) is not None and segment.first == first:
            runs.drop(first)
            for offset in range(segment.first, segment.last + 1):
                del naive[offset]
        check(runs, naive)
    first, last = sorted((low, high))
    clipped = [
        Segment(max(s.first, first), min(s.last, last), s.run)
        for s in naive_segments(naive)
        if s.first <= last and s.last >= first
    ]
    assert list(runs.between(first, last)) == clipped
    on = [segment for segment in naive_segments(naive) if segment.last >= low]
    assert list(runs.whole_from(low)) == on
    assert list(runs.archiving_from(low)) == [s for s in on if s.run.state == RecordState.ARCHIVING]
    assert runs.starting_below(low) == [segment for segment in naive_segments(naive) if segment.first < low]


@given(st.lists(st.tuples(offsets, offsets, runs), max_size=12))
def test_changed_plan_ids_are_those_added_or_removed(puts: list[tuple[int, int, Run]]) -> None:
    runs = RunMap()
    for one, other, run in puts:
        before = set(runs.carried)
        runs.changed_plan_ids.clear()
        runs.put(min(one, other), max(one, other), run)
        assert before ^ set(runs.carried) <= runs.changed_plan_ids
