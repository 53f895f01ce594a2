"""The partitions whose leader did not answer while others did, or whose records a member could not read while it read
others. A thread asks their leaders, until they answer.

Rule: only an answer of the leader ends it. Meanwhile nobody waits for that leader who can go on without it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from coordinator.protocol.errors import BrokerNotReachable
from coordinator.protocol.outage import Outage
from coordinator.protocol.values import TopicAndPartition
from coordinator.service.brokers.cluster import LATEST, Cluster

PAUSE_S = 1.0
"""Seconds between two questions to leaders that are away."""

_log = logging.getLogger(__name__)


class AwayPartitions:
    """Thread-safe. ``back`` is called when a leader has answered again."""

    def __init__(self, cluster: Cluster, back: Callable[[], None]) -> None:
        self._cluster, self._back = cluster, back
        self._changed = threading.Condition()
        self._away: set[TopicAndPartition] = set()
        self._thread: threading.Thread | None = None
        self._closed = False
        hint = ", ShareConsumers get the records of others meanwhile"
        self._outage = Outage(_log, f"the leaders of some partitions on {cluster.addresses}", hint)

    def __repr__(self) -> str:
        return f"<AwayPartitions {sorted(self._away)}>"

    def of(self, partitions: Iterable[TopicAndPartition]) -> set[TopicAndPartition]:
        """Those of the partitions that are away."""
        with self._changed:
            return self._away.intersection(partitions) if self._away else set()

    def add(self, partitions: set[TopicAndPartition], since_s: float) -> None:
        """Note that the leaders of these have not answered a question that was sent at ``since_s``."""
        if not partitions:
            return
        for partition in partitions:
            self._outage.failed(_label(partition), since_s, _label(partition))
        with self._changed:
            self._away |= partitions
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="share-away-partitions", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread soon."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while partitions := self._to_ask():
            began_s = time.monotonic()
            try:
                away = self._cluster.answered_offsets(partitions, LATEST)[1]
            except BrokerNotReachable:  # none of them answers
                away = set(partitions)
            except Exception as error:  # noqa: BLE001 - a refusal is an answer: who asks next gets it by name
                _log.info("the leaders of some partitions: %s", error)
                away = set()
            self._answered(set(partitions) - away)
            self.add(away, began_s)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, PAUSE_S)

    def _to_ask(self) -> list[TopicAndPartition]:
        """The partitions to ask for; empty if the thread is to end."""
        with self._changed:
            if self._closed or not self._away:
                self._thread = None
                return []
            return sorted(self._away)

    def _answered(self, partitions: set[TopicAndPartition]) -> None:
        if not partitions:
            return
        with self._changed:
            self._away -= partitions
        for partition in partitions:
            self._outage.answered(_label(partition))
        self._back()


def _label(where: TopicAndPartition) -> str:
    return f"{where[0]}-{where[1]}"
