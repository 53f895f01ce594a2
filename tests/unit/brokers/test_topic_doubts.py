"""A topic that the brokers do not show is in doubt for a minute; a topic that is shown again was never gone."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

from coordinator.service.brokers import topic_doubts
from coordinator.service.brokers.topic_doubts import TopicDoubts


@contextmanager
def clock() -> Iterator[list[float]]:
    """The seconds of the doubts' clock."""
    now_s = [1_000.0]
    with mock.patch.object(topic_doubts, "time", SimpleNamespace(monotonic=lambda: now_s[0])):
        yield now_s


def test_a_topic_is_deleted_only_when_it_was_missing_for_a_minute() -> None:
    doubts = TopicDoubts(60.0)
    with clock() as now_s:
        assert doubts.missing(["T"]) == set()
        now_s[0] += 59.9
        assert doubts.missing(["T", "U"]) == set()
        now_s[0] += 0.1
        assert doubts.missing(["T", "U"]) == {"T"}


def test_a_doubt_ends_when_the_topic_is_shown() -> None:
    doubts = TopicDoubts(60.0)
    with clock() as now_s:
        for _ in range(3):
            assert doubts.missing(["T"]) == set()
            now_s[0] += 40
            doubts.shown(["T"])
