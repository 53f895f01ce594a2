"""◆ The reader on Spark 4.0 and 4.1, called in the order in which these call it (docs/trust/facts.md, S25 and S26)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coordinator.protocol.messages import LeaveGroup
from share_source.driver.reader_without_start import StreamReaderWithoutStart
from share_source.errors import LogNotTold
from share_source.options import SourceOptions
from tests.support.group_driver import GroupDriver
from tests.support.source_contract import LIMIT, SourceContract
from tests.support.source_driver import OPTIONS, DriverClient, opening


@contextmanager
def reading(client: DriverClient, **options: str) -> Iterator[StreamReaderWithoutStart]:
    """The reader of a query's new process, which is killed at the end: its session stays."""
    with opening(client):
        source = StreamReaderWithoutStart(
            SourceOptions.parse({**OPTIONS, "maxOffsetsPerTrigger": str(LIMIT), **options})
        )
        try:
            yield source
        finally:
            source.stop()


def held(client: DriverClient) -> list[str]:
    return client.group.dump()


class TestContract(SourceContract):
    def reading(self, client):
        return reading(client)

    def begin(self, source):
        end = source.latestOffset()
        return source.initialOffset(), end

    def ask(self, source, end):
        return source.latestOffset()

    def restarted(self, source, end):
        assert source.partitions(end, end) == [], "Spark only tells where its log ends"


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
