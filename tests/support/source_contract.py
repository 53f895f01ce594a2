"""The promises of a query's reader on every Spark, whichever protocol that speaks. A protocol's test module makes a
subclass of SourceContract, which calls the reader as that Spark does; what it alone promises is tested beside it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from coordinator.protocol.messages import JoinGroup, NextPlan, StartPlan
from tests.support.group_driver import SESSION_MS, GroupDriver
from tests.support.source_driver import DriverClient

LIMIT = 60
"""A batch has at most this number of records."""


class SourceContract:
    """``reading``: the reader of a query's new process, which is killed at the end; its session stays."""

    def reading(self, client: DriverClient) -> AbstractContextManager[Any]:
        raise NotImplementedError

    def begin(self, source: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the start and the end of a new query's first batch."""
        raise NotImplementedError

    def ask(self, source: Any, end: dict[str, Any]) -> dict[str, Any]:
        """Returns the end of the batch that follows the one that Spark committed."""
        raise NotImplementedError

    def restarted(self, source: Any, end: dict[str, Any]) -> None:
        """Calls what Spark calls first in a process whose log ends there."""

    def test_a_new_query_takes_batches_until_nothing_is_left(self):
        client = DriverClient(GroupDriver(records=100))
        with self.reading(client) as source:
            start, end = self.begin(source)
            assert start["member"] == end["member"] and source.partitions(start, end)
            assert client.group.dump() == ["[0..59] ACQUIRED 1 0 1"]
            after = self.ask(source, end)
            assert source.partitions(end, after)
            assert self.ask(source, after) == self.ask(source, after) == after
        assert client.group.dump() == []

    def test_an_uncommitted_batch_is_replayed_and_then_completed(self):
        client = DriverClient(GroupDriver(records=100))
        with self.reading(client) as source:
            start, end = self.begin(source)
            source.partitions(start, end)
        with self.reading(client) as source:
            self.restarted(source, end)
            assert len(client.of(StartPlan)) == 1, "the batch has not begun again"
            assert source.partitions(source.initialOffset(), end)
            assert client.group.dump() == ["[0..59] ACQUIRED 2 1 1"]
            self.ask(source, end)
        assert client.group.dump() == ["[60..99] ACQUIRED 1 0 2"]

    def test_after_a_commit_the_next_process_completes_and_delivers_nothing_again(self):
        """The process before died, or its run was over, before Spark asked it again."""
        client = DriverClient(GroupDriver(records=100))
        with self.reading(client) as source:
            start, end = self.begin(source)
            source.partitions(start, end)
        with self.reading(client) as source:
            self.restarted(source, end)
            after = self.ask(source, end)
            assert after["member"] == end["member"]
            assert source.partitions(end, after)
        assert client.group.dump() == ["[60..99] ACQUIRED 1 0 2"]
        assert [request.start for request in client.of(NextPlan)] == ["", end["plan_id"]]

    def test_a_plan_that_spark_never_logged_comes_to_others(self):
        client = DriverClient(GroupDriver(records=LIMIT))
        with self.reading(client) as source:
            self.begin(source)
        with self.reading(client) as source:
            _, end = self.begin(source)
            assert not end.get("plan_id"), "without a log the process is somebody new"
            client.group.pass_time(SESSION_MS + 1)
            assert self.ask(source, end)["plan_id"]
        assert client.group.dump() == ["[0..59] ACQUIRED 2 0 2"]

    def test_an_idle_query_answers_the_offset_that_spark_has(self):
        client = DriverClient(GroupDriver(records=0))
        with self.reading(client) as source:
            start, end = self.begin(source)
            assert start == end == self.ask(source, end)
        with self.reading(client) as source:
            self.restarted(source, end)
            assert self.ask(source, end) == end
        assert len({join.member_id for join in client.of(JoinGroup)}) == 1
