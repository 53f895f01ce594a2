"""Outcomes as tables of runs: whatever order and pieces they come in, the same runs come out."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.protocol import outcome_rows
from coordinator.protocol.errors import InvalidRequest
from coordinator.protocol.messages import PartitionOutcomes
from coordinator.protocol.outcome_rows import DIVIDED, SCHEMA, coalesce, partition_outcomes
from coordinator.protocol.values import AcknowledgeType, OutcomeRun

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


class Row(NamedTuple):
    """A row of SCHEMA."""

    topic_id: str
    partition: int
    first: int
    last: int
    delivery_count: int = 1
    outcome: int = 1
    delay_ms: int | None = None
    dead_letter: bool = False
    reason: str | None = None


def table(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist([row._asdict() for row in rows], schema=SCHEMA)


def rows_of(found: pa.Table) -> list[Row]:
    return [Row(**row) for row in found.to_pylist()]


def test_neighbours_with_one_outcome_become_one_run() -> None:
    found = coalesce(table(Row("t", 0, 2, 2), Row("t", 0, 0, 0), Row("t", 0, 1, 1), Row("t", 1, 3, 3)))
    assert rows_of(found) == [Row("t", 0, 0, 2), Row("t", 1, 3, 3)]


@pytest.mark.parametrize(
    "other",
    [
        Row("t", 0, 1, 1, delivery_count=2),
        Row("t", 0, 1, 1, outcome=3),
        Row("t", 0, 1, 1, delay_ms=5),
        Row("t", 0, 1, 1, dead_letter=True),
        Row("t", 0, 1, 1, reason="broken"),
        Row("t", 0, 2, 2),
        Row("u", 0, 1, 1),
        Row("t", 1, 1, 1),
    ],
)
def test_rows_that_differ_in_any_field_stay_separate_runs(other: Row) -> None:
    assert rows_of(coalesce(table(Row("t", 0, 0, 0), other))) == [Row("t", 0, 0, 0), other]


def test_no_rows_give_no_outcomes() -> None:
    assert coalesce(SCHEMA.empty_table()).equals(SCHEMA.empty_table())
    assert partition_outcomes(SCHEMA.empty_table()) == ()


def test_rows_that_disagree_about_a_record_release_it() -> None:
    found = coalesce(table(Row("t", 0, 0, 9), Row("t", 0, 4, 5, outcome=3, dead_letter=True, reason="broken")))
    found, contradicting = outcome_rows.settled(found)
    assert rows_of(found) == [Row("t", 0, 0, 3), Row("t", 0, 4, 5, outcome=DIVIDED), Row("t", 0, 6, 9)]
    (of_partition,) = partition_outcomes(found)
    assert [(run.first, run.outcome, run.divided) for run in of_partition.runs] == [
        (0, ACCEPT, False),
        (4, RELEASE, True),
        (6, ACCEPT, False),
    ]
    assert contradicting == {"accept, reject": 2}


def test_contradictions_are_counted_by_what_their_rows_say_in_any_order() -> None:
    kinds = [(1, 2), (2, 3), (1, 3), (1, 2, 3), (1, 5), (2, 3, 5)]
    rows = [Row("t", 0, at, at, outcome=kind) for at, said in enumerate(kinds) for kind in said]
    for parts in (rows, rows[::-1]):
        found = coalesce(pa.concat_tables([coalesce(table(*parts[:4])), coalesce(table(*parts[4:]))]))
        found, contradicting = outcome_rows.settled(found)
        assert rows_of(found) == [Row("t", 0, 0, 5, outcome=DIVIDED)]
        assert contradicting == {
            "accept, release": 1, "release, reject": 1, "accept, reject": 1, "accept, release, reject": 1,
            "accept, defer": 1, "release, reject, defer": 1,
        }  # fmt: skip


def test_rows_that_agree_keep_the_longest_delay_and_need_one_dead_letter() -> None:
    released = (Row("t", 0, 1, 1, outcome=2, delay_ms=100), Row("t", 0, 1, 1, outcome=2))
    assert rows_of(coalesce(table(*released))) == [released[0]]
    rejected = (Row("t", 0, 1, 1, outcome=3, reason="broken"), Row("t", 0, 1, 1, outcome=3, dead_letter=True))
    assert rows_of(coalesce(table(*rejected))) == [rejected[1]]


def test_outcomes_are_grouped_by_partition() -> None:
    found = partition_outcomes(
        table(
            Row("b", 0, 0, 0, outcome=2, delay_ms=7),
            Row("a", 1, 3, 3, outcome=3, reason="broken"),
            Row("a", 1, 4, 4, outcome=3, dead_letter=True),
            Row("a", 0, 0, 8),
        )
    )
    assert sorted(found, key=lambda each: (each.topic_id, each.partition)) == [
        PartitionOutcomes(topic_id="a", partition=0, runs=(OutcomeRun(0, 8, 1, ACCEPT),)),
        PartitionOutcomes(
            topic_id="a",
            partition=1,
            runs=(OutcomeRun(3, 3, 1, REJECT, reason="broken"), OutcomeRun(4, 4, 1, REJECT, None, True)),
        ),
        PartitionOutcomes(topic_id="b", partition=0, runs=(OutcomeRun(0, 0, 1, RELEASE, 7),)),
    ]


WRONG = {
    "columns missing": pa.table({"topic": ["t"]}),
    "a column more": table(Row("t", 0, 0, 0)).append_column("more", pa.array([1])),
    "gap": table(Row("t", 0, 0, 0, outcome=0)),
    "renew": table(Row("t", 0, 0, 0, outcome=4)),
    "last before first": table(Row("t", 0, 1, 0)),
    "negative delay": table(Row("t", 0, 0, 0, outcome=2, delay_ms=-1)),
    "negative offset": table(Row("t", 0, -5, 0)),
    "negative partition": table(Row("t", -1, 0, 0)),
    "negative count": table(Row("t", 0, 0, 0, delivery_count=-1)),
    "no offset after it": table(Row("t", 0, 0, 2**63 - 1)),
    "a null": table(Row("t", 0, 0, 0)).set_column(2, SCHEMA.field("first"), pa.array([None], pa.int64())),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_rows_that_no_sink_sends_are_refused(wrong: pa.Table) -> None:
    with pytest.raises(InvalidRequest):
        partition_outcomes(wrong)


# --- any rows, against offsets one by one


def any_row(topic: str, partition: int, first: int, width: int, *rest: Any) -> Row:
    row = Row(topic, partition, first, first + width, *rest)
    return row._replace(reason=None) if row.dead_letter else row  # a reason is kept where there is no dead letter


rows = st.builds(
    any_row,
    st.sampled_from("ab"),
    st.integers(0, 1),
    st.integers(0, 12),
    st.integers(0, 5),
    st.integers(1, 2),
    st.sampled_from([1, 2, 3, 5]),
    st.sampled_from([None, 0, 50]),
    st.booleans(),
    st.sampled_from([None, "x", "y"]),
)


def by_offset(said: list[Row]) -> dict[tuple[str, int, int], set[Row]]:
    found: dict[tuple[str, int, int], set[Row]] = defaultdict(set)
    for row in said:
        for offset in range(row.first, row.last + 1):
            found[row.topic_id, row.partition, offset].add(row._replace(first=0, last=0))
    return found


@given(st.lists(rows, max_size=12), st.randoms(use_true_random=False))
def test_runs_are_disjoint_with_the_outcome_that_newest_rows_agree_on(said: list[Row], order: Any) -> None:
    found = rows_of(outcome_rows.settled(coalesce(table(*said)))[0])
    wanted = by_offset(said)
    told = by_offset(found)
    assert told.keys() == wanted.keys()
    for at, (run,) in ((at, tuple(runs)) for at, runs in told.items()):  # one run an offset: they are disjoint
        newest = max(row.delivery_count for row in wanted[at])
        rows_at = {row for row in wanted[at] if row.delivery_count == newest}
        outcomes = {row.outcome for row in rows_at}
        assert run.delivery_count == newest
        assert run.outcome == (outcomes.pop() if len(outcomes) == 1 else DIVIDED)
        if len(rows_at) == 1:
            assert run in rows_at
    assert found == sorted(found, key=lambda row: (found_place(found, row), row.first))
    shuffled = list(said)
    order.shuffle(shuffled)
    assert by_place(coalesce(table(*shuffled))) == by_place(coalesce(table(*said)))
    assert coalesce(coalesce(table(*said))).equals(coalesce(table(*said)))


def found_place(found: list[Row], row: Row) -> int:
    places = list(dict.fromkeys((each.topic_id, each.partition) for each in found))
    return places.index((row.topic_id, row.partition))


def by_place(found: pa.Table) -> list[tuple[Any, ...]]:
    """Without the reasons, of which any may be kept."""
    return sorted(tuple(row)[:-1] for row in by_offset_rows(found))


def by_offset_rows(found: pa.Table) -> list[tuple[Any, ...]]:
    return [(*at, *row[4:]) for at, rows_at in by_offset(rows_of(found)).items() for row in rows_at]
