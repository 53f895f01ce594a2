"""Allow lists: the topics that the coordinator's principal reads and writes for groups, and those of one token.

A member asks, and the coordinator reads and writes with its own principal (docs/run/security.md). So an administrator
may name the topics, by keys of the coordinator for all groups, and by fields of a token's line for its holder.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.protocol.errors import TopicNotAllowed
from coordinator.protocol.topic_names import EVERYTHING, is_allowed

SOURCE_KEY = "share.coordinator.source.topics"
DEAD_LETTER_KEY = "share.coordinator.dead.letter.topics"


@dataclass(frozen=True, kw_only=True, slots=True)
class AllowedTopics:
    """The source topics and the dead letter topics that are allowed, as patterns of whole names. ``token``: the rights
    and name of the token whose line has them; empty: they are the coordinator's keys."""

    source: str = EVERYTHING
    dead_letters: str = EVERYTHING
    token: str = ""

    def allows_source(self, topic: str) -> bool:
        """Whether a group may read the topic."""
        return is_allowed(self.source, topic)

    def check_source(self, topic: str) -> None:
        """Check that a group may read the topic.

        Raises:
            TopicNotAllowed: it may not.
        """
        if not self.allows_source(topic):
            raise self._refused(f"Topic {topic}", "read by a share group", self.source, SOURCE_KEY, "topics=")

    def check_pattern(self, pattern: str) -> None:
        """Check that members may subscribe by the pattern: it is the allowed one itself, since whether each topic that
        one pattern meets is met by another can't be told from the two.

        Raises:
            TopicNotAllowed: it is another one.
        """
        if self.source not in (EVERYTHING, pattern):
            what = f"The topics of the pattern {pattern}"
            raise self._refused(what, "read by a share group", self.source, SOURCE_KEY, "topics=")

    def allows_dead_letters(self, topic: str) -> bool:
        """Whether dead letters may be written to the topic."""
        return is_allowed(self.dead_letters, topic)

    def check_dead_letters(self, topic: str) -> None:
        """Check that dead letters may be written to the topic.

        Raises:
            TopicNotAllowed: they may not.
        """
        if not self.allows_dead_letters(topic):
            raise self._refused(f"Topic {topic}", "a dead letter topic", self.dead_letters, DEAD_LETTER_KEY, "dlq=")

    def _refused(self, what: str, use: str, pattern: str, key: str, field: str) -> TopicNotAllowed:
        if not self.token:
            return TopicNotAllowed(
                what=what, use=use, rule=key, pattern=pattern, where="that key in the coordinator's properties file"
            )
        rule, where = f"{field} of the token {self.token}", "that token's line in the coordinator's token file"
        return TopicNotAllowed(what=what, use=use, rule=rule, pattern=pattern, where=where)


ALL_TOPICS = AllowedTopics()
