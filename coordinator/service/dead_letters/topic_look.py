"""Looks each minute whether the dead letter topics of groups exist, while the groups have members: a query names its
missing topic only when it ends for it, and its next dead letter may be hours away.

Rule: nothing is created or changed. A topic that the coordinator may not see, or that dead letters create, is not said
to be missing.
"""

from __future__ import annotations

import contextlib
import logging

from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.dead_letters.topic_check import is_stored_and_refused, partitions_of
from coordinator.service.runtime.transaction import Access, Groups, looking

EVERY_MS = 60_000
"""The topics are looked at again after this many milliseconds."""

_log = logging.getLogger(__name__)


class DeadLetterTopicLook:
    """``missing``: the groups, by id, whose dead letter topic did not exist at the last look. :meth:`look` is for one
    thread."""

    def __init__(self, groups: Groups, cluster: KafkaCluster) -> None:
        self._groups, self._cluster = groups, cluster
        self._once = LogOnce(_log)
        self.missing: frozenset[str] = frozenset()

    def look(self) -> None:
        """Look at the dead letter topic of each group that is served here and has a member with a session."""
        missing = set()
        for group_id, has_members in self._groups.served_groups().items():
            with contextlib.suppress(ShareGroupError):
                topic = self._missing_topic(group_id) if has_members else ""
                if self._once.changes(group_id, topic) and topic:
                    _log.warning("dead letter topic missing: group=%s topic=%s", group_id, topic)
                if topic:
                    missing.add(group_id)
        self.missing = frozenset(missing)

    def _missing_topic(self, group_id: str) -> str:
        config = self._groups.call(group_id, looking(lambda group: group.config), Access.PEEK)
        topic = config.errors_deadletterqueue_topic_name
        if not topic or config.errors_deadletterqueue_auto_create_topics_enable:
            return ""
        if is_stored_and_refused(self._cluster, topic, {}) or partitions_of(self._cluster, topic):
            return ""
        return topic
