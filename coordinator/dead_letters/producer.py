"""Dead letters into their topic: idempotent, acks=all, and what became of each.

Rule: a letter counts as written only once the broker said so; of one that it did not speak of nothing is known, and it
may be there: it is written again, and its origin headers make the two one. No secret stands in a reason.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from coordinator.dead_letters.record_format import DeadLetterRecord, dead_letter_partition
from coordinator.protocol.librdkafka import UNKNOWN_TOPIC, new_client

TIMEOUT_S = 10.0
LARGEST_BYTES = 1_000_000_000
"""How large a letter may be is the topic's to say, not ours."""

_FIXED = {
    "enable.idempotence": "true",
    "acks": "all",
    "message.max.bytes": str(LARGEST_BYTES),
    "linger.ms": "5",
    "topic.metadata.propagation.max.ms": "3000",  # a topic that is not there is found out before the time is over
}
_DEFAULTS = {
    "client.id": "sharegroup",
    "log_level": "0",
    "queue.buffering.max.kbytes": "65536",
}
# Their own in a batch of ours: whether one is too large is known of it alone.
_SINGLY = {"batch.num.messages": "1", "linger.ms": "0"}

_OF_THE_RECORD = frozenset(
    (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,  # one without a key, where the topic is compacted
        KafkaError.INVALID_TIMESTAMP,
    )
)
OF_THE_RECORD = frozenset(KafkaError(code).name() for code in _OF_THE_RECORD)
"""Reasons that say nothing of other letters. A batch is refused as a whole: one such letter takes its neighbours with
it."""
_FOR_GOOD = _OF_THE_RECORD.union(
    UNKNOWN_TOPIC,
    (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError._INVALID_ARG,
    ),
)
"""Waiting does not mend these; a person may. All else may pass."""


class WriteStatus(Enum):
    """What became of a letter."""

    WRITTEN = "written"
    PASSING = "passing"
    CANT_HEAL = "can't heal"


class WriteResult(NamedTuple):
    """What became of a letter, and the reason if it is not there. ``headers_only``: it stands there without its
    record, for that reason."""

    fate: WriteStatus
    reason: str = ""
    headers_only: bool = False


class DeadLetterProducer:
    """Used by one thread at a time. It connects when it first writes, and keeps the connection until it is closed."""

    def __init__(
        self, bootstrap_servers: str, kafka_config: Mapping[str, str], *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """``timeout_s``: how long a letter waits for the broker. One write takes thrice that at most."""
        self._addresses = bootstrap_servers
        self._timeout_s = timeout_s
        self._config: dict[str, Any] = {**_DEFAULTS, **kafka_config, **_FIXED, "bootstrap.servers": bootstrap_servers}
        self._config["message.timeout.ms"] = str(int(timeout_s * 1000))
        self._producers: dict[bool, Producer] = {}

    def __repr__(self) -> str:
        return f"<DeadLetterProducer {self._addresses}>"

    def write(self, topic: str, partitions: int, letters: Sequence[DeadLetterRecord]) -> list[WriteResult]:
        """What became of each. The topic is there and has so many partitions. A letter that can't be written as it is
        is written without its record (headers only) before it counts as one that can't heal."""
        found = self._each(topic, partitions, letters)
        whole = [n for n, w in enumerate(found) if w.fate is WriteStatus.CANT_HEAL and not letters[n].is_headers_only]
        if whole:
            bare = self._each(topic, partitions, [letters[n].headers_only() for n in whole])
            for n, written in zip(whole, bare, strict=True):
                if written.fate is WriteStatus.WRITTEN:
                    found[n] = WriteResult(WriteStatus.WRITTEN, found[n].reason, headers_only=True)
                elif written.fate is WriteStatus.PASSING:
                    found[n] = written
        return found

    def close(self) -> None:
        """Let go of the connection; nothing waits in it."""
        producers, self._producers = self._producers, {}
        for producer in producers.values():
            producer.purge()
            producer.flush(1.0)

    # --- inside

    def _each(self, topic: str, partitions: int, letters: Sequence[DeadLetterRecord]) -> list[WriteResult]:
        """In batches, and those that a batch was refused with once more, each alone."""
        found = self._written(topic, partitions, letters)
        if refused := [n for n, written in enumerate(found) if written.reason in OF_THE_RECORD]:
            again = self._written(topic, partitions, [letters[n] for n in refused], singly=True)
            for n, written in zip(refused, again, strict=True):
                found[n] = written
        return found

    def _written(
        self, topic: str, partitions: int, letters: Sequence[DeadLetterRecord], *, singly: bool = False
    ) -> list[WriteResult]:
        producer = self._producer(singly)
        found = [_UNKNOWN] * len(letters)
        deadline = time.monotonic() + self._timeout_s
        for number, letter in enumerate(letters):
            partition = dead_letter_partition(letter.origin.partition, partitions)
            told = partial(_told, found, number)
            try:
                if not _produced(producer, topic, partition, letter, told, deadline):
                    break
            except KafkaException as raised:
                found[number] = _judged(raised.args[0])
        if producer.flush(max(deadline - time.monotonic(), 0.0) + 1.0):
            producer.purge()
            producer.flush(1.0)
        if any(written.fate is WriteStatus.PASSING for written in found):
            self._producers.pop(singly, None)  # with a new one a new sequence begins
            producer.purge()
        return list(found)  # as it is now, whoever is told later

    def _producer(self, singly: bool) -> Producer:
        if singly not in self._producers:
            self._producers[singly] = new_client(Producer, {**self._config, **(_SINGLY if singly else {})})
        return self._producers[singly]


def _produced(
    producer: Producer, topic: str, partition: int, letter: DeadLetterRecord, told: Any, deadline: float
) -> bool:
    """False if the queue stayed full until the deadline."""
    while True:
        try:
            producer.produce(topic, letter.value, letter.key, partition, on_delivery=told, headers=list(letter.headers))
        except BufferError:
            if time.monotonic() >= deadline:
                return False
            producer.poll(0.05)
        else:
            producer.poll(0)
            return True


_UNKNOWN = WriteResult(WriteStatus.PASSING, "no answer in time")
_WRITTEN = WriteResult(WriteStatus.WRITTEN)


def _told(found: list[WriteResult], number: int, error: KafkaError | None, _: object) -> None:
    found[number] = _WRITTEN if error is None else _judged(error)


def _judged(error: KafkaError) -> WriteResult:
    return WriteResult(WriteStatus.CANT_HEAL if error.code() in _FOR_GOOD else WriteStatus.PASSING, error.name())
