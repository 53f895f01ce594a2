"""Whether the topics of a ShareConsumer's records still have their ids: a ShareConsumer reads by a topic's name.

Rules: an outcome counts as success only if the record is certainly of the group's topic, not of a topic that was
created again under the name. No record is handed out if its topic has another id by then. A fetch of the ids that
begins after the request decides. The fetch runs beside the append, and the reply waits for both. The outcome is stored
in either case: nobody reads the deleted topic's records any more."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

from coordinator.core.looks.view import GroupView
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import PartitionAcks
from coordinator.service.brokers.broker_watch import BrokerWatch
from coordinator.service.brokers.topic_looks import Ids

REMADE = "UNKNOWN_TOPIC_ID"
"""Kafka's error of a topic id that no topic has."""
ANSWER_S = 0.5
"""A reply waits this many seconds for the brokers. Without their answer the topics count as the same: a consumer must
not wait for unreachable brokers."""
UNANSWERED_S = 1.0
"""After a reply has waited ANSWER_S in vain, no other reply waits for this many seconds."""

_log = logging.getLogger(__name__)


class RemadeTopics:
    """Checks the topics of requests. Thread-safe."""

    def __init__(self, watch: BrokerWatch) -> None:
        self._watch = watch
        self._waits_from_s = 0.0

    def look(
        self, names: Iterable[str], group: Callable[[], GroupView]
    ) -> Callable[[Mapping[str, str]], frozenset[str]]:
        """Begin to fetch the ids of the topics of these names. Returns a function that takes topics (names by id),
        waits for the answer, and returns those ids whose name another topic has. ``group`` is called only if a name has
        another id than is known."""
        wanted = set(names)
        if not wanted or time.monotonic() < self._waits_from_s:
            return lambda topics: frozenset()
        answer = self._watch.look(wanted)

        def remade(topics: Mapping[str, str]) -> frozenset[str]:
            ids = self._answer(answer)
            other = {topic_id for topic_id, topic in topics.items() if ids.get(topic, topic_id) != topic_id}
            if not other or not (view := group()).topic_ids:
                return frozenset()
            # A broker that answers with a past id does not know the newer topic yet.
            return frozenset(topic_id for topic_id in other if ids[topics[topic_id]] not in view.past)

        return remade

    def look_at_acknowledged(
        self, partitions: Iterable[PartitionAcks], group: Callable[[], GroupView]
    ) -> Callable[[], dict[str, str]]:
        """The same as :meth:`look`, for the topics of these acknowledgements. Returns a function that waits for the
        answer and returns an error for each partition whose topic was deleted or created again. ``group`` is also
        called for the names of topics that this process has not seen."""
        named = tuple(partitions)
        topics, past = self._names({acks.topic_id for acks in named}, group)
        remade = self.look(topics.values(), group)

        def errors() -> dict[str, str]:
            of = remade(topics) | past
            return {f"{acks.topic_id}:{acks.partition}": REMADE for acks in named if acks.topic_id in of}

        return errors

    def _answer(self, looked: Future[Ids]) -> Ids:
        try:
            return looked.result(ANSWER_S)
        except (FutureTimeout, ShareGroupError) as error:
            self._waits_from_s = time.monotonic() + UNANSWERED_S
            _log.info("the brokers do not say which topics were created again: %r", error)
            return {}

    def _names(self, topic_ids: set[str], group: Callable[[], GroupView]) -> tuple[dict[str, str], frozenset[str]]:
        """Returns names by id; none if the group does not know its topics by the cluster's ids. Also returns the ids
        that this process has not seen, and that the group knows to be deleted or replaced."""
        found = {topic_id: name for topic_id in topic_ids if (name := self._watch.topic_of(topic_id)) is not None}
        unseen = topic_ids - found.keys()
        if not unseen or not (view := group()).topic_ids:
            return found, frozenset()
        return found | {i: view.topics[i] for i in unseen if i in view.topics}, view.past & unseen
