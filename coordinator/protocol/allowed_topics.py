"""Allow lists of topics: those of the coordinator for all groups, and those of one token for its holder.

The coordinator reads and writes topics for members with its own principal (docs/run/security.md). So an administrator
may limit these topics, by keys of the coordinator's configuration, and by fields of a token's line."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.protocol.errors import TopicNotAllowed
from coordinator.protocol.topic_names import EVERYTHING, is_allowed

SOURCE_KEY = "share.coordinator.source.topics"
DEAD_LETTER_KEY = "share.coordinator.dead.letter.topics"


@dataclass(frozen=True, kw_only=True, slots=True)
class AllowedTopics:
    """The allowed source topics and dead letter topics, as patterns for whole names. ``token``: the rights and name of
    the token whose line has these lists; empty if they are the coordinator's."""

    source: str = EVERYTHING
    dead_letters: str = EVERYTHING
    token: str = ""

    def allows_source(self, topic: str) -> bool:
        return is_allowed(self.source, topic)

    def check_source(self, topic: str) -> None:
        """Check that a group may read the topic. Raises TopicNotAllowed."""
        if not self.allows_source(topic):
            raise self._refused(f"Topic {topic}", "read by a share group", self.source, SOURCE_KEY, "topics=")

    def check_pattern(self, pattern: str) -> None:
        """Check that members may subscribe by the pattern: it must be the allowed pattern itself, because one can't
        tell whether a pattern matches only topics that another matches. Raises TopicNotAllowed."""
        if self.source not in (EVERYTHING, pattern):
            what = f"The topics of the pattern {pattern}"
            raise self._refused(what, "read by a share group", self.source, SOURCE_KEY, "topics=")

    def allows_dead_letters(self, topic: str) -> bool:
        return is_allowed(self.dead_letters, topic)

    def check_dead_letters(self, topic: str) -> None:
        """Check that dead letters may be written to the topic. Raises TopicNotAllowed."""
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
