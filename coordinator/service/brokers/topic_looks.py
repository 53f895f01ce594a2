"""Fresh requests for topic ids, which callers at about the same time share.

Rule: a request begins after the call that needs it, or up to FRESH_S earlier. So its answer is newer than what the
caller did before: a topic that still has its id also had it when the caller's records were read. One request runs at a
time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from coordinator.protocol.errors import ShareGroupError
from coordinator.service.brokers.cluster import KafkaCluster

FRESH_S = 0.02
"""An answer serves other callers for this many seconds after its request began: it takes longer to create a topic and
to write, read and acknowledge its records. So small acknowledgements, which come every few milliseconds, share
requests, and mostly do not wait. A request costs the coordinator 0.4 ms of CPU time."""
PAUSE_S = 0.005
"""Two requests begin at least this many seconds apart."""

Ids = Mapping[str, str]
"""Topic ids by name, of the topics that exist."""


class TopicLooks:
    """Requests the ids of topics. Thread-safe."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="share-topic-ids")
        self._changing = threading.Lock()
        self._names: set[str] = set()
        self._next: Future[Ids] | None = None
        self._last: Future[Ids] = Future()
        self._last_names: set[str] = set()
        self._began_s = 0.0

    def ask(self, names: Iterable[str]) -> Future[Ids]:
        """Returns the answer of a fresh request. The answer may name more topics."""
        wanted = set(names)
        with self._changing:
            if wanted <= self._last_names and time.monotonic() <= self._began_s + FRESH_S:
                return self._last
            self._names |= wanted
            if self._next is not None:
                return self._next
            answer: Future[Ids] = Future()
            self._next = answer
        try:
            self._threads.submit(self._look, answer)
        except RuntimeError:  # closed
            answer.set_result({})
        return answer

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _look(self, answer: Future[Ids]) -> None:
        time.sleep(max(self._began_s + PAUSE_S - time.monotonic(), 0.0))
        with self._changing:
            names, self._names, self._next = self._names, set(), None
            self._last, self._last_names, self._began_s = answer, names, time.monotonic()
        try:
            has_ids = self._cluster.gives_topic_ids()
            found = self._cluster.topics(names) if has_ids else {}
            answer.set_result({name: topic.topic_id for name, topic in found.items()})
        except ShareGroupError as error:
            answer.set_exception(error)
        except BaseException as error:
            answer.set_exception(error)
            raise
