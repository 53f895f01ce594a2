"""What the service knows of the cluster: topics for a while, log starts, and end offsets that are asked for while
somebody waits.

One thread asks for the ends of all partitions that are waited for, in one call, every 20 to 100 ms: more often after it
found something new. It asks for nothing while nobody waits.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from coordinator.protocol.errors import BrokerNotReachable, ShareGroupError
from coordinator.service.brokers.cluster import EARLIEST, LATEST, Cluster, TopicAndPartition, TopicInfo
from coordinator.service.brokers.subscription import Subscription

SLOWEST_S = 0.1
AFTER_ERROR_S = 1.0
MOST_KEPT = 1000

Key = tuple[TopicAndPartition, bool]
"""A partition, and whether its end is the last stable offset."""

_log = logging.getLogger(__name__)


class BrokerWatch:
    """Thread-safe. ``on_ends`` is called when an end has moved."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        metadata_refresh_ms: int = 10_000,
        watermark_refresh_ms: int = 20,
        on_ends: Callable[[], None] = lambda: None,
    ) -> None:
        self.cluster = cluster
        self.metadata_refresh_s = metadata_refresh_ms / 1000
        self._fastest_s = watermark_refresh_ms / 1000
        self._slowest_s = max(SLOWEST_S, self._fastest_s)
        self._on_ends = on_ends
        self._changed = threading.Condition()
        self._topics: dict[Subscription, tuple[float, dict[str, TopicInfo]]] = {}
        self._topic_ids: dict[str, str] = {}
        self._remade = 0
        self._log_starts: dict[TopicAndPartition, int] = {}
        self._ends: dict[Key, int] = {}
        self._reached: dict[Key, int] = {}
        self._fell: set[Key] = set()
        self._last_ends: dict[str, dict[tuple[int, bool], int]] = {}
        self._asked_at: dict[Key, float] = {}
        self._waited_for: Counter[Key] = Counter()
        self._moves = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="share-watermarks", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<BrokerWatch {self.cluster!r} waited_for={len(self._waited_for)}>"

    # --- topics

    def topics(self, subscription: Subscription, *, fresh: bool = False) -> dict[str, TopicInfo]:
        """The subscription's topics, as they were at most a refresh interval ago. With them, log starts are asked for
        again."""
        with self._changed:
            known_at, known = self._topics.get(subscription, (float("-inf"), {}))
        now = time.monotonic()
        if not fresh and now - known_at < self.metadata_refresh_s:
            return known
        found = subscription.find(self.cluster)
        topic_partitions = [(t.name, p) for t in found.values() for p in range(t.partitions)]
        with self._changed:
            self._forget_remade(known, found)
        self.ask_log_starts(topic_partitions)
        with self._changed:
            self._topics[subscription] = (now, found)
            if len(self._topics) > MOST_KEPT:
                self._topics.pop(next(iter(self._topics)))
        return found

    def last_ends(self, topic: str, topic_id: str, *, read_committed: bool) -> dict[int, int]:
        """Where the partitions of a topic that is gone ended when they were seen last, as far as this
        process saw them; with the other isolation level's ends where they were not asked for at this one."""
        with self._changed:
            seen = self._last_ends.get(topic_id, {})
            if self._topic_ids.get(topic) == topic_id:
                seen = seen | self._reached_of(topic)
        asked = sorted(seen.items(), key=lambda item: item[0][1] == read_committed)
        return {partition: end for (partition, _), end in asked}

    def _forget_remade(self, known: dict[str, TopicInfo], found: dict[str, TopicInfo]) -> None:
        """Ends of a topic that was deleted, or created anew, are no longer its ends, whoever else subscribes to it; nor
        are those that were asked for before."""
        gone = {name for name in known if name not in found}
        gone |= {name for name, topic in found.items() if self._topic_ids.get(name, topic.topic_id) != topic.topic_id}
        for name in gone:
            self._keep_last_ends(name)
        self._topic_ids.update({name: topic.topic_id for name, topic in found.items()})
        if gone:
            self._remade += 1
            self._ends = {key: end for key, end in self._ends.items() if key[0][0] not in gone}
            self._log_starts = {where: at for where, at in self._log_starts.items() if where[0] not in gone}

    def _keep_last_ends(self, name: str) -> None:
        if (topic_id := self._topic_ids.get(name)) is not None and (reached := self._reached_of(name)):
            self._last_ends[topic_id] = self._last_ends.get(topic_id, {}) | reached
            if len(self._last_ends) > MOST_KEPT:
                self._last_ends.pop(next(iter(self._last_ends)))
        self._reached = {key: end for key, end in self._reached.items() if key[0][0] != name}
        self._fell = {key for key in self._fell if key[0][0] != name}

    def _reached_of(self, name: str) -> dict[tuple[int, bool], int]:
        return {(where[1], level): end for (where, level), end in self._reached.items() if where[0] == name}

    # --- offsets

    def ask_log_starts(self, partitions: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """The log starts now."""
        remade = self._remade
        found = self.cluster.offsets(partitions, EARLIEST)
        with self._changed:
            if self._remade == remade:  # else maybe those of a topic that is no more: a new one would begin there
                self._log_starts.update(found)
        return found

    def log_starts(self, partitions: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """The log starts as of the last refresh; asked for where there was none."""
        wanted = list(partitions)
        missing = [where for where in wanted if where not in self._log_starts]
        if missing:
            self.ask_log_starts(missing)
        return {where: self._log_starts[where] for where in wanted if where in self._log_starts}

    def ask_ends(
        self, partitions: Iterable[TopicAndPartition], *, read_committed: bool
    ) -> dict[TopicAndPartition, int]:
        """The ends now."""
        wanted = list(partitions)
        asked_at, remade = time.monotonic(), self._remade
        found = self.cluster.offsets(wanted, LATEST, read_committed=read_committed)
        with self._changed:
            if self._remade != remade:
                return found  # maybe the ends of a topic that is no more
            keys = [(where, read_committed) for where in wanted]
            before = [self._ends.pop(key, None) for key in keys]
            self._ends.update({(where, read_committed): end for where, end in found.items()})
            self._asked_at.update(dict.fromkeys(keys, asked_at))
            self._reach(keys)
            moved = before != [self._ends.get(key) for key in keys]
            self._moves += moved
        if moved:
            self._on_ends()
        return found

    def _reach(self, keys: Iterable[Key]) -> None:
        """A log that ends earlier than it did, or is not there, may be another topic's of the same name: its ends from
        then on are not those of the topic before, and topics are looked at anew."""
        fell = set()
        for key in keys:
            end = self._ends.get(key)
            if key in self._fell:
                continue
            if end is None or end < self._reached.get(key, 0):
                fell.add(key)
            else:
                self._reached[key] = end
        self._fell |= fell
        names = {where[0] for where, _ in fell}
        self._topics = (
            {s: known for s, known in self._topics.items() if names.isdisjoint(known[1])} if fell else self._topics
        )

    def ends(self, partitions: Iterable[TopicAndPartition], *, read_committed: bool) -> dict[TopicAndPartition, int]:
        """The ends as far as they are known."""
        with self._changed:
            known = {where: self._ends.get((where, read_committed)) for where in partitions}
        return {where: end for where, end in known.items() if end is not None}

    def are_new(self, partitions: Iterable[TopicAndPartition], *, read_committed: bool) -> bool:
        """Whether the known ends are as new as the thread that asks for them would have them."""
        oldest = time.monotonic() - self._slowest_s
        with self._changed:
            return all(self._asked_at.get((where, read_committed), 0.0) >= oldest for where in partitions)

    @contextlib.contextmanager
    def waiting(self, partitions: Iterable[TopicAndPartition], *, read_committed: bool) -> Iterator[None]:
        """While somebody waits for records of these partitions."""
        keys = [(where, read_committed) for where in partitions]
        with self._changed:
            self._waited_for.update(keys)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._waited_for.subtract(keys)
                for key in keys:
                    if not self._waited_for[key]:
                        del self._waited_for[key]

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(1.0)

    # --- the thread

    def _run(self) -> None:
        pause_s, next_at = self._fastest_s, 0.0
        while (keys := self._wanted(next_at)) is not None:
            moves = self._moves
            try:
                self._ask(keys)
            except ShareGroupError as error:  # whoever asks next is told by name
                if not isinstance(error, BrokerNotReachable):  # of which the cluster has said so
                    _log.warning("asking for end offsets failed: %s", error)
                next_at = time.monotonic() + AFTER_ERROR_S
                continue
            pause_s = self._fastest_s if self._moves != moves else min(2 * pause_s, self._slowest_s)
            next_at = time.monotonic() + pause_s

    def _wanted(self, next_at: float) -> list[Key] | None:
        """What is waited for, when it is time to ask for it; None at the end."""
        with self._changed:
            while not self._closed:
                left_s = next_at - time.monotonic()
                if self._waited_for and left_s <= 0:
                    return list(self._waited_for)
                self._changed.wait(left_s if self._waited_for else None)
        return None

    def _ask(self, keys: list[Key]) -> None:
        for read_committed in (False, True):
            topic_partitions = [where for where, level in keys if level == read_committed]
            if topic_partitions:
                self.ask_ends(topic_partitions, read_committed=read_committed)
