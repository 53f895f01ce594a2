"""◆ The reader on Spark 4.0 and 4.1, called in the order in which these call it (docs/trust/facts.md, S25 and S26)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coordinator.protocol.messages import JoinGroup, LeaveGroup, NextPlan, StartPlan
from share_source.driver.reader_without_start import StreamReaderWithoutStart
from share_source.errors import LogNotTold
from share_source.options import SourceOptions
from tests.support.group_driver import GroupDriver
from tests.support.source_driver import OPTIONS, DriverClient, opening


@contextmanager
def reading(client: DriverClient, **options: str) -> Iterator[StreamReaderWithoutStart]:
    """The reader of a query's new process, which is killed at the end: its session stays."""
    with opening(client):
        source = StreamReaderWithoutStart(SourceOptions.parse({**OPTIONS, "maxOffsetsPerTrigger": "60", **options}))
        try:
            yield source
        finally:
            source.stop()


def held(client: DriverClient) -> list[str]:
    return client.group.dump()


def test_a_new_query_begins_with_an_offset_that_names_its_member() -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        end = source.latestOffset()
        start = source.initialOffset()
        assert start["member"] == end["member"] and source.partitions(start, end)
        assert held(client) == ["[0..59] ACQUIRED 1 0 1"], "a batch has maxOffsetsPerTrigger records"
        after = source.latestOffset()
        assert source.partitions(end, after)
        assert source.latestOffset() == source.latestOffset() == after, "nothing is left"
    assert held(client) == []


def test_an_uncommitted_batch_is_replayed_and_then_completed() -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        end = source.latestOffset()
        source.partitions(source.initialOffset(), end)
    with reading(client) as source:
        assert source.partitions(end, end) == []
        assert len(client.of(StartPlan)) == 1, "Spark only tells where its log ends"
        assert source.partitions(source.initialOffset(), end)
        assert held(client) == ["[0..59] ACQUIRED 2 1 1"]
        source.latestOffset()
    assert held(client) == ["[60..99] ACQUIRED 1 0 2"]


def test_after_a_commit_the_next_process_completes_and_delivers_nothing_again() -> None:
    """The process before died, or its run was over, before Spark asked it again."""
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        end = source.latestOffset()
        source.partitions(source.initialOffset(), end)
    with reading(client) as source:
        assert source.partitions(end, end) == []
        after = source.latestOffset()
        assert after["member"] == end["member"]
        assert source.partitions(end, after)
    assert held(client) == ["[60..99] ACQUIRED 1 0 2"]
    assert [request.start for request in client.of(NextPlan)] == ["", end["plan_id"]]


def test_a_plan_that_spark_never_logged_comes_to_others() -> None:
    client = DriverClient(GroupDriver(records=60))
    with reading(client) as source:
        source.latestOffset()
    with reading(client) as source:
        assert not source.latestOffset().get("plan_id"), "without a log the process is somebody new"
        client.group.pass_time(46_000)
        assert source.latestOffset()["plan_id"]
    assert held(client) == ["[0..59] ACQUIRED 2 0 2"]


def test_an_idle_query_answers_the_offset_that_spark_has() -> None:
    client = DriverClient(GroupDriver(records=0))
    with reading(client) as source:
        assert source.latestOffset() == source.initialOffset() == source.latestOffset()
        idle = source.initialOffset()
    with reading(client) as source:
        source.partitions(idle, idle)
        assert source.latestOffset() == idle
    assert len({join.member_id for join in client.of(JoinGroup)}) == 1


def test_a_reader_asked_before_it_knows_the_log_acknowledges_nothing() -> None:
    """As by Spark's wrapper for AvailableNow: a batch that is committed and one to be replayed look alike."""
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        end = source.latestOffset()
        source.partitions(source.initialOffset(), end)
    with reading(client) as source:
        source.latestOffset()
        with pytest.raises(LogNotTold, match="triggerAvailableNowWrapper"):
            source.partitions(end, end)
    assert held(client) == ["[0..59] ACQUIRED 1 0 1", "[60..99] AVAILABLE 1 0 2"], "others get the rest at once"
    assert len(client.of(LeaveGroup)) == 1


def test_a_reader_whose_answer_was_not_logged_refuses_the_next_question() -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        source.latestOffset()
        source.initialOffset()
        with pytest.raises(LogNotTold):
            source.latestOffset()
    assert held(client) == ["[0..59] AVAILABLE 1 0 1"]
