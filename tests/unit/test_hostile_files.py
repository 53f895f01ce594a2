"""A file, a state record or a checkpoint may have any bytes: it gives a value or a named error."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.config.properties_file import read_properties
from coordinator.core.record_codec import decode_head, decode_record, encode_record
from coordinator.core.records import GroupDeleted
from coordinator.protocol.errors import InvalidRequest, ShareGroupError
from coordinator.protocol.format_versions import SPARK_OFFSET
from coordinator.protocol.outcome_rows import SCHEMA, partition_outcomes
from coordinator.protocol.request_rows import body_with_rows, read_rows, split_body
from coordinator.protocol.rights import Tokens
from coordinator.protocol.secret_files import read_token, read_tokens
from coordinator.protocol.wire import Endpoint, decode_endpoint, encode
from coordinator.state_log.group_log import GroupLog
from coordinator.state_log.record_keys import GroupRecordKey, GroupSnapshotKey, ShareSnapshotKey, decode_key, encode_key
from coordinator.state_log.record_values import ShareSnapshotValue, decode_snapshot, decode_update, encode_snapshot
from share_source.plan_offset import PlanOffset, initial_offset
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
    "properties": (
        lambda path: read_properties(path, {}),
        b"a.b.c=x\n# n\na.b=${env:X}\\\n \\u0041",
    ),
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
