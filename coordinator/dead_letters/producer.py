"""Writes dead letters to their topic, idempotent and with acks=all. Returns the result of each.

Rule: a dead letter counts as written only once the broker has confirmed it. Without an answer it is written again, and
its origin headers identify a duplicate. A reason contains no secret."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from coordinator.dead_letters.record_format import DeadLetterRecord, dead_letter_partition
from coordinator.kafka.librdkafka import LOSSLESS, UNKNOWN_TOPIC, new_client, produced
from coordinator.protocol.topic_names import check_written

TIMEOUT_S = 10.0
LARGEST_BYTES = 1_000_000_000
"""The producer's limit, above any topic's max.message.bytes: the topic decides how large a dead letter may be."""

_FIXED = {
    **LOSSLESS,
    "message.max.bytes": str(LARGEST_BYTES),
    "linger.ms": "5",
    "topic.metadata.propagation.max.ms": "3000",  # a missing topic is reported before the timeout
}
_DEFAULTS = {"client.id": "sharegroup", "log_level": "0", "queue.buffering.max.kbytes": "65536"}
# One record per produce request, to find out which record is too large.
_SINGLY = {"batch.num.messages": "1", "linger.ms": "0"}

_OF_THE_RECORD = frozenset(
    (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,  # a compacted topic refuses a record without a key
        KafkaError.INVALID_TIMESTAMP,
    )
)
OF_THE_RECORD = frozenset(KafkaError(code).name() for code in _OF_THE_RECORD)
"""Errors that concern one record only. The broker refuses a whole batch for one such record."""
_PERMANENT = _OF_THE_RECORD.union(
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
"""Errors that only a person can correct. All other errors are retriable."""


class WriteStatus(Enum):
    """Whether a dead letter was written, and if not, whether a retry may help."""

    WRITTEN = "written"
    RETRIABLE_FAILURE = "retriable failure"
    PERMANENT_FAILURE = "permanent failure"


class WriteResult(NamedTuple):
    """The result of a write. ``reason``: why the dead letter was not written, or not with its record. ``headers_only``:
    it was written without its record."""

    status: WriteStatus
    reason: str = ""
    headers_only: bool = False


class DeadLetterProducer:
    """Writes dead letters. One thread at a time uses it. It stays connected from the first write on."""

    def __init__(
        self, bootstrap_servers: str, kafka_config: Mapping[str, str], *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Connects nowhere yet. ``timeout_s``: seconds that a dead letter waits for the broker; one write takes up to
        three times that."""
        self._addresses = bootstrap_servers
        self._timeout_s = timeout_s
        given = {key: value for key, value in kafka_config.items() if key != "transactional.id"}  # of no transaction
        self._config: dict[str, Any] = {**_DEFAULTS, **given, **_FIXED, "bootstrap.servers": bootstrap_servers}
        self._config["message.timeout.ms"] = str(int(timeout_s * 1000))
        self._producers: dict[bool, Producer] = {}

    def write(self, topic: str, partitions: int, letters: Sequence[DeadLetterRecord]) -> list[WriteResult]:
        """Writes the dead letters, and returns the result of each. ``partitions``: how many the topic has; the caller
        has checked that it exists. A dead letter whose write fails with a permanent error is written again with its
        headers only, without its record. Raises TopicNotWritten if the topic is reserved: nothing was written then."""
        check_written(topic)
        results = self._each(topic, partitions, letters)
        failed = WriteStatus.PERMANENT_FAILURE
        whole = [n for n, each in enumerate(results) if each.status is failed and not letters[n].is_headers_only]
        if whole:
            bare = self._each(topic, partitions, [letters[n].headers_only() for n in whole])
            for n, written in zip(whole, bare, strict=True):
                if written.status is WriteStatus.WRITTEN:
                    results[n] = WriteResult(WriteStatus.WRITTEN, results[n].reason, headers_only=True)
                elif written.status is WriteStatus.RETRIABLE_FAILURE:
                    results[n] = written
        return results

    def close(self) -> None:
        producers, self._producers = self._producers, {}
        for producer in producers.values():
            producer.purge()
            producer.flush(1.0)

    def _each(self, topic: str, partitions: int, letters: Sequence[DeadLetterRecord]) -> list[WriteResult]:
        """Write in batches. If the broker refuses a batch for one of its records, write each record of it alone."""
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
            record = (topic, letter.value, letter.key, partition)
            options = {"on_delivery": partial(_set_result, found, number), "headers": list(letter.headers)}
            try:
                if not produced(producer, deadline, *record, **options):
                    break
                producer.poll(0)
            except KafkaException as raised:
                found[number] = _failure(raised.args[0])
        if producer.flush(max(deadline - time.monotonic(), 0.0) + 1.0):
            producer.purge()
            producer.flush(1.0)
        if any(written.status is WriteStatus.RETRIABLE_FAILURE for written in found):
            self._producers.pop(singly, None)  # a new producer begins a new sequence
            producer.purge()
        return list(found)  # a copy: late delivery reports change the list

    def _producer(self, singly: bool) -> Producer:
        if singly not in self._producers:
            self._producers[singly] = new_client(Producer, {**self._config, **(_SINGLY if singly else {})})
        return self._producers[singly]


_UNKNOWN = WriteResult(WriteStatus.RETRIABLE_FAILURE, "no answer in time")
_WRITTEN = WriteResult(WriteStatus.WRITTEN)


def _set_result(found: list[WriteResult], number: int, error: KafkaError | None, _: object) -> None:
    found[number] = _WRITTEN if error is None else _failure(error)


def _failure(error: KafkaError) -> WriteResult:
    return WriteResult(
        WriteStatus.PERMANENT_FAILURE if error.code() in _PERMANENT else WriteStatus.RETRIABLE_FAILURE, error.name()
    )
