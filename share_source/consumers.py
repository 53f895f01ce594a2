"""A worker's Kafka consumers, kept from task to task: each stands where its last task stopped, with records prefetched.

No consumer group: partitions are assigned at explicit offsets, and nothing is committed. Rules: a consumer belongs to
one task at a time; what a task leaves in doubt (it failed, or was ended early) is closed, not kept; what nobody reads
gives its memory and its threads' time back soon, and its connections later.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from coordinator.protocol.librdkafka import UNKNOWN_TOPIC, is_refused
from share_source.range_cursor import Key
from share_source.record_batches import timestamps_of

FetchPosition = tuple[int, str]
"""An offset, and the id of the topic that has it (empty if nobody knows)."""
Config = tuple[tuple[str, str], ...]

READ_THROUGH_RECORDS = 20_000
"""A hole up to this wide is read through: moving costs as much as some 20,000 records, and the prefetched ones."""
PARK_AFTER_S = 2.0
CLOSE_AFTER_S = 300.0
KEPT = 16

# The user's own settings win over these.
_DEFAULTS = {
    "client.id": "sharegroup",
    "log_level": "0",  # librdkafka would write a line to stderr for each try to connect; a task says what it waits for
    "group.id": "sharegroup",  # librdkafka wants one to assign partitions; it is joined by nobody
    "fetch.queue.backoff.ms": "2",  # 1000 by default: a stall each time that the queue is full
    "queued.min.messages": "20000",  # more prefetched is more memory touched: +20% CPU a record with 100,000
    "queued.max.messages.kbytes": "32768",
    "fetch.message.max.bytes": str(1 << 20),
    "fetch.wait.max.ms": "25",  # a consumer at the log's end can't move before its fetch is answered
    "topic.metadata.propagation.max.ms": "10000",
    "max.poll.interval.ms": "86400000",
    "log.connection.close": "false",
}
# These are what the reader's promises rest on.
_FIXED = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "allow.auto.create.topics": "false",
}


def client_config(kafka_config: Mapping[str, str], isolation_level: str) -> Config:
    """librdkafka's configuration of a reader; also what its consumers are kept by."""
    return tuple({**_DEFAULTS, **kafka_config, **_FIXED, "isolation.level": isolation_level}.items())


GONE_TOPIC = UNKNOWN_TOPIC | {KafkaError.UNKNOWN_TOPIC_ID, KafkaError.INCONSISTENT_TOPIC_ID}


class Event(NamedTuple):
    """What comes in a record's place: an error, or the log's end. ``partition`` is -1 for the whole topic."""

    error: KafkaError
    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, message: Message, error: KafkaError) -> Event:
        """The event that a message stands for."""
        return cls(error, *_key_of(message), _number(message.offset()))


class Fetched(NamedTuple):
    """Records, ``timestamps_of`` them, and apart from them what else came."""

    messages: list[Message]
    timestamps: list[int]
    events: list[Event]


class ConsumerPosition:
    """Where a consumer stands on a partition."""

    __slots__ = ("held", "seen", "start", "topic_id")

    def __init__(self, place: FetchPosition) -> None:
        offset, self.topic_id = place
        self.start = offset
        """Nothing from this offset on was given away."""
        self.seen = offset
        """All below it was fetched: given away, or held."""
        self.held: list[Message] = []
        """Fetched past the end of the last task's ranges."""

    def serves(self, place: FetchPosition) -> bool:
        """Whether reading on from here comes to this place soon."""
        offset, topic_id = place
        return self.topic_id == topic_id and self.start <= offset <= self.seen + READ_THROUGH_RECORDS


class KeptConsumer:
    """One consumer and where it stands on the partitions that it is assigned."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.idle_since_s = 0.0
        self.last_error = "nothing"
        self.refused = ""
        """Why the brokers refuse this client, as long as no record came since; empty if they don't."""
        self.misses_topic = False
        """Whether the client said that a topic is not there, since somebody last set this back."""
        self.standings: dict[Key, ConsumerPosition] = {}
        self._consumer = Consumer({**dict(config), "error_cb": self._note})

    def __repr__(self) -> str:
        return f"<KeptConsumer {sorted(self.standings)}>"

    def _note(self, error: KafkaError) -> None:
        """An error of the client as a whole; some of a topic's come here too, and don't name it."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # which says less than what came before it
            self.last_error = error.str()
        if is_refused(error):
            self.refused = error.str()
        self.misses_topic |= error.code() in GONE_TOPIC

    def serves(self, wanted: Mapping[Key, FetchPosition]) -> int:
        """How many of the wanted partitions it stands right for."""
        return sum(key in self.standings and self.standings[key].serves(place) for key, place in wanted.items())

    def position(self, wanted: Mapping[Key, FetchPosition]) -> None:
        """Stand at these places, or a little before them, and on no other partitions."""
        stale = [key for key, at in self.standings.items() if key not in wanted or not at.serves(wanted[key])]
        for key in stale:
            del self.standings[key]
        missing = {key: place for key, place in wanted.items() if key not in self.standings}
        if not self.standings:
            self._consumer.assign(_partitions(missing))
        else:
            if stale:
                self._consumer.incremental_unassign([TopicPartition(*key) for key in stale])
            if missing:
                self._consumer.incremental_assign(_partitions(missing))
        self.standings.update((key, ConsumerPosition(place)) for key, place in missing.items())

    def move(self, key: Key, place: FetchPosition) -> None:
        """Go on at another place of a partition."""
        self.leave(key)
        self._consumer.incremental_assign(_partitions({key: place}))
        self.standings[key] = ConsumerPosition(place)

    def leave(self, key: Key) -> None:
        """Read nothing more of a partition; what is held of it is forgotten."""
        if self.standings.pop(key, None) is not None:
            self._consumer.incremental_unassign([TopicPartition(*key)])

    def fetch(self, most: int, timeout_s: float) -> Fetched:
        """Up to ``most`` records that are here, or the first one to come, or none."""
        messages = self._consumer.consume(most, 0) or self._consumer.consume(1, timeout_s)
        timestamps = timestamps_of(messages)
        if TIMESTAMP_NOT_AVAILABLE not in timestamps[::2]:
            return Fetched(messages, timestamps, [])
        # Events have no timestamp, and records of Kafka before 0.10 have none.
        events = [Event.of(message, error) for message in messages if (error := message.error()) is not None]
        records = [message for message in messages if message.error() is None]
        return Fetched(records, timestamps_of(records), events)

    def by_partition(self, messages: list[Message]) -> Iterable[tuple[Key, list[Message]]]:
        """Fetched records, those of one partition together; each partition's in order, but it may come twice."""
        if messages and len(self.standings) == 1:
            (key,) = self.standings
            if key == _key_of(messages[0]) == _key_of(messages[-1]):
                return [(key, messages)]
        return [(key, list(of_key)) for key, of_key in groupby(messages, key=_key_of)]

    def watermarks(self, key: Key, timeout_s: float) -> tuple[int, int]:
        """The first offset that the broker has, and the one after its last."""
        low, high = self._consumer.get_watermark_offsets(TopicPartition(*key), timeout=timeout_s)  # or it raises
        return low, high

    def exists(self, key: Key, timeout_s: float) -> bool:
        """Whether the cluster has this partition. KafkaException if it says neither yes nor no: it may be electing."""
        topic = self._consumer.list_topics(key[0], timeout_s).topics.get(key[0])
        if topic is None or topic.error is None:
            return topic is not None and key[1] in topic.partitions
        if topic.error.code() in GONE_TOPIC:
            return False
        raise KafkaException(topic.error)

    def park(self) -> None:
        """Fetch nothing, hold nothing; the connections stay."""
        if self.standings:
            self.standings.clear()
            self._consumer.unassign()

    def close(self) -> None:
        """The end of it."""
        self.standings.clear()
        self._consumer.close()


def _partitions(places: Mapping[Key, FetchPosition]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for (topic, partition), (offset, _) in places.items()]


def _key_of(message: Message) -> Key:
    return message.topic() or "", _number(message.partition())


def _number(number: int | None) -> int:
    """A number that librdkafka may leave out."""
    return -1 if number is None else number


def next_offset(messages: list[Message]) -> int:
    """The offset after the last of these."""
    return _number(messages[-1].offset()) + 1


class ConsumerCache:
    """The consumers that no task has at the moment. Decides under the lock, does I/O outside of it."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._idle: list[KeptConsumer] = []  # the longest idle first
        self._janitor: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, config: Config, wanted: Mapping[Key, FetchPosition]) -> KeptConsumer:
        """A consumer that stands at the wanted places: the one that needs the least for it, or a new one."""
        with self._wake:
            mine = [each for each in self._idle if each.config == config]
            best = max(mine, key=lambda each: _fitness(each, wanted), default=None)
            if best is not None and (_fitness(best, wanted) > (0, 0, 0) or len(self._idle) >= KEPT):
                self._idle.remove(best)
            else:
                best = None
        taken = best or KeptConsumer(config)
        try:
            taken.position(wanted)
        except BaseException:
            taken.close()
            raise
        return taken

    def give_back(self, consumer: KeptConsumer) -> None:
        """Keep it for the next task."""
        consumer.idle_since_s = time.monotonic()
        with self._wake:
            self._idle.append(consumer)
            surplus = self._idle[:-KEPT]
            del self._idle[:-KEPT]
            if self._janitor is None:
                self._janitor = threading.Thread(target=self._tidy, name="sharegroup-consumers", daemon=True)
                self._janitor.start()
            self._wake.notify()
        for each in surplus:
            each.close()

    def close(self) -> None:
        """Close those that are idle."""
        with self._wake:
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def _tidy(self) -> None:
        """Park and close what idles; ends when nothing is left, and is started again by the next one."""
        while True:
            with self._wake:
                if not self._idle:
                    self._janitor = None
                    return
                self._wake.wait(max(min(map(_due_s, self._idle)) - time.monotonic(), 0))
                now_s = time.monotonic()
                due = [each for each in self._idle if _due_s(each) <= now_s]
                self._idle = [each for each in self._idle if each not in due]
            parked = [each for each in due if each.standings]
            for each in due:
                if each in parked:
                    each.park()
                else:
                    each.close()
            with self._wake:
                self._idle = parked + self._idle


def _due_s(consumer: KeptConsumer) -> float:
    """When to park it, or to close it once it is parked."""
    return consumer.idle_since_s + (PARK_AFTER_S if consumer.standings else CLOSE_AFTER_S)


def _fitness(consumer: KeptConsumer, wanted: Mapping[Key, FetchPosition]) -> tuple[int, int, int]:
    """Best is one that stands right, then one that stands wrong on the same partitions, then a parked one."""
    standings = consumer.standings
    return consumer.serves(wanted), sum(key in standings for key in wanted), not standings


_cache = ConsumerCache()
_left_behind: list[ConsumerCache] = []


def cache() -> ConsumerCache:
    """This process's."""
    return _cache


def _in_forked_child() -> None:
    """A client's threads don't come along in a fork: its parent's consumers are neither used nor destroyed here."""
    global _cache
    _left_behind.append(_cache)
    _cache = ConsumerCache()


os.register_at_fork(after_in_child=_in_forked_child)
atexit.register(lambda: cache().close())
