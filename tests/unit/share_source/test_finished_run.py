"""A program completes the last batch of a run that is over, where Spark does not say that it was committed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from share_source.driver.reader_without_start import StreamReaderWithoutStart
from share_source.errors import ForeignCheckpoint
from share_source.options import SourceOptions
from sharegroup import complete_run
from tests.support.group_driver import GroupDriver
from tests.support.source_driver import OPTIONS, DriverClient, opening


def over(*ends: Any, is_active: bool = False) -> Any:
    """A query whose last progress names these ends of its sources."""
    sources = [{"endOffset": json.dumps(end)} for end in ends]
    progress = SimpleNamespace(json=json.dumps({"sources": sources})) if ends else None
    return SimpleNamespace(isActive=is_active, lastProgress=progress, name="nightly", id="1")


def one_run(client: DriverClient) -> Any:
    """The end of the one batch of a run, which Spark has committed."""
    reader = StreamReaderWithoutStart(SourceOptions.parse({**OPTIONS, "maxOffsetsPerTrigger": "60"}))
    end = reader.latestOffset()
    reader.partitions(reader.initialOffset(), end)
    reader.stop()
    return end


def test_the_last_batch_is_completed_and_nothing_is_acquired() -> None:
    client = DriverClient(GroupDriver(records=100))
    with opening(client):
        end = one_run(client)
        assert client.group.dump() == ["[0..59] ACQUIRED 1 0 1"]
        assert complete_run(over({"another": "source"}, end), OPTIONS) == [end["plan_id"]]
        assert client.group.dump() == [] and client.group.partition().start_offset == 60
        assert not client.group.group.sessions, "the member has left: nobody waits for a session"
        assert complete_run(over(end), OPTIONS) == [end["plan_id"]], "twice is harmless"


def test_the_next_run_continues_after_the_completed_batch() -> None:
    client = DriverClient(GroupDriver(records=100))
    with opening(client):
        end = one_run(client)
        complete_run(over(end), OPTIONS)
        reader = StreamReaderWithoutStart(SourceOptions.parse(OPTIONS))
        reader.partitions(end, end)
        assert reader.partitions(end, reader.latestOffset())
        reader.stop()
    assert client.group.dump() == ["[60..99] ACQUIRED 1 0 2"]


def test_a_run_that_committed_nothing_completes_nothing() -> None:
    client = DriverClient(GroupDriver(records=100))
    with opening(client):
        assert complete_run(over(), OPTIONS) == complete_run(
            over({"group": "billing", "member": "m", "version": 1}), OPTIONS
        )
    assert not client.asked


@pytest.mark.parametrize(
    ("query", "options", "says"),
    [
        (None, OPTIONS, "no NoneType"),
        (over(), None, "no NoneType"),
        (over({"version": 1, "group": "payments", "member": "m"}), OPTIONS, "belongs to share group payments"),
    ],
    ids=["no query", "no options", "of another group"],
)
def test_what_belongs_to_no_run_of_the_group_is_named(query: Any, options: Any, says: str) -> None:
    with pytest.raises((TypeError, ForeignCheckpoint), match=says):
        complete_run(query, options)


def test_a_batch_in_which_the_query_stopped_stays_to_be_replayed() -> None:
    client = DriverClient(GroupDriver(records=100))
    with opening(client):
        reader = StreamReaderWithoutStart(SourceOptions.parse({**OPTIONS, "maxOffsetsPerTrigger": "60"}))
        first = reader.latestOffset()
        reader.partitions(reader.initialOffset(), first)
        second = reader.latestOffset()
        reader.partitions(first, second)
        reader.stop()
        assert complete_run(over(first), OPTIONS) == []
    assert client.group.dump() == ["[60..99] ACQUIRED 1 0 2"], "nobody else gets them before the session ends"
