"""The dead letters that lie in a topic."""

from __future__ import annotations

from typing import NamedTuple

from tests.support.kafka_log import messages_of

PREFIX = "__dlq.errors."
Headers = tuple[tuple[str, bytes | None], ...]


class DeadLetter(NamedTuple):
    """One dead letter. ``headers``: all, in order; ``said``: the headers of dead letters as text, without their
    prefix."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def said(self) -> dict[str, str]:
        return {name[len(PREFIX) :]: (value or b"").decode() for name, value in self.headers if name.startswith(PREFIX)}

    @property
    def own_headers(self) -> Headers:
        """Those that the record had."""
        return tuple(header for header in self.headers if not header[0].startswith(PREFIX))

    @property
    def origin(self) -> tuple[str, int, int]:
        """Topic, partition and offset of the record: what makes two dead letters one."""
        said = self.said
        return said["topic"], int(said["partition"]), int(said["offset"])


def read_dead_letters(bootstrap: str, topic: str) -> list[DeadLetter]:
    """All that lie there now, by partition and offset."""
    return read_records(bootstrap, topic)


def read_records(bootstrap: str, topic: str) -> list[DeadLetter]:
    """As above, of a topic of any records."""
    return [
        DeadLetter(each.partition(), each.offset(), each.key(), each.value(), tuple(each.headers() or ()))
        for each in messages_of(bootstrap, topic)
    ]


def timestamps(bootstrap: str, topic: str) -> dict[tuple[int, int], str]:
    """The records' timestamps as their dead letters have them, by partition and offset."""
    return {(m.partition() or 0, m.offset() or 0): str(m.timestamp()[1]) for m in messages_of(bootstrap, topic)}
