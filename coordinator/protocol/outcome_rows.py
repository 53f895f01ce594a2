"""The outcomes of a sink's rows as Arrow tables of runs. Executors make such tables, the driver merges them, and the
service stages the outcomes.

The module is pure, and runs no Python code for single rows: it compares columns with themselves, shifted by one. It is
not in the core, because it needs pyarrow."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordinator.protocol.errors import InvalidRequest
from coordinator.protocol.messages import PartitionOutcomes
from coordinator.protocol.values import AcknowledgeType, OutcomeRun

SCHEMA = pa.schema(
    [
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
        pa.field("delivery_count", pa.int32(), nullable=False),
        pa.field("outcome", pa.int8(), nullable=False),
        pa.field("delay_ms", pa.int64()),
        pa.field("dead_letter", pa.bool_(), nullable=False),
        pa.field("reason", pa.string()),
    ]
)
"""A row is a run of a share partition with its outcome, as in OutcomeRun. Outcomes are 1 ACCEPT, 2 RELEASE, 3 REJECT,
5 DEFER; higher numbers are records whose rows contradict each other (DIVIDED after :func:`settled`). delay_ms null: the
group's backoff, or no delay of a deferred record."""

_NUMBERS = ("partition", "first", "last", "delivery_count", "outcome")
_NONE = -1
_LARGEST = 2**63 - 1
MOST_PIECES = 2_000_000
"""A table is refused if its overlapping runs make this many more pieces than it has runs. Runs are cut at all edges, so
a thousand runs can make a million pieces, of some 100 bytes each."""
DIVIDED = 7
"""The outcome of a record whose rows contradict each other, whatever they say: a release. No AcknowledgeType is 7."""
_SEVERAL = 16
_SAID = np.array([0, 1, 2, 4, 0, 8, 0, 15, *[0] * 8, *range(16)], np.int8)
"""For each outcome, the set of outcomes that rows of the record named, as bits: 1 ACCEPT, 2 RELEASE, 4 REJECT, 8 DEFER.
An outcome from _SEVERAL on has the bits of several: the rows of these records contradict each other."""
_OF_SAID = np.array([0, 1, 2, _SEVERAL + 3, 3, *range(_SEVERAL + 5, _SEVERAL + 8), 5, *range(25, 32)], np.int8)
"""The outcome for each set of bits."""
_WORDS = ("accept", "release", "reject", "defer")
_OUTCOMES = {each: AcknowledgeType(each) for each in (1, 2, 3, 5)} | {DIVIDED: AcknowledgeType.RELEASE}

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class _Runs:
    """The columns as numbers. ``topic_id`` and ``reason`` are indices in dictionaries; -1: no delay, no reason."""

    topic_id: Ints
    partition: Ints
    first: Ints
    last: Ints
    delivery_count: Ints
    outcome: Ints
    delay_ms: Ints
    dead_letter: Ints
    reason: Ints

    def take(self, which: Any) -> _Runs:
        return _Runs(**{field.name: getattr(self, field.name)[which] for field in fields(self)})

    def __len__(self) -> int:
        return int(self.first.shape[0])

    @property
    def same_partition(self) -> npt.NDArray[np.bool_]:
        """Whether a run, from the second on, has the topic and partition of the one before."""
        return _unchanged(self.topic_id) & _unchanged(self.partition)


def coalesce(table: pa.Table) -> pa.Table:
    """The outcomes of a table of SCHEMA, in any order, as ascending and disjoint runs by topic and partition. Equal
    neighbours are joined.

    Of several rows of one record, those of the newest delivery count decide. If these name different outcomes, the
    result is a number above DEFER, which ``settled`` turns into a release. If they agree, the longest delay holds, one
    written dead letter is enough, and one of the reasons is kept."""
    if not table.num_rows:
        return SCHEMA.empty_table()
    runs, topics, reasons = _numbers(table)
    runs = _sorted(runs)
    if np.any(runs.same_partition & (runs.first[1:] <= runs.last[:-1])):
        runs = _disjoint(runs)
    return _table(_joined(runs), topics, reasons)


def settled(table: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """Returns a table of coalesce with DIVIDED for records whose rows contradict each other, which are released. Also
    returns the number of these records by what their rows say, such as ``accept, release``."""
    outcome, counts = table["outcome"].to_numpy(), pc.add(pc.subtract(table["last"], table["first"]), 1).to_numpy()
    found = {
        ", ".join(word for bit, word in enumerate(_WORDS) if _SAID[kind] >> bit & 1): int(counts[outcome == kind].sum())
        for kind in np.unique(outcome[outcome > AcknowledgeType.DEFER])
    }
    if not found:
        return table, {}
    outcome = np.where(outcome > AcknowledgeType.DEFER, np.int8(DIVIDED), outcome)
    column = table.schema.get_field_index("outcome")
    return coalesce(table.set_column(column, SCHEMA.field("outcome"), pa.array(outcome, pa.int8()))), found


def partition_outcomes(table: pa.Table) -> tuple[PartitionOutcomes, ...]:
    """The outcomes in a sink's rows by topic and partition, coalesced. Raises InvalidRequest if the schema is another
    one, or a value is null or not allowed."""
    _check(table)
    table, _ = settled(coalesce(table))
    if not table.num_rows:
        return ()
    runs, topics, _ = _numbers(table)
    columns = (
        runs.first.tolist(),
        runs.last.tolist(),
        runs.delivery_count.tolist(),
        [_OUTCOMES[outcome] for outcome in runs.outcome.tolist()],
        table["delay_ms"].to_pylist(),
        table["dead_letter"].to_pylist(),
        pc.fill_null(table["reason"], "").to_pylist(),
        (runs.outcome == DIVIDED).tolist(),
    )
    outcomes = list(map(OutcomeRun, *columns))
    starts = [0, *(np.flatnonzero(~runs.same_partition) + 1).tolist()]
    return tuple(
        PartitionOutcomes(
            topic_id=topics[int(runs.topic_id[start])].as_py(),
            partition=int(runs.partition[start]),
            runs=tuple(outcomes[start:end]),
        )
        for start, end in zip(starts, [*starts[1:], len(outcomes)], strict=True)
    )


def _check(table: pa.Table) -> None:
    if not table.schema.equals(SCHEMA):
        raise InvalidRequest(what=f"Outcomes need the columns {', '.join(SCHEMA.names)}.")
    nulls = [field.name for field in SCHEMA if not field.nullable and table[field.name].null_count]
    if nulls:
        raise InvalidRequest(what=f"Outcomes have nulls in {', '.join(nulls)}.")
    wrong = pc.invert(pc.is_in(table["outcome"], pa.array(list(_OUTCOMES), pa.int8())))
    wrong = pc.or_(wrong, pc.greater(table["first"], table["last"]))
    wrong = pc.or_(wrong, pc.equal(table["last"], _LARGEST))  # the offset after it is no 64-bit number
    for name in ("delay_ms", "first", "partition", "delivery_count"):
        wrong = pc.or_(wrong, pc.fill_null(pc.less(table[name], 0), False))
    if pc.any(wrong).as_py():
        kinds = "none of 1, 2, 3, 5, 7, its last offset lies before its first, or a number is negative or the largest"
        raise InvalidRequest(what=f"An outcome is {kinds}.")


def _numbers(table: pa.Table) -> tuple[_Runs, Any, Any]:
    """The table's columns as numbers, and the dictionaries of topics and reasons."""
    topics = table["topic_id"].combine_chunks().dictionary_encode()
    reasons = table["reason"].combine_chunks().dictionary_encode()
    return (
        _Runs(
            topic_id=np.asarray(topics.indices),
            delay_ms=np.asarray(pc.fill_null(table["delay_ms"], _NONE)),
            dead_letter=np.asarray(table["dead_letter"].cast(pa.int8())),
            reason=np.asarray(pc.fill_null(reasons.indices, _NONE)),
            **{name: np.asarray(table[name]) for name in _NUMBERS},
        ),
        topics.dictionary,
        reasons.dictionary,
    )


def _table(runs: _Runs, topics: Any, reasons: Any) -> pa.Table:
    columns: dict[str, Any] = {
        "topic_id": topics.take(pa.array(runs.topic_id)),
        "delay_ms": pa.array(runs.delay_ms, mask=runs.delay_ms == _NONE),
        "dead_letter": pa.array(runs.dead_letter).cast(pa.bool_()),
        "reason": reasons.take(pa.array(runs.reason, mask=runs.reason == _NONE)),
    }
    columns |= {name: pa.array(getattr(runs, name), SCHEMA.field(name).type) for name in _NUMBERS}
    return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)


def _sorted(runs: _Runs) -> _Runs:
    """Sort the runs by topic, partition and first offset. Most are sorted already, and a check is cheaper."""
    topic, partition, first = (np.diff(column) for column in (runs.topic_id, runs.partition, runs.first))
    ascending = (topic > 0) | ((topic == 0) & ((partition > 0) | ((partition == 0) & (first >= 0))))
    if np.all(ascending):
        return runs
    return runs.take(np.lexsort((runs.first, runs.partition, runs.topic_id)))


def _joined(runs: _Runs) -> _Runs:
    """Joins runs that follow each other and differ in their offsets only."""
    goes_on = runs.same_partition & (runs.first[1:] == runs.last[:-1] + 1)
    for name in ("delivery_count", "outcome", "delay_ms", "dead_letter", "reason"):
        goes_on &= _unchanged(getattr(runs, name))
    begins = np.flatnonzero(np.concatenate(([True], ~goes_on)))
    ends = np.concatenate((begins[1:], [len(runs)])) - 1
    return replace(runs.take(begins), last=runs.last[ends])


def _disjoint(runs: _Runs) -> _Runs:
    """Cuts overlapping runs at all their edges; pieces of the same offsets become one, as coalesce defines it."""
    place = np.cumsum(np.concatenate(([0], ~runs.same_partition)))
    edges, begin, end = _edges(place, runs.first, runs.last + 1)
    pieces = end - begin
    if (count := int(pieces.sum())) > MOST_PIECES + len(runs):
        raise InvalidRequest(
            what=f"Outcomes overlap each other in {count:,} pieces; {MOST_PIECES:,} more than the rows are the most."
        )
    which = np.repeat(np.arange(len(runs)), pieces)
    piece = begin[which] + np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    order = np.lexsort((-runs.delivery_count[which].astype(np.int64), piece))
    which, piece = which[order], piece[order]
    counts, begins = runs.delivery_count[which], np.concatenate(([True], ~_unchanged(piece)))
    newest = counts == counts[np.flatnonzero(begins)][np.cumsum(begins) - 1]  # a piece's highest count comes first
    which, piece = which[newest], piece[newest]
    starts = np.flatnonzero(np.concatenate(([True], ~_unchanged(piece))))
    cut = replace(runs.take(which[starts]), first=edges[piece[starts]], last=edges[piece[starts] + 1] - 1)
    return _agreed(cut, runs.take(which), starts)


def _edges(place: Ints, first: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Returns the distinct offsets at which a run begins or ends, ascending by partition; and for each run the indices
    of its first offset and its end among them."""
    places, points = np.concatenate((place, place)), np.concatenate((first, end))
    order = np.lexsort((points, places))
    places, points = places[order], points[order]
    new = np.concatenate(([True], (np.diff(places) != 0) | (np.diff(points) != 0)))
    index = np.empty(len(order), np.int64)
    index[order] = np.cumsum(new) - 1
    return points[new], index[: len(first)], index[len(first) :]


def _agreed(cut: _Runs, outcomes: _Runs, starts: Ints) -> _Runs:
    """One outcome for each piece, from the entries of ``outcomes`` between its start and the next one's."""
    said: Any = _OF_SAID[np.bitwise_or.reduceat(_SAID[outcomes.outcome], starts)]
    agree = said <= AcknowledgeType.DEFER
    dead_letter = np.where(agree, np.maximum.reduceat(outcomes.dead_letter, starts), 0)
    return replace(
        cut,
        outcome=said,
        delay_ms=np.where(agree, np.maximum.reduceat(outcomes.delay_ms, starts), _NONE),
        dead_letter=dead_letter,
        reason=np.where(agree & (dead_letter == 0), np.maximum.reduceat(outcomes.reason, starts), _NONE),
    )


def _unchanged(column: Ints) -> npt.NDArray[np.bool_]:
    return np.asarray(column[1:] == column[:-1])
