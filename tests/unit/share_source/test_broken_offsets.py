"""A broken file of Spark's offset log is one named error. Spark's runner parses the file's JSON before it calls the
reader, whose `stop` it calls then."""

from __future__ import annotations

import json
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from share_source.driver.plan_offset import PlanOffset, initial_offset
from share_source.driver.reader_without_start import StreamReaderWithoutStart
from share_source.errors import CheckpointOfAnotherSource, ForeignCheckpoint, UnreadableOffset
from share_source.options import SourceOptions
from tests.support.source_driver import OPTIONS

WHOLE = json.dumps(initial_offset("billing", "m"))
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["group", "member", "version", "x"]), inner)
    ),
)


def as_sparks_runner(text: str) -> Any:
    """Parses the offset as Spark's runner does, and ends the reader whatever comes."""
    reader = StreamReaderWithoutStart(SourceOptions.parse(OPTIONS))
    try:
        return json.loads(text)
    finally:
        reader.stop()


def test_an_offset_that_was_cut_is_named_without_frames() -> None:
    for length in range(len(WHOLE)):
        with pytest.raises(
            UnreadableOffset, match=r"it is no JSON, .* Give the query a new checkpointLocation"
        ) as raised:
            as_sparks_runner(WHOLE[:length])
        assert "json/decoder.py" not in "".join(traceback.format_tb(raised.value.__traceback__))


def test_a_whole_offset_ends_the_reader_without_an_error() -> None:
    assert as_sparks_runner(WHOLE) == json.loads(WHOLE)


@given(ANY_JSON)
def test_any_json_in_place_of_an_offset_is_named(found: Any) -> None:
    try:
        parsed = PlanOffset.parse(found, "billing")
    except (CheckpointOfAnotherSource, ForeignCheckpoint, UnreadableOffset):
        return
    assert parsed.group_id == "billing"
