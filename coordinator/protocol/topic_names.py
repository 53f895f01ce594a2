"""Checks topic names: by patterns, by allow lists, and for the names that Kafka and sharegroup reserve.

Patterns are in RE2's syntax, in which a match takes time in proportion to the name: any member may send a pattern,
which is matched in the process that serves all groups. (Kafka's brokers use RE2/J, KIP-848.)"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2

from coordinator.protocol.errors import InvalidTopicPattern, TopicKept, TopicNotWritten

EVERYTHING = ".*"
"""The pattern of an allow list that allows every name."""
ALL_TOPICS = "*"
"""In a list of topics: all topics of the group."""
MAX_PATTERN_CHARACTERS = 10_000
MAX_COMPILED_BYTES = 1 << 20
"""A pattern that compiles to more bytes is refused: a few characters with counted repetitions may compile to many."""

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
"""Reserved topics with their owners: no share group may read them, and neither dead letters nor redriven records are
written to them. Add each new topic of sharegroup here."""

_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}", re.ASCII)


def is_topic_name(text: str) -> bool:
    """Whether Kafka accepts the text as a topic's name."""
    return _NAME.fullmatch(text) is not None


def matches(pattern: str, topic: str) -> bool:
    """Whether the whole name matches, and the topic is neither reserved nor internal: by convention, names of internal
    topics begin with two underscores. Raises InvalidTopicPattern if the pattern is invalid."""
    if topic.startswith("__") or topic in KEPT:
        return False
    return _compiled(pattern).fullmatch(topic) is not None


def check_pattern(pattern: str) -> None:
    """Check that a pattern is valid, and not too large. Raises InvalidTopicPattern."""
    _compiled(pattern)


def is_list(text: str) -> bool:
    """Whether a text that should be a pattern is a list of topics: it has a comma outside of a counted repetition, as
    in a{2,3}, and no topic's name has a comma."""
    return "," in re.sub(r"\{[\d,]*\}", "", text)


def topics_in(text: str) -> list[str]:
    """The topics in a list with commas, without blanks around them."""
    return [name.strip() for name in text.split(",")] if text.strip() else []


def is_topic_list(text: str) -> bool:
    """Whether the text is a list of topics' names, or of ALL_TOPICS alone; an empty list is one."""
    return text.strip() == ALL_TOPICS or all(map(is_topic_name, topics_in(text)))


def is_pattern(text: str) -> bool:
    """Whether the text is a valid pattern."""
    try:
        check_pattern(text)
    except InvalidTopicPattern:
        return False
    return True


def check_topic(topic: str) -> None:
    """Check that the topic is not reserved, so that share groups may read it. Raises TopicKept."""
    if topic in KEPT:
        raise TopicKept(topic=topic, owner=KEPT[topic])


def is_allowed(pattern: str, name: str) -> bool:
    """Whether an allow list, which is a pattern for the whole name, allows the name of a topic or group. Raises
    InvalidTopicPattern if the pattern is invalid."""
    return pattern == EVERYTHING or _compiled(pattern).fullmatch(name) is not None


def is_reserved(topic: str) -> bool:
    """Whether neither dead letters nor redriven records may be written to the topic: it is in KEPT, or its name begins
    with two underscores, as the names of Kafka's own topics do."""
    return topic in KEPT or topic.startswith("__")


def check_written(topic: str) -> None:
    """Check that dead letters and redriven records may be written to the topic. Call this for each topic that data or a
    configuration names: the principal may have the right to write to a reserved topic, and whoever named it may not.
    Raises TopicNotWritten if the topic is reserved."""
    if is_reserved(topic):
        owner = KEPT.get(topic)
        why = f"{owner} keeps its own state in it" if owner else "names that begin with two underscores are internal"
        raise TopicNotWritten(topic=topic, why=why)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    shown = pattern if len(pattern) <= 200 else f"{pattern[:200]}..."
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise InvalidTopicPattern(pattern=shown, problem=f"it is longer than {MAX_PATTERN_CHARACTERS} characters")
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
    raise InvalidTopicPattern(pattern=shown, problem=text)
