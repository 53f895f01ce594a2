"""Records that a test puts into topics: which are taken, and which partition each goes to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from coordinator.protocol.topic_names import is_topic_name
from sharegroup.demo.embedded_broker import PARTITIONS_PER_TOPIC, EmbeddedBroker
from sharegroup.testing.errors import RecordsNotKept, UnusableRecord, UnusableTopicName

_BY_KEY = -1
"""librdkafka's number for a partition that the record's key decides."""
_ANSWER_WITHIN_S = 60.0


class Record(NamedTuple):
    """A record with a key or headers. ``partition`` None: by the key as in Kafka; without a key the records of a call
    go to the partitions 0 to 3 in turn."""

    value: str | bytes | None
    key: str | bytes | None = None
    headers: tuple[tuple[str, str | bytes | None], ...] = ()
    partition: int | None = None


def checked(topics: object) -> dict[str, list[Record]]:
    """Returns the topics with their records.

    Raises:
        TypeError: ``topics`` is no mapping.
        UnusableTopicName: a name can't be a topic's.
        UnusableRecord: a record is of another type, or names a partition that there is not."""
    if not isinstance(topics, Mapping):
        kind = type(topics).__name__
        raise TypeError(f"topics is a dict, as {{'orders': ['a record']}}, and {topics!r} is of type {kind}")
    found = {}
    for topic, records in topics.items():
        if not isinstance(topic, str) or not is_topic_name(topic):
            raise UnusableTopicName(found=repr(topic))
        if isinstance(records, str | bytes | Mapping | Record) or not isinstance(records, Iterable):
            raise UnusableRecord(topic=topic, found=repr(records), reason="it is no list of records")
        found[topic] = list(_placed(topic, records))
    return found


def _placed(topic: str, records: Iterable[object]) -> Iterator[Record]:
    for number, given in enumerate(records):
        record = given if isinstance(given, Record) else Record(given)  # type: ignore[arg-type]
        parts: tuple[object, ...] = (record.value, record.key)
        for part in parts:
            if not isinstance(part, str | bytes | None):
                kind = type(part).__name__
                raise UnusableRecord(topic=topic, found=repr(given), reason=f"its key or value is of the type {kind}")
        if record.partition not in (None, *range(PARTITIONS_PER_TOPIC)):
            reason = f"a partition is an int from 0 to {PARTITIONS_PER_TOPIC - 1}"
            raise UnusableRecord(topic=topic, found=repr(given), reason=reason)
        is_placed = record.key is not None or record.partition is not None
        yield record if is_placed else record._replace(partition=number % PARTITIONS_PER_TOPIC)


def put(embedded: EmbeddedBroker, topics: Mapping[str, list[Record]]) -> None:
    """Create the topics that do not exist, and put the records into them, in order.

    Raises:
        UnusableRecord: its headers can't be a record's.
        RecordsNotKept: the broker does not have all of the records."""
    refused: dict[str, KafkaError] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused[str(message.topic())] = error

    # Without retries no record is there twice. An idempotent producer would wait for half a second first.
    config = {"bootstrap.servers": embedded.bootstrap_servers, "acks": "all", "retries": 0, "log_level": 0}
    producer = Producer({**config, "queue.buffering.max.messages": 10_000_000})
    for topic, records in topics.items():
        embedded.create_topic(topic)
        for record in records:
            partition = _BY_KEY if record.partition is None else record.partition
            try:
                producer.produce(topic, record.value, record.key, partition, delivered, headers=list(record.headers))
            except KafkaException as error:
                raise RecordsNotKept(topic=topic, reason=error.args[0].str()) from None
            except (TypeError, ValueError) as error:
                raise UnusableRecord(topic=topic, found=repr(record), reason=error) from None
        if producer.flush(_ANSWER_WITHIN_S) or topic in refused:
            reason = refused[topic].str() if topic in refused else f"no answer within {_ANSWER_WITHIN_S:g} s"
            raise RecordsNotKept(topic=topic, reason=reason)
        if records and any(firsts := [first for first, _ in embedded.bounds(topic)]):
            raise RecordsNotKept(topic=topic, reason=f"the oldest are gone (the partitions begin at offsets {firsts})")
