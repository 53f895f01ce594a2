"""Looks each minute whether the dead letter topics of groups exist, while the groups have members: a query reports its
missing topic only when it ends because of it, and its next dead letter may be hours away.

Rule: nothing is created or changed. A topic that the coordinator may not see, or that dead letters create, is not
reported as missing."""

from __future__ import annotations

import contextlib
import logging

from coordinator.protocol.errors import BrokerRefused, ShareGroupError
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.dead_letters.topic_check import is_stored_and_refused
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
        topics: dict[str, str] = {}
        for group_id, has_members in self._groups.served_groups().items():
            with contextlib.suppress(ShareGroupError):
                topics[group_id] = self._topic_of(group_id) if has_members else ""
        missing: set[str] = set()
        with contextlib.suppress(ShareGroupError):
            missing = self._missing(sorted(set(topics.values()) - {""}))
            for group_id, topic in topics.items():
                is_missing = topic in missing
                if self._once.changes(group_id, topic if is_missing else "") and is_missing:
                    _log.warning("dead letter topic missing: group=%s topic=%s", group_id, topic)
        self.missing = frozenset(group_id for group_id, topic in topics.items() if topic in missing)

    def _topic_of(self, group_id: str) -> str:
        """The topic that must exist; empty if there is none."""
        config = self._groups.call(group_id, looking(lambda group: group.config), Access.PEEK)
        topic = config.errors_deadletterqueue_topic_name
        if not topic or config.errors_deadletterqueue_auto_create_topics_enable:
            return ""
        return "" if is_stored_and_refused(self._cluster, topic, {}) else topic

    def _missing(self, names: list[str]) -> set[str]:
        """Those of the topics that do not exist, by one request. A refusal does not say which topic it concerns."""
        try:
            return set(names) - self._cluster.topics(names).keys()
        except BrokerRefused:
            half = len(names) // 2
            return self._missing(names[:half]) | self._missing(names[half:]) if half else set()
