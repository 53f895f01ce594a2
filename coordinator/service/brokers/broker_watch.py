"""A cache of the cluster's topics, log starts and end offsets, and a thread that refreshes the ends while members wait.

The thread fetches the ends of all awaited partitions in one call, every 20 to 100 ms: more often after an end has
moved. After some seconds without a moved end it fetches every 250 ms. It fetches nothing while no member waits."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future

from coordinator.protocol.errors import BrokerNotReachable, ShareGroupError
from coordinator.protocol.repeated_lines import LogOnce, Outage
from coordinator.protocol.values import TopicAndPartition
from coordinator.service.brokers.cluster import EARLIEST, LATEST, KafkaCluster, TopicInfo
from coordinator.service.brokers.subscription import Subscription
from coordinator.service.brokers.topic_doubts import DOUBT_REFRESHES, TopicDoubts
from coordinator.service.brokers.topic_looks import Ids, TopicLooks

SLOWEST_S = 0.1
"""Ends that move are fetched at least this often, in seconds, so a new record is noticed within that time."""
QUIET_S = 0.25
"""Ends that have not moved for QUIET_AFTER_S are fetched this often, in seconds: each fetch costs the coordinator 0.8
ms of CPU time, and a record after such a silence may wait a little longer."""
QUIET_AFTER_S = 5.0
"""The pause grows to QUIET_S after this many seconds without a moved end."""
AFTER_ERROR_S = 1.0
"""After a failed request the next one waits this many seconds, so that silent brokers are not asked all the time."""
AWAY_PAUSE_S = 1.0
"""Leaders that do not answer are asked this often, in seconds."""
MOST_KEPT = 1000
"""The answers for up to this many subscriptions, and the last ends of this many topics that were created again, are
kept, so that memory does not grow with time."""

Key = tuple[TopicAndPartition, bool]
"""A partition, and whether its end is the last stable offset (True) or the high watermark."""

_log = logging.getLogger(__name__)


class BrokerWatch:
    """The cache. Thread-safe. ``on_ends`` is called when an end has moved."""

    def __init__(
        self,
        cluster: KafkaCluster,
        *,
        metadata_refresh_ms: int = 10_000,
        watermark_refresh_ms: int = 20,
        on_ends: Callable[[], None] = lambda: None,
    ) -> None:
        self.cluster = cluster
        self.metadata_refresh_s = metadata_refresh_ms / 1000
        self.doubts = TopicDoubts(DOUBT_REFRESHES * self.metadata_refresh_s)
        self.looks = TopicLooks(cluster)
        self._fastest_s = watermark_refresh_ms / 1000
        self._slowest_s = max(SLOWEST_S, self._fastest_s)
        self._pause_s = self._fastest_s
        self._on_ends = on_ends
        self._changed = threading.Condition()
        self._topics: dict[Subscription, tuple[float, dict[str, TopicInfo]]] = {}
        self._topic_ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._remade = 0
        self._log_starts: dict[TopicAndPartition, int] = {}
        self._ends: dict[Key, int] = {}
        self._reached: dict[Key, int] = {}
        self._fell: set[Key] = set()
        self._last_ends: dict[str, dict[tuple[int, bool], int]] = {}
        self._asked_at: dict[Key, float] = {}
        self._waited_for: Counter[Key] = Counter()
        self._moves = 0
        self._once = LogOnce(_log)
        self._closed = False
        self._away = AwayPartitions(cluster, on_ends)
        self._thread = threading.Thread(target=self._run, name="share-watermarks", daemon=True)
        self._thread.start()

    # --- topics

    def topics(self, subscription: Subscription, *, fresh: bool = False) -> dict[str, TopicInfo]:
        """The subscription's topics with their log starts, up to a refresh interval old; ``fresh``: as they are now."""
        with self._changed:
            known_at, known = self._topics.get(subscription, (float("-inf"), {}))
        now = time.monotonic()
        if not fresh and now - known_at < self.metadata_refresh_s:
            return known
        found = subscription.find(self.cluster)
        topic_partitions = [(t.name, p) for t in found.values() for p in range(t.partitions)]
        with self._changed:
            self._forget_remade(known, found)
        self._refresh_log_starts(topic_partitions)
        with self._changed:
            self._topics[subscription] = (now, found)
            if len(self._topics) > MOST_KEPT:
                self._topics.pop(next(iter(self._topics)))
        return found

    def look(self, names: Iterable[str]) -> Future[Ids]:
        """Fetch the ids of these topics now. Drop the cached answers that have a topic whose id has changed."""
        answer = self.looks.ask(names)
        answer.add_done_callback(self._take_look)
        return answer

    def _take_look(self, answer: Future[Ids]) -> None:
        if answer.exception() is not None:
            return
        with self._changed:
            remade = {name for name, i in answer.result().items() if self._topic_ids.get(name, i) != i}
            self._drop_topics(remade)
        if remade:
            self._on_ends()

    def topic_of(self, topic_id: str) -> str | None:
        """Returns the name of the topic that has or had this id; None if this process has never seen the id."""
        return self._names.get(topic_id)

    def last_ends(self, topic: str, topic_id: str, *, read_committed: bool) -> dict[int, int]:
        """The last ends, by partition, that this process saw of a deleted topic. A partition never fetched at this
        isolation level has the end of the other level."""
        with self._changed:
            seen = self._last_ends.get(topic_id, {})
            if self._topic_ids.get(topic) == topic_id:
                seen = seen | self._reached_of(topic)
        asked = sorted(seen.items(), key=lambda item: item[0][1] == read_committed)
        return {partition: end for (partition, _), end in asked}

    def _forget_remade(self, known: dict[str, TopicInfo], found: dict[str, TopicInfo]) -> None:
        """Drop the ends of topics that were deleted or created again. Earlier requests' answers are not cached."""
        gone = {name for name in known if name not in found}
        gone |= {name for name, topic in found.items() if self._topic_ids.get(name, topic.topic_id) != topic.topic_id}
        for name in gone:
            self._keep_last_ends(name)
        self._topic_ids.update({name: topic.topic_id for name, topic in found.items()})
        self._names.update({topic.topic_id: name for name, topic in found.items() if topic.topic_id})
        while len(self._names) > len(self._topic_ids) + MOST_KEPT:
            self._names.pop(next(iter(self._names)))
        if gone:
            self._remade += 1
            self._ends = {key: end for key, end in self._ends.items() if key[0][0] not in gone}
            self._asked_at = {key: at for key, at in self._asked_at.items() if key[0][0] not in gone}
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

    def ask_log_starts(self, topic_partitions: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        remade = self._remade
        found = self.cluster.offsets(topic_partitions, EARLIEST)
        self._keep_log_starts(found, remade)
        return found

    def _refresh_log_starts(self, topic_partitions: list[TopicAndPartition]) -> None:
        """Fetch the log starts. Partitions whose brokers do not answer keep their cached ones."""
        asked, remade, began_s = self.answering(topic_partitions), self._remade, time.monotonic()
        found, away = self.cluster.answered_offsets(asked, EARLIEST)
        self._keep_log_starts(found, remade)
        self._away.add(away, began_s)

    def _keep_log_starts(self, found: dict[TopicAndPartition, int], remade: int) -> None:
        with self._changed:
            if self._remade == remade:
                # Otherwise they may be a deleted topic's, and a new topic of the name would begin there.
                self._log_starts.update(found)

    def doubt(self, topic_partitions: Iterable[TopicAndPartition]) -> None:
        """Record that a member can't read these partitions: their leaders are asked whether they answer."""
        self._away.add(set(topic_partitions), time.monotonic())

    def answering(self, topic_partitions: list[TopicAndPartition]) -> list[TopicAndPartition]:
        """Returns the partitions whose leader answers; all of the partitions if none of their leaders does."""
        if not (away := self._away.of(topic_partitions)):
            return topic_partitions
        return [where for where in topic_partitions if where not in away] or topic_partitions

    def log_starts(self, topic_partitions: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """The log starts of the last refresh. Missing ones are fetched from the brokers."""
        wanted = list(topic_partitions)
        if missing := [where for where in wanted if where not in self._log_starts]:
            self.ask_log_starts(missing)
        return {where: self._log_starts[where] for where in wanted if where in self._log_starts}

    def ask_ends(
        self, topic_partitions: Iterable[TopicAndPartition], *, read_committed: bool
    ) -> dict[TopicAndPartition, int]:
        asked_at, remade, wanted = time.monotonic(), self._remade, list(topic_partitions)
        found = self.cluster.offsets(wanted, LATEST, read_committed=read_committed)
        return self._keep_ends(wanted, found, asked_at, remade, read_committed)

    def ask_answering_ends(
        self, topic_partitions: list[TopicAndPartition], *, read_committed: bool
    ) -> dict[TopicAndPartition, int]:
        """As ``ask_ends``, but without partitions whose leader does not answer while another leader does."""
        asked_at, remade, wanted = time.monotonic(), self._remade, self.answering(topic_partitions)
        found, away = self.cluster.answered_offsets(wanted, LATEST, read_committed=read_committed)
        self._away.add(away, asked_at)
        answered = [where for where in wanted if where not in away]
        return self._keep_ends(answered, found, asked_at, remade, read_committed)

    def _keep_ends(
        self,
        wanted: list[TopicAndPartition],
        found: dict[TopicAndPartition, int],
        asked_at: float,
        remade: int,
        read_committed: bool,
    ) -> dict[TopicAndPartition, int]:
        with self._changed:
            if self._remade != remade:
                return found  # not cached: they may be a deleted topic's
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
        """Record the highest ends. If a log has become shorter or does not exist, its topic may have been created again
        under the name. Then its ends no longer count for the earlier topic, and the cached topics are dropped."""
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
        self._drop_topics({where[0] for where, _ in fell})

    def _drop_topics(self, names: set[str]) -> None:
        if names:
            self._topics = {s: known for s, known in self._topics.items() if names.isdisjoint(known[1])}

    def ends(
        self, topic_partitions: Iterable[TopicAndPartition], *, read_committed: bool
    ) -> dict[TopicAndPartition, int]:
        with self._changed:
            known = {where: self._ends.get((where, read_committed)) for where in topic_partitions}
        return {where: end for where, end in known.items() if end is not None}

    def known_ends(
        self, topic_partitions: list[TopicAndPartition], read_committed: bool
    ) -> dict[TopicAndPartition, int]:
        """The cached ends if they are new, else the ends from the brokers. If no broker answers, the cached ends."""
        if not self.are_new(topic_partitions, read_committed=read_committed):
            with contextlib.suppress(ShareGroupError):
                return self.ask_ends(topic_partitions, read_committed=read_committed)
        return self.ends(topic_partitions, read_committed=read_committed)

    def are_new(self, topic_partitions: Iterable[TopicAndPartition], *, read_committed: bool) -> bool:
        """Whether the cached ends are as new as the refreshing thread keeps them."""
        oldest = time.monotonic() - max(self._slowest_s, self._pause_s)
        with self._changed:
            return all(self._asked_at.get((where, read_committed), 0.0) >= oldest for where in topic_partitions)

    @contextlib.contextmanager
    def waiting(self, topic_partitions: Iterable[TopicAndPartition], *, read_committed: bool) -> Iterator[None]:
        """A context in which a member waits for records of these partitions: their ends are refreshed."""
        keys = [(where, read_committed) for where in topic_partitions]
        with self._changed:
            self._waited_for.update(keys)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._waited_for -= Counter(keys)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._away.close()
        self.looks.close()
        self._thread.join(1.0)

    # --- the thread

    def _run(self) -> None:
        next_at, moves, moved_at = 0.0, 0, time.monotonic()
        while (keys := self._wanted(next_at)) is not None:
            try:
                self._ask(keys)
            except ShareGroupError as error:  # the next member that asks gets the error by name
                if not isinstance(error, BrokerNotReachable):  # the cluster has logged that itself
                    self._once.warn(f"ends: {type(error).__name__}", f"could not fetch end offsets: {error}")
                next_at = time.monotonic() + AFTER_ERROR_S
                continue
            now_s = time.monotonic()
            if self._moves != moves:  # moved since the last fetch, by this thread or a request
                moves, moved_at, self._pause_s = self._moves, now_s, self._fastest_s
            else:
                is_quiet = now_s - moved_at >= QUIET_AFTER_S
                self._pause_s = min(2 * self._pause_s, max(QUIET_S if is_quiet else 0.0, self._slowest_s))
            next_at = now_s + self._pause_s

    def _wanted(self, next_at: float) -> list[Key] | None:
        """Block until ``next_at``. Returns the partitions that members wait for; None once the cache is closed."""
        with self._changed:
            while not self._closed:
                left_s = next_at - time.monotonic()
                if self._waited_for and left_s <= 0:
                    return list(self._waited_for)
                self._changed.wait(left_s if self._waited_for else None)
        return None

    def _ask(self, keys: list[Key]) -> None:
        for read_committed in (False, True):
            if topic_partitions := [where for where, level in keys if level == read_committed]:
                self.ask_answering_ends(topic_partitions, read_committed=read_committed)


class AwayPartitions:
    """The partitions that are away: their leader did not answer while others did, or a member could not read them while
    it read others. A thread asks these leaders until they answer. Thread-safe. ``back`` is called when a leader has
    answered again.

    Rule: only an answer of the leader ends this state. Meanwhile only requests that need this leader wait for it."""

    def __init__(self, cluster: KafkaCluster, back: Callable[[], None]) -> None:
        self._cluster, self._back = cluster, back
        self._changed = threading.Condition()
        self._away: set[TopicAndPartition] = set()
        self._thread: threading.Thread | None = None
        self._closed = False
        hint = ", ShareConsumers get the records of others meanwhile"
        self._outage = Outage(_log, f"the leaders of some partitions on {cluster.addresses}", hint)

    def of(self, partitions: Iterable[TopicAndPartition]) -> set[TopicAndPartition]:
        with self._changed:
            return self._away.intersection(partitions) if self._away else set()

    def add(self, partitions: set[TopicAndPartition], since_s: float) -> None:
        """Record that the leaders of these partitions have not answered a request sent at ``since_s``."""
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
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while partitions := self._to_ask():
            began_s = time.monotonic()
            try:
                away = self._cluster.answered_offsets(partitions, LATEST)[1]
            except BrokerNotReachable:  # no leader answers
                away = set(partitions)
            except Exception as error:  # noqa: BLE001 - a refusal is an answer: who asks next gets it by name
                _log.info("the leaders of some partitions answered with an error: %s", error)
                away = set()
            self._answered(set(partitions) - away)
            self.add(away, began_s)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, AWAY_PAUSE_S)

    def _to_ask(self) -> list[TopicAndPartition]:
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
