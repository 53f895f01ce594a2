"""A file, a state record or a checkpoint may have any bytes: it gives a value or a named error."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.config.properties_file import read_properties
from coordinator.config.secret_files import read_token, read_tokens
from coordinator.core.log_records import (
    GroupDeleted,
    OffsetsAltered,
    PartitionInitialized,
    PlanAcquired,
    PlanCompleted,
    PlanStaged,
    RangesAdded,
    Record,
    RunsChanged,
    TopicForgotten,
)
from coordinator.core.record_codec import UnreadableRecord, _runs_of, decode_head, decode_record, encode_record
from coordinator.core.record_counts import RecordTotals
from coordinator.core.record_state import RecordState
from coordinator.core.release_breaker import Breaker
from coordinator.core.runs import Run
from coordinator.core.staging import Verdict
from coordinator.protocol.errors import InvalidRequest, ShareGroupError
from coordinator.protocol.format_versions import SPARK_OFFSET
from coordinator.protocol.outcome_rows import SCHEMA, partition_outcomes
from coordinator.protocol.request_rows import body_with_rows, read_rows, split_body
from coordinator.protocol.rights import Tokens
from coordinator.protocol.values import AcknowledgeType
from coordinator.protocol.wire import Endpoint, decode_endpoint, encode
from coordinator.state_log.group_log import GroupLog
from coordinator.state_log.kafka_values import decode_snapshot, decode_update
from coordinator.state_log.record_keys import GroupRecordKey, GroupSnapshotKey, ShareSnapshotKey, decode_key, encode_key
from coordinator.state_log.record_values import (
    ShareSnapshotValue,
    ShareUpdateValue,
    StateBatch,
    encode_snapshot,
    encode_update,
)
from share_source.driver.plan_offset import PlanOffset, initial_offset
from tests.support.hostile_requests import mutated
from tests.support.state_records import TOPIC_ID

ROWS = pa.table([["orders"], [0], [0], [9], [1], [3], [None], [False], ["why"]], schema=SCHEMA)
SNAPSHOT = encode_snapshot(ShareSnapshotValue(1, 2, None, None, 3, 4, (), None))
KEYS = [encode_key(GroupRecordKey("billing", 7)), encode_key(GroupSnapshotKey("billing", 7))]
KEYS += [encode_key(ShareSnapshotKey("billing", TOPIC_ID, 0))]
PLAN = {"orders": {"id": "T", "0": "0-9:1,20-29:2"}}
OFFSET = json.dumps({**initial_offset("billing", "m1"), "plan_id": "i.1", "plan": PLAN}).encode()
ENDPOINT = encode(Endpoint(host="127.0.0.1", port=1, token="t" * 20, pid=1))


def any_like(*whole: bytes) -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(max_size=200), st.sampled_from(whole).flatmap(mutated))


def outcome(read: Callable[[], Any]) -> None:
    """The reading ends with a value or a named error; another exception fails the test."""
    with contextlib.suppress(ShareGroupError):
        read()


@given(any_like(encode_record(GroupDeleted()), SNAPSHOT), any_like(*KEYS))
def test_any_state_record_is_read_or_refused_by_name(value: bytes, key: bytes) -> None:
    for read in (decode_record, decode_head, decode_snapshot, decode_update):
        outcome(lambda read=read: read(value))
    outcome(lambda: decode_key(key))
    log = GroupLog("billing", updates_per_snapshot=500)
    for offset, each in enumerate((key, *KEYS)):
        outcome(lambda offset=offset, each=each: log.read(each, value, offset))
    outcome(lambda: log.read_owner(key, value, 0))
    outcome(log.end)


RUN = Run(RecordState.ACQUIRED, 1, plan_id=7)
VERDICT = Verdict(1, AcknowledgeType.RELEASE, 5, delay_ms=5)
RANGES_OF_PLAN = (("orders", 0, ((0, 9), (20, 29))),)
RECORDS: list[Record] = [
    RunsChanged(topic_id="orders", partition=3, runs=((0, 9, RUN), (20, 29, RUN))),
    PlanAcquired(plan_id=7, member_id="m1", member_epoch=1, acquired_ms=5, ranges=RANGES_OF_PLAN),
    RangesAdded(plan_id=7, member_id="m1", ranges=RANGES_OF_PLAN),
    PlanStaged(plan_id=7, member_id="m1", partitions=(("orders", 0, ((0, 9, VERDICT), (20, 29, VERDICT))),)),
    PlanCompleted(plan_id=7, member_id="m1", records=3, breaker=Breaker(1, 2)),
    PartitionInitialized(topic_id="orders", partition=3, start_offset=5, totals=RecordTotals(reached=5, accepted=5)),
    OffsetsAltered(topic_id="orders", starts=((0, 5),), altered_after=7),
    TopicForgotten(topic_id="T", topic="orders", ends=((0, 5, 1),)),
]
NEVER = (-1, -(2**63), 2**63, 10**19)
"""Numbers that no offset, partition, count or plan id is; a time may be negative."""


def numbers_of(form: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the place of each number in lists and dictionaries."""
    for key, value in form.items() if isinstance(form, dict) else enumerate(form):
        if isinstance(value, dict | list):
            yield from numbers_of(value, (*at, key))
        elif type(value) is int:
            yield (*at, key)


@given(st.data())
def test_a_state_record_that_no_version_writes_is_refused_by_name(data: st.DataObject) -> None:
    """The checksum of such a record is right, since a program wrote the record so."""
    form = msgspec.msgpack.decode(encode_record(data.draw(st.sampled_from(RECORDS))))
    *way, last = data.draw(st.sampled_from(list(numbers_of(form))))
    inner = form
    for key in way:
        inner = inner[key]
    inner[last] = value = data.draw(st.sampled_from(NEVER) | st.integers(0, 40))
    written = msgspec.msgpack.encode(form)
    try:
        record = decode_record(written)
    except UnreadableRecord:
        return
    assert decode_record(encode_record(record)) == record
    assert -(2**63) <= value < 2**63
    for runs in _runs_of(record):
        offsets = [offset for first, end, _ in runs for offset in (first, end + 0.5)]
        assert offsets == sorted(set(offsets)) and offsets[0] >= 0


@given(st.lists(st.tuples(*[st.integers(-1, 9)] * 2), max_size=3), st.integers(-1, 2), st.integers(-1, 2))
def test_kafkas_records_that_no_version_writes_are_refused_by_name(
    ranges: list[tuple[int, int]], partition: int, count: int
) -> None:
    batches = tuple(StateBatch(first, last, RecordState.ACQUIRED, count) for first, last in ranges)
    offsets = [offset for first, last in ranges for offset in (first, last + 0.5)]
    is_possible = offsets == sorted(set(offsets)) and (not ranges or min(*offsets, count) >= 0)
    for value, write, read in (
        (ShareSnapshotValue(1, 2, None, None, 3, 4, batches), encode_snapshot, decode_snapshot),
        (ShareUpdateValue(1, None, None, batches), encode_update, decode_update),
    ):
        if is_possible:
            assert read(write(value)) == value
        else:
            with pytest.raises(UnreadableRecord):
                read(write(value))
    for key in (ShareSnapshotKey("billing", TOPIC_ID, partition), GroupRecordKey("billing", partition)):
        if partition >= 0:
            assert decode_key(encode_key(key)) == key
        else:
            with pytest.raises(UnreadableRecord, match="-1 is negative"):
                decode_key(encode_key(key))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "0", "-1", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
RANGES = st.sampled_from(
    ["0-9:1", "9-0:1", "-5-9:1", "0-9", "", "0-9:1,5-7:1", "0-99999999999999999999:1", "9" * 5_000, "0-9:-1"]
)


@given(
    st.dictionaries(st.sampled_from(["orders", ""]), st.fixed_dictionaries({"id": JSON, "0": RANGES | JSON}) | JSON)
    | JSON
)
def test_any_offset_in_a_checkpoint_is_read_or_refused_by_name(plan: Any) -> None:
    for offset in (
        {**initial_offset("billing", "m1"), "plan_id": "i.1", "plan": plan},
        {"version": SPARK_OFFSET, "plan": plan},
        plan,
    ):

        def read(offset: Any = offset) -> None:
            for part in PlanOffset.parse(offset, "billing").partitions():
                assert 0 <= part.partition < 2**31 and isinstance(part.topic_id, str)
                assert all(0 <= first <= last < 2**63 for first, last, _ in part.ranges)

        outcome(read)


@given(any_like(split_body(body_with_rows(b"{}", ROWS))[1].to_pybytes()))
def test_any_rows_are_read_or_refused_by_name(data: bytes) -> None:
    with contextlib.suppress(InvalidRequest):
        partition_outcomes(read_rows(pa.py_buffer(data), SCHEMA))


@given(any_like(ENDPOINT, OFFSET))
def test_any_endpoint_file_names_a_coordinator_or_none(data: bytes) -> None:
    found = decode_endpoint(data)
    assert found is None or isinstance(found, Endpoint)


FILES: dict[str, tuple[Callable[[str], Any], bytes]] = {
    "properties": (lambda path: read_properties(path, {}), b"a.b.c=x\n# n\na.b=${env:X}\\\n \\u0041"),
    "one token": (lambda path: read_token(path, {}), b"member alice:a-token-of-some-length\nread:another-token-0123\n"),
    "tokens": (lambda path: read_tokens(path, {}), b"member alice:a-token-of-some-length\nread:another-token-0123\n"),
}


@pytest.mark.parametrize("name", FILES)
def test_any_file_of_the_user_is_read_or_refused_by_name(name: str, tmp_path: Path) -> None:
    read, whole = FILES[name]
    path = tmp_path / "file"
    path.touch(mode=0o600)

    @given(any_like(whole))
    def reads(data: bytes) -> None:
        path.write_bytes(data)
        outcome(lambda: read(str(path)))

    reads()


@given(st.text(max_size=200))
def test_any_text_of_tokens_is_read_or_refused_by_name(text: str) -> None:
    outcome(lambda: Tokens.parse(text, "the test"))


def test_the_seeds_of_these_tests_are_read() -> None:
    assert decode_endpoint(ENDPOINT) == msgspec.json.decode(ENDPOINT, type=Endpoint)
    assert len(PlanOffset.parse(json.loads(OFFSET), "billing").partitions()[0].ranges) == 2
