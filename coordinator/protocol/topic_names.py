"""Which topics a query may ask for: patterns, and what Kafka and sharegroup keep for themselves.

Patterns are RE2's: a match takes time in proportion to the name, whatever the pattern. Whoever may join may name one,
and the coordinator matches it in the process that serves everybody's groups. (Kafka's brokers match by RE2/J, KIP-848.)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from coordinator.protocol.errors import InvalidTopicPattern, TopicKept

MOST_LETTERS = 10_000
MOST_BYTES = 1 << 20
"""Of a compiled pattern; counted repetitions make large ones of a few letters."""

KEPT = {
    "share-group-state": "sharegroup",
    "__consumer_offsets": "Kafka",
    "__transaction_state": "Kafka",
    "__share_group_state": "Kafka",
    "__cluster_metadata": "Kafka",
    "__remote_log_metadata": "Kafka",
}
"""Topics that nobody reads as a queue, and whose they are."""


def matches(pattern: str, topic: str) -> bool:
    """Whether the whole name matches, and the topic is nobody's own: names that begin with two underscores are internal
    ones by convention, and in no pattern. InvalidTopicPattern."""
    if topic.startswith("__") or topic in KEPT:
        return False
    return _compiled(pattern).fullmatch(topic) is not None


def check_pattern(pattern: str) -> None:
    """InvalidTopicPattern if it is none, or too large."""
    _compiled(pattern)


def check_topic(topic: str) -> None:
    """TopicKept if it is not for queries."""
    if topic in KEPT:
        raise TopicKept(topic=topic, owner=KEPT[topic])


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    if len(pattern) > MOST_LETTERS:
        raise InvalidTopicPattern(pattern=_short(pattern), problem=f"it is longer than {MOST_LETTERS} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MOST_BYTES
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
