"""For how long topics have been missing from the brokers' metadata.

Rule: if no broker shows a topic, the topic may be deleted, or the broker that answers may lag behind or have just
started. The topic's records count as lost only after DOUBT_REFRESHES metadata refreshes (a minute, by default) in which
it was missing from every answer. The doubt ends when the topic is shown again. A topic that is shown under another id
needs no doubt. Every check whether a topic is deleted is made here."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.brokers.subscription import topic_ids_not_shown

DOUBT_REFRESHES = 6
"""A missing topic counts as deleted after this many metadata refreshes (share.coordinator.metadata.refresh.ms, 10 s by
default): Kafka's brokers learn of a change within a second, and a broker that is cut off from its controller is fenced
after 9 s."""
DOUBT_S = 60.0
"""A doubt lasts this many seconds by default: DOUBT_REFRESHES of 10 s."""
MOST_DOUBTS = 10_000
"""Beyond this many topics in doubt, those that no request named within FORGOTTEN_S are forgotten."""
FORGOTTEN_S = 3_600.0


class LookedAt(NamedTuple):
    """Topic ids that no topic of their name has now. ``remade``: another topic has the name. ``missing``: no topic has
    had the name for so long that the topic counts as deleted. ``in_doubt``: no topic has the name, but the topic may
    come back."""

    remade: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    in_doubt: frozenset[str] = frozenset()

    @property
    def deleted(self) -> frozenset[str]:
        return self.remade | self.missing

    @property
    def not_shown(self) -> frozenset[str]:
        return self.deleted | self.in_doubt


class TopicDoubts:
    """The topics, by id, that are missing. Thread-safe. ``lasts_s``: the seconds of a doubt."""

    def __init__(self, lasts_s: float = DOUBT_S) -> None:
        self._lasts_s = lasts_s
        self._lock = threading.Lock()
        self._since_s: dict[str, tuple[float, float]] = {}

    def look(
        self,
        cluster: KafkaCluster,
        topics: Mapping[str, str],
        group_id: str,
        *,
        topic_ids: bool,
        past: frozenset[str] = frozenset(),
    ) -> LookedAt:
        """Ask the brokers for these topics (names by id). ``topic_ids`` and ``past`` as in ``topic_ids_not_shown``."""
        found = topic_ids_not_shown(cluster, topics, group_id, topic_ids=topic_ids, past=past)
        self.shown(topics.keys() - found.missing)
        missing = self.missing(found.missing)
        return LookedAt(found.remade, missing, found.missing - missing)

    def shown(self, topic_ids: Iterable[str]) -> None:
        """Record that the brokers show these topics: a doubt about one of them ends."""
        with self._lock:
            if self._since_s:
                for topic_id in topic_ids:
                    self._since_s.pop(topic_id, None)

    def missing(self, topic_ids: Iterable[str]) -> frozenset[str]:
        """Record that the brokers do not show these topics. Returns those that count as deleted now."""
        now_s = time.monotonic()
        with self._lock:
            for topic_id in topic_ids:
                self._since_s[topic_id] = (self._since_s.get(topic_id, (now_s, 0.0))[0], now_s)
            over = frozenset(i for i in topic_ids if now_s - self._since_s[i][0] >= self._lasts_s)
            if len(self._since_s) > MOST_DOUBTS:
                self._since_s = {i: at for i, at in self._since_s.items() if now_s - at[1] <= FORGOTTEN_S}
            return over
