"""A worker's cache of Kafka consumers. A cached consumer keeps its positions from task to task, and its prefetched
records.

The consumers join no consumer group: they assign partitions at explicit offsets, and commit nothing. Rules: a consumer
belongs to one task at a time. If a task fails or ends early, its consumers are closed, since their positions are not
certain. An idle consumer is parked after PARK_AFTER_S, which frees its memory and stops its fetching, and closed after
CLOSE_AFTER_S."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from coordinator.kafka.librdkafka import BY_OFFSET, IN_BULK, READING, UNKNOWN_TOPIC, is_refused, new_client
from share_source.executor.range_cursor import Key
from share_source.executor.record_batches import content_bytes, header_bytes, headers_of_all, timestamps_of

FetchPosition = tuple[int, str]
"""An offset, and the id of its topic (empty if not known)."""
Config = tuple[tuple[str, Any], ...]
"""librdkafka's properties and callbacks, as pairs of name and value: hashable and comparable."""

HELD_RECORDS = 10_000
HELD_BYTES = 32 << 20
"""Once a consumer holds HELD_RECORDS or this many bytes of a partition whose ranges are read, it unassigns the
partition, while it reads others."""
READ_THROUGH_RECORDS = 20_000
"""A gap of up to this many offsets between two ranges is read through. Moving a consumer would take the same time, and
drop its prefetched records."""
PARK_AFTER_S = 2.0
"""A consumer that was idle for this many seconds stops fetching and frees its memory. A query with a short trigger
takes it again sooner, with its prefetched records."""
CLOSE_AFTER_S = 300.0
"""A consumer that was idle for this many seconds closes its connections."""
MAX_IDLE = 16
"""A process keeps up to this many idle consumers, which limits memory and connections."""

_log = logging.getLogger(__name__)

# The user's own settings override these.
_DEFAULTS = {
    **READING,
    **IN_BULK,
    "client.id": "sharegroup",
    "queued.max.messages.kbytes": "32768",
    "topic.metadata.propagation.max.ms": "10000",
}


def client_config(kafka_config: Mapping[str, Any], isolation_level: str) -> Config:
    """Returns librdkafka's configuration of a task's consumers. A consumer is only for tasks with the same one. Tasks
    alone read in the rack of the user's choice: they know that their records exist, and wait for them."""
    own = {"isolation.level": isolation_level, "client.rack": kafka_config.get("client.rack", "")}
    return tuple({**_DEFAULTS, **kafka_config, **BY_OFFSET, **own}.items())


MISSING_TOPIC = UNKNOWN_TOPIC | {KafkaError.UNKNOWN_TOPIC_ID, KafkaError.INCONSISTENT_TOPIC_ID}
"""Errors with which a broker reports a missing topic."""


@contextmanager
def no_collector() -> Iterator[None]:
    """Pause Python's garbage collector. A task, or one fetch, makes millions of objects without a cycle, which the
    collector would scan again and again."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class FetchEvent(NamedTuple):
    """An error or the end of a log, which librdkafka delivers among the records. ``partition`` -1: a whole topic."""

    error: KafkaError
    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, message: Message, error: KafkaError) -> FetchEvent:
        return cls(error, *_key_of(message), _known(message.offset()))


class Fetched(NamedTuple):
    """Fetched records, their timestamps (see ``timestamps_of``), and the events among them."""

    messages: list[Message]
    timestamps: list[int]
    events: list[FetchEvent]


class ConsumerPosition:
    """The position of a consumer on one partition."""

    __slots__ = ("held", "held_bytes", "seen", "start", "topic_id")

    def __init__(self, position: FetchPosition) -> None:
        offset, self.topic_id = position
        self.start = offset
        """The first offset that no task has got yet."""
        self.seen = offset
        """The end of the fetched offsets: records below it went to a task, or are in ``held``."""
        self.held: list[Message] = []
        """Records fetched beyond the end of the last task's ranges."""
        self.held_bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self.held) > HELD_RECORDS or self.held_bytes >= HELD_BYTES

    def hold(self, messages: list[Message]) -> None:
        """Keep records for the next task."""
        self.held += messages
        self.held_bytes += content_bytes(messages) + sum(map(header_bytes, headers_of_all(messages)))

    def serves(self, wanted: FetchPosition) -> bool:
        """Whether a reader gets from here to the wanted position within READ_THROUGH_RECORDS."""
        offset, topic_id = wanted
        return self.topic_id == topic_id and self.start <= offset <= self.seen + READ_THROUGH_RECORDS


class KeptConsumer:
    """One consumer, and its positions on its assigned partitions."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.idle_since_s = 0.0
        self.last_error = "nothing"
        self.refused = ""
        """Why the brokers refuse this client; empty if they do not. The reader clears it before each task."""
        self.misses_topic = False
        """Whether librdkafka has reported a missing topic since the reader last cleared this."""
        self.positions: dict[Key, ConsumerPosition] = {}
        self._consumer = new_client(Consumer, {**dict(config), "error_cb": _weakly(self._on_error)})

    def __repr__(self) -> str:
        return f"<KeptConsumer {sorted(self.positions)}>"

    def _on_error(self, error: KafkaError) -> None:
        """Record an error of the whole client. Some errors of a topic arrive here without the topic's name."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # the errors before it say more
            self.last_error = error.str()
        if is_refused(error):
            self.refused = error.str()
        self.misses_topic |= error.code() in MISSING_TOPIC
        if (error_cb := dict(self.config).get("error_cb")) is not None:
            error_cb(error)

    def serves(self, wanted: Mapping[Key, FetchPosition]) -> int:
        """Returns how many of the wanted positions can be reached by reading on."""
        return sum(key in self.positions and self.positions[key].serves(target) for key, target in wanted.items())

    def position(self, wanted: Mapping[Key, FetchPosition]) -> None:
        """Assign exactly these partitions, each at the wanted position or shortly before it."""
        stale = [key for key, at in self.positions.items() if key not in wanted or not at.serves(wanted[key])]
        for key in stale:
            del self.positions[key]
        missing = {key: target for key, target in wanted.items() if key not in self.positions}
        if stale and self.positions:
            self._consumer.incremental_unassign([TopicPartition(*key) for key in stale])
        self.after_unassign(stale)
        self.before_assign(missing)
        if not self.positions:
            self._consumer.assign(_partitions(missing))  # unassigns the others
        elif missing:
            self._consumer.incremental_assign(_partitions(missing))
        self.positions.update((key, ConsumerPosition(target)) for key, target in missing.items())

    def move(self, key: Key, target: FetchPosition) -> None:
        """Reposition a partition, and drop its held records."""
        self.leave(key)
        self.before_assign([key])
        self._consumer.incremental_assign(_partitions({key: target}))
        self.positions[key] = ConsumerPosition(target)

    def leave(self, key: Key) -> None:
        if self.positions.pop(key, None) is not None:
            self._consumer.incremental_unassign([TopicPartition(*key)])
            self.after_unassign([key])

    def before_assign(self, keys: Iterable[Key]) -> None:
        """Called before these partitions are assigned."""

    def after_unassign(self, keys: Iterable[Key]) -> None:
        """Called after these partitions were unassigned, or before the next call replaces them by others."""

    def fetch(self, most: int, timeout_s: float, *, timestamps: bool = True) -> Fetched:
        """Returns up to ``most`` prefetched records. If there are none, waits up to ``timeout_s`` for one.
        ``timestamps``: whether to return timestamps."""
        with no_collector():
            messages = self._consumer.consume(most, 0)
        messages = messages or self._consumer.consume(1, timeout_s)
        if not timestamps:
            if not any(map(Message.error, messages)):
                return Fetched(messages, [], [])
            return Fetched(_records(messages), [], _events(messages))
        of_all = timestamps_of(messages)
        if TIMESTAMP_NOT_AVAILABLE not in of_all[::2]:
            return Fetched(messages, of_all, [])
        # Events have no timestamp; neither have records of Kafka before 0.10.
        records = _records(messages)
        return Fetched(records, timestamps_of(records), _events(messages))

    def by_partition(self, messages: list[Message]) -> Iterable[tuple[Key, list[Message]]]:
        """Split the fetched records into lists of one partition each, in order. A partition may have several lists."""
        if messages and len(self.positions) == 1:
            (key,) = self.positions
            if key == _key_of(messages[0]) == _key_of(messages[-1]):
                return [(key, messages)]
        return [(key, list(of_key)) for key, of_key in groupby(messages, key=_key_of)]

    def watermarks(self, key: Key, timeout_s: float) -> tuple[int, int]:
        """Returns the first offset and the exclusive end of the log. Raises KafkaException if the brokers refuse, or do
        not answer within ``timeout_s``."""
        low, high = self._consumer.get_watermark_offsets(TopicPartition(*key), timeout=timeout_s)
        return low, high

    def exists(self, key: Key, timeout_s: float) -> bool:
        """Whether the cluster has this partition. Raises KafkaException if the cluster does not tell, for example while
        it elects a leader."""
        topic = self._consumer.list_topics(key[0], timeout_s).topics.get(key[0])
        if topic is None or topic.error is None:
            return topic is not None and key[1] in topic.partitions
        if topic.error.code() in MISSING_TOPIC:
            return False
        raise KafkaException(topic.error)

    def another_broker_answers(self, keys: Iterable[Key], timeout_s: float) -> bool:
        """Whether a broker that leads none of these partitions answers, as far as the brokers know."""
        wanted = set(keys)
        leaders: set[int] = set()
        answered: set[int] = set()
        for topic in {topic for topic, _ in wanted}:
            try:
                told = self._consumer.list_topics(topic, timeout_s)
            except KafkaException:
                continue
            answered.add(told.orig_broker_id)
            leaders.update(p.leader for p in told.topics[topic].partitions.values() if (topic, p.id) in wanted)
        return not answered <= leaders

    def park(self) -> None:
        """Stop fetching, and drop held records. The connections stay open."""
        if self.positions:
            left = list(self.positions)
            self.positions.clear()
            self._consumer.unassign()
            self.after_unassign(left)

    def close(self) -> None:
        self.positions.clear()
        self._consumer.close()


def _weakly(method: Callable[[KafkaError], None]) -> Callable[[KafkaError], None]:
    """Returns a function that calls the method while its object lives. The method itself would tie consumer and object
    in a cycle: a closed consumer would keep one of the process's 1,024 thread-local keys until Python's next garbage
    collection, which is rare in a worker."""
    reference = weakref.WeakMethod(method)

    def call(error: KafkaError) -> None:
        if (bound := reference()) is not None:
            bound(error)

    return call


def _partitions(positions: Mapping[Key, FetchPosition]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for (topic, partition), (offset, _) in positions.items()]


def _records(messages: list[Message]) -> list[Message]:
    return [message for message in messages if message.error() is None]


def _events(messages: list[Message]) -> list[FetchEvent]:
    return [FetchEvent.of(message, error) for message in messages if (error := message.error()) is not None]


def _key_of(message: Message) -> Key:
    return message.topic() or "", _known(message.partition())


def _known(number: int | None) -> int:
    """The number, or -1 where librdkafka has none."""
    return -1 if number is None else number


def next_offset(messages: list[Message]) -> int:
    """Returns the offset after the last message."""
    return _known(messages[-1].offset()) + 1


class ConsumerCache:
    """The idle consumers of a process. It decides under its lock and does I/O outside of it."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._idle: list[KeptConsumer] = []  # the longest idle come first
        self._janitor: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._idle)

    def take(
        self, config: Config, wanted: Mapping[Key, FetchPosition], make: Callable[[Config], KeptConsumer] | None = None
    ) -> KeptConsumer:
        """Returns the idle consumer that fits the wanted positions best, or a new one from ``make``. Consumers of the
        two readers never mix, since their configurations differ."""
        with self._wake:
            alike = [consumer for consumer in self._idle if consumer.config == config]
            best = max(alike, key=lambda consumer: _fitness(consumer, wanted), default=None)
            if best is not None and (_fitness(best, wanted) > (0, 0, 0) or len(self._idle) >= MAX_IDLE):
                self._idle.remove(best)
            else:
                best = None
        taken = best or (make or KeptConsumer)(config)
        try:
            taken.position(wanted)
        except BaseException:
            taken.close()
            raise
        return taken

    def give_back(self, consumer: KeptConsumer) -> None:
        """Keep the consumer for the next task. If there are more than MAX_IDLE, the longest idle one is closed."""
        consumer.idle_since_s = time.monotonic()
        with self._wake:
            self._idle.append(consumer)
            surplus = self._idle[:-MAX_IDLE]
            del self._idle[:-MAX_IDLE]
            if self._janitor is None:
                self._janitor = threading.Thread(target=self._park_and_close, name="sharegroup-consumers", daemon=True)
                self._janitor.start()
            self._wake.notify()
        for unwanted in surplus:
            unwanted.close()

    def close(self) -> None:
        with self._wake:
            idle, self._idle = self._idle, []
        for consumer in idle:
            consumer.close()

    def _park_and_close(self) -> None:
        """Park and close idle consumers when they are due. The thread ends when no consumer is idle; ``give_back``
        starts it again."""
        while True:
            with self._wake:
                if not self._idle:
                    self._janitor = None
                    return
                self._wake.wait(max(min(map(_due_s, self._idle)) - time.monotonic(), 0))
                now_s = time.monotonic()
                due = [consumer for consumer in self._idle if _due_s(consumer) <= now_s]
                self._idle = [consumer for consumer in self._idle if consumer not in due]
            parked = [consumer for consumer in due if _is_parked_now(consumer)]
            with self._wake:
                self._idle = parked + self._idle


def _is_parked_now(consumer: KeptConsumer) -> bool:
    """Park the consumer if it has positions, else close it. Returns whether it was parked. If parking fails, the
    consumer is dropped: an exception here would end the thread unseen."""
    is_fetching = bool(consumer.positions)
    try:
        consumer.park() if is_fetching else consumer.close()
    except Exception as error:  # noqa: BLE001 - librdkafka's errors, and ours
        _log.warning("an idle consumer is dropped: %s: %s", type(error).__name__, error)
        return False
    return is_fetching


def _due_s(consumer: KeptConsumer) -> float:
    """Returns when the consumer is to be parked or, if parked, closed, in monotonic seconds."""
    return consumer.idle_since_s + (PARK_AFTER_S if consumer.positions else CLOSE_AFTER_S)


def _fitness(consumer: KeptConsumer, wanted: Mapping[Key, FetchPosition]) -> tuple[int, int, int]:
    """Returns a rank; the highest fits best. Consumers with matching positions come first, then those with other
    positions on the same partitions, then parked ones."""
    positions = consumer.positions
    return consumer.serves(wanted), sum(key in positions for key in wanted), not positions


_cache = ConsumerCache()
_caches_of_parents: list[ConsumerCache] = []


def cache() -> ConsumerCache:
    """Returns the cache of this process."""
    return _cache


def _in_forked_child() -> None:
    """Begin with an empty cache. A fork does not copy a client's threads, so the child must neither use nor destroy the
    consumers of its parent."""
    global _cache
    _caches_of_parents.append(_cache)
    _cache = ConsumerCache()


os.register_at_fork(after_in_child=_in_forked_child)
atexit.register(lambda: cache().close())
