"""Staged runs against a dict of offsets: what is laid over what, what gaps add, and how segments are cut by it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run, Segment
from coordinator.core.staging import GAP, StagedRun, Verdict, later, overlaid, pieces, staged_with, undecided, with_gaps
from coordinator.protocol.values import AcknowledgeType

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
OUTCOMES = (ACCEPT, RELEASE, REJECT)
SPACE = 24

outcomes = st.sampled_from([int(outcome) for outcome in OUTCOMES])
verdicts = st.builds(
    Verdict,
    delivery_count=st.integers(1, 3),
    outcome=outcomes,
    not_before_ms=st.sampled_from([None, 5]),
    dead_letter=st.booleans(),
    reason=st.sampled_from(["", "why"]),
    disagrees=st.booleans(),
)


def ranges_with(values: st.SearchStrategy) -> st.SearchStrategy:
    """Ascending, disjoint (first, last, value) below SPACE; neighbours may be equal."""
    edges = st.lists(st.integers(0, SPACE), max_size=12, unique=True).map(sorted)
    return edges.flatmap(
        lambda found: st.tuples(
            *(st.tuples(st.just(first), st.integers(first, end - 1), values) for first, end in pairwise(found))
        ).map(list)
    )


staged_runs = ranges_with(verdicts)
runs = st.builds(Run, st.just(RecordState.ACQUIRED), st.integers(1, 3))


def by_offset(ranges: Iterable[tuple]) -> dict:
    """offset -> what is said of it; no offset twice."""
    said: dict = {}
    for first, last, *what in ranges:
        assert first <= last
        for offset in range(first, last + 1):
            assert offset not in said
            said[offset] = what[0] if len(what) == 1 else tuple(what)
    return said


def is_ascending(ranges: Iterable[tuple]) -> bool:
    reached = -1
    for first, last, *_ in ranges:
        if not reached < first <= last:
            return False
        reached = last
    return True


@given(staged_runs, staged_runs)
def test_two_lists_merge_and_both_decide_where_they_overlap(below: list[StagedRun], above: list[StagedRun]) -> None:
    asked = []

    def both(low: Verdict, up: Verdict) -> Verdict:
        asked.append((low, up))
        return low._replace(delivery_count=10 * low.delivery_count + up.delivery_count)

    laid = overlaid(below, above, both)
    low, up = by_offset(below), by_offset(above)
    expected = {**low, **up} | {o: both(low[o], up[o]) for o in low.keys() & up.keys()}
    assert is_ascending(laid)
    assert by_offset(laid) == expected


@given(st.lists(staged_runs, max_size=4))
def test_repeated_staging_is_the_sum_for_each_offset(stagings: list[list[StagedRun]]) -> None:
    staged: list[StagedRun] = []
    expected: dict[int, Verdict] = {}
    for now in stagings:
        staged = staged_with(staged, now)
        for offset, verdict in by_offset(now).items():
            expected[offset] = later(expected[offset], verdict) if offset in expected else verdict
    assert is_ascending(staged)
    assert by_offset(staged) == expected


@given(staged_runs, ranges_with(st.just(GAP)))
def test_a_gap_counts_only_where_no_outcome_is_staged(staged: list[StagedRun], gaps: list[StagedRun]) -> None:
    both = with_gaps(gaps, staged)
    assert is_ascending(both)
    assert by_offset(both) == {**by_offset(gaps), **by_offset(staged)}


@given(ranges_with(runs), staged_runs)
def test_segments_are_cut_where_their_outcome_changes(
    held: list[tuple[int, int, Run]], staged: list[StagedRun]
) -> None:
    segments = [Segment(*each) for each in held]
    said = by_offset(staged)
    cut = list(pieces(segments, staged))
    assert is_ascending(cut)
    assert by_offset(cut) == {offset: (run, said.get(offset)) for offset, run in by_offset(held).items()}
    free = {offset for offset in by_offset(held) if offset not in said}
    found = list(undecided(segments, staged))
    assert is_ascending(found)
    assert {offset for first, last in found for offset in range(first, last + 1)} == free


@given(st.lists(verdicts, min_size=1, max_size=5))
def test_the_last_attempt_counts_and_an_older_attempt_can_only_veto(attempts: list[Verdict]) -> None:
    attempts = [
        verdict._replace(delivery_count=count, disagrees=False, divided=False, unreadable=False)
        for count, verdict in enumerate(attempts)
    ]
    known = attempts[0]
    for attempt in attempts[1:]:
        known = later(known, attempt)
    last = attempts[-1]
    agree = len({attempt.outcome for attempt in attempts}) == 1
    assert known.settled(replaces=False) == (last.outcome if agree else RELEASE)
    assert known.settled(replaces=True) == last.outcome, "of the others nothing is left"
    assert (known.delivery_count, known.not_before_ms, known.reason) == (
        last.delivery_count,
        last.not_before_ms,
        last.reason,
    )


@pytest.mark.parametrize("replaces", [False, True])
def test_sinks_of_one_attempt_that_disagree_release_until_another_attempt(replaces: bool) -> None:
    known = later(later(Verdict(1, ACCEPT), Verdict(1, REJECT)), Verdict(1, REJECT))
    assert known.settled(replaces=replaces) == RELEASE
    assert later(known, Verdict(2, REJECT)).settled(replaces=replaces) == (REJECT if replaces else RELEASE)


def test_a_dead_letter_that_an_earlier_attempt_wrote_counts() -> None:
    assert later(Verdict(1, REJECT, dead_letter=True), Verdict(2, REJECT, reason="too large")).dead_letter
    assert not later(Verdict(1, REJECT, reason="too large"), Verdict(2, REJECT)).dead_letter
    assert not later(Verdict(1, ACCEPT, dead_letter=True), Verdict(2, REJECT)).dead_letter, (
        "none was written of an accepted one"
    )
