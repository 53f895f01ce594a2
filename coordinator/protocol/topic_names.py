"""The topics that a query may subscribe to and that dead letters may be written to: patterns, allow lists, and the
topics that Kafka and sharegroup reserve.

Patterns are RE2's: a match takes time in proportion to the name, for any pattern. Any member may send a pattern, and
the coordinator matches it in the process that serves all groups. (Kafka's brokers use RE2/J, KIP-848.)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from coordinator.protocol.errors import InvalidTopicPattern, TopicKept, TopicNotWritten

EVERYTHING = ".*"
"""The pattern of an allow list that allows every name."""
MAX_PATTERN_CHARACTERS = 10_000
MAX_COMPILED_BYTES = 1 << 20
"""A compiled pattern has up to this many bytes: a few characters with counted repetitions may compile to many."""

KEPT = {
    "share-group-state": "sharegroup",
    "share-group-requests": "sharegroup",
    "share-group-admin-requests": "sharegroup",
    "share-group-replies": "sharegroup",
    "__consumer_offsets": "Kafka",
    "__transaction_state": "Kafka",
    "__share_group_state": "Kafka",
    "__cluster_metadata": "Kafka",
    "__remote_log_metadata": "Kafka",
}
"""The topics that no share group may read, that nothing is written to as a dead letter or by a redrive, and their
owners. A new topic of ours has its row here."""


def matches(pattern: str, topic: str) -> bool:
    """Whether the whole name matches, and the topic is not reserved. Names that begin with two underscores are internal
    by convention, and match no pattern.

    Raises:
        InvalidTopicPattern: the pattern is invalid.
    """
    if topic.startswith("__") or topic in KEPT:
        return False
    return _compiled(pattern).fullmatch(topic) is not None


def check_pattern(pattern: str) -> None:
    """Checks that a pattern is valid.

    Raises:
        InvalidTopicPattern: it is invalid, or too large.
    """
    _compiled(pattern)


def is_pattern(text: str) -> bool:
    """Whether the text is a valid pattern."""
    try:
        check_pattern(text)
    except InvalidTopicPattern:
        return False
    return True


def check_topic(topic: str) -> None:
    """Checks that queries may read the topic.

    Raises:
        TopicKept: it is reserved.
    """
    if topic in KEPT:
        raise TopicKept(topic=topic, owner=KEPT[topic])


def is_allowed(pattern: str, name: str) -> bool:
    """Whether an allow list, a pattern for the whole name, allows the name of a topic or group. The pattern ``.*``
    allows every name.

    Raises:
        InvalidTopicPattern: the pattern is invalid.
    """
    return pattern == EVERYTHING or _compiled(pattern).fullmatch(name) is not None


def is_reserved(topic: str) -> bool:
    """Whether nothing may be written to the topic as a dead letter or by a redrive: it is in KEPT, or its name begins
    with two underscores, as Kafka's own and those of its tools do."""
    return topic in KEPT or topic.startswith("__")


def check_written(topic: str) -> None:
    """Checks that dead letters and redriven records may be written to the topic. Each producer calls this for a topic
    that data or a configuration names: a principal that may write to a reserved topic must not do it for somebody who
    may not.

    Raises:
        TopicNotWritten: it is reserved.
    """
    if is_reserved(topic):
        owner = KEPT.get(topic)
        why = f"{owner} keeps its own state in it" if owner else "names that begin with two underscores are internal"
        raise TopicNotWritten(topic=topic, why=why)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise InvalidTopicPattern(
            pattern=_short(pattern), problem=f"it is longer than {MAX_PATTERN_CHARACTERS} characters"
        )
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_COMPILED_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        problem = error.args[0]
        text = problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
    except UnicodeError:
        text = "it is no text"
    raise InvalidTopicPattern(pattern=_short(pattern), problem=text)


def _short(pattern: str) -> str:
    return pattern if len(pattern) <= 200 else f"{pattern[:200]}..."
