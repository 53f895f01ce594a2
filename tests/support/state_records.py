"""Records for the tests of the state log: made at random, by single offset, and as Kafka's were recorded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.state_log.kafka_values import apply_update, decode_snapshot, decode_update
from coordinator.state_log.projection import Projection
from coordinator.state_log.record_keys import ShareUpdateKey, decode_key
from coordinator.state_log.record_values import ShareSnapshotValue, ShareUpdateValue, StateBatch

TOPIC_ID = "mSvrxBsrSxCKhSluKu37cQ"
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
LAST = 24
"""The last of a few offsets, so that batches meet."""


def state_batches_of(offsets: st.SearchStrategy[int], most_deliveries: int) -> st.SearchStrategy[StateBatch]:
    """Batches whose edges are among ``offsets``, in any state."""
    return st.builds(
        lambda edges, state, count: StateBatch(min(edges), max(edges), state, count),
        st.tuples(offsets, offsets),
        st.sampled_from(RecordState),
        st.integers(0, most_deliveries),
    )


small = st.integers(0, LAST)
small_lists = st.lists(state_batches_of(small, 3), max_size=8)


# --- by single offset

Naive = dict[int, tuple[RecordState, int]]


def merged(naive: Naive) -> tuple[StateBatch, ...]:
    """The offsets as batches: ascending, disjoint, equal neighbours as one."""
    found: list[StateBatch] = []
    for offset, said in sorted(naive.items()):
        if found and found[-1][1:] == (offset - 1, *said):
            found[-1] = found[-1]._replace(last_offset=offset)
        else:
            found.append(StateBatch(offset, offset, *said))
    return tuple(found)


def naive_combined(batches: Iterable[StateBatch], start_offset: int | None) -> Naive:
    """The offsets of the batches from ``start_offset`` on: the larger count, then the larger state."""
    naive: Naive = {}
    for first, last, state, count in batches:
        for offset in range(max(first, start_offset or 0), last + 1):
            old_state, old_count = naive.get(offset, (state, count))
            count_, state_ = max((old_count, old_state), (count, state))
            naive[offset] = (state_, count_)
    return naive


def projection_of(naive: Naive, start_offset: int) -> Projection:
    """The offsets from ``start_offset`` on, as in a projection."""
    return Projection(start_offset, merged({at: said for at, said in naive.items() if at >= start_offset}))


def without_locks(runs: Iterable[tuple[int, int, Run]]) -> Naive:
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


# --- as Kafka would read them


def state_after(state: ShareSnapshotValue | None, key: bytes, value: bytes) -> ShareSnapshotValue:
    """A share partition's state after one more of its records: a snapshot's own, or the update upon ``state``."""
    if not isinstance(decode_key(key), ShareUpdateKey):
        return decode_snapshot(value)
    assert state is not None, "an update without a snapshot before it"
    return apply_update(state, decode_update(value))


# --- as they were recorded

# Kafka's words for the fields that we give a unit.
RENAMED = {"createTimestamp": "create_timestamp_ms", "writeTimestamp": "write_timestamp_ms"}
SENTINELS = ("leader_epoch", "start_offset", "delivery_complete_count")


def snake(name: str) -> str:
    return RENAMED.get(name) or "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def batch_of(entry: dict[str, int] | list[int]) -> StateBatch:
    """The batch of an entry of either recording: named fields, or [first, last, state, count]."""
    if isinstance(entry, list):
        first, last, state, count = entry
        return StateBatch(first, last, RecordState(state), count)
    named = {snake(name): number for name, number in entry.items()}
    return StateBatch(**{**named, "delivery_state": RecordState(named["delivery_state"])})  # type: ignore[arg-type]


def fields_of(data: dict[str, Any], *, start_ms: int = 0) -> dict[str, Any]:
    """The fields that Kafka's names and numbers stand for. A recorded time may be relative to the start."""
    fields = {snake(name): field for name, field in data.items() if name != "key"}
    for name, field in fields.items():
        if isinstance(field, dict):
            fields[name] = start_ms + field["relative_ms"]
        elif name in SENTINELS and field == -1:
            fields[name] = None
    fields["state_batches"] = tuple(batch_of(entry) for entry in fields.get("state_batches", ()))
    return fields


def snapshot_of(data: dict[str, Any], *, start_ms: int = 0) -> ShareSnapshotValue:
    return ShareSnapshotValue(**fields_of(data, start_ms=start_ms))


def update_of(data: dict[str, Any]) -> ShareUpdateValue:
    return ShareUpdateValue(**fields_of(data))
