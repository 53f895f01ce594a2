"""A record of a ShareConsumer, with the methods of confluent_kafka.Message, where Python reads the records. The
compiled reader makes messages of its own (share_source/executor/native/message.h) with the same methods.

Rule: librdkafka's message is kept as it is, since a copy costs more time than reading the record did. The delivery
count stands beside it, since only that class's constructor could set one."""

from __future__ import annotations

import copy
from typing import Any

import confluent_kafka
import msgspec
from confluent_kafka import KafkaError

from coordinator.kafka.record_headers import headers_of


class Message(msgspec.Struct, gc=False, eq=False):
    """A message that librdkafka read, and its delivery count. ``isinstance`` counts it as a confluent_kafka.Message."""

    _read: confluent_kafka.Message
    _delivery_count: int

    @property  # type: ignore[misc]  # nobody writes it
    def __class__(self) -> Any:  # isinstance() asks for it, and type() does not
        return confluent_kafka.Message

    def __len__(self) -> int:
        return len(self._read)

    def __repr__(self) -> str:
        at = f"{self.topic()}-{self.partition()}@{self.offset()}"
        return f"<Message {at} delivery_count={self._delivery_count}>"

    def __copy__(self) -> Message:
        """Returns another message: what is set in it is not set in this one."""
        return Message(copy.copy(self._read), self._delivery_count)

    def __reduce__(self) -> tuple[Any, ...]:
        self.headers()
        return Message, (self._read, self._delivery_count)

    def delivery_count(self) -> int:
        """Returns how often the record has been acquired, this time included."""
        return self._delivery_count

    def topic(self) -> str | None:
        return self._read.topic()

    def partition(self) -> int | None:
        return self._read.partition()

    def offset(self) -> int | None:
        return self._read.offset()

    def key(self) -> Any:
        return self._read.key()

    def value(self) -> Any:
        return self._read.value()

    def headers(self) -> Any:
        return headers_of(self._read)

    def timestamp(self) -> tuple[int, int]:
        return self._read.timestamp()

    def error(self) -> KafkaError | None:
        return self._read.error()

    def latency(self) -> float | None:
        return self._read.latency()

    def leader_epoch(self) -> int | None:
        return self._read.leader_epoch()

    def deserialized_key(self) -> Any:
        return self._read.deserialized_key()

    def deserialized_value(self) -> Any:
        return self._read.deserialized_value()

    def set_error(self, value: KafkaError) -> None:
        self._read.set_error(value)

    def set_headers(self, value: Any) -> None:
        self._read.set_headers(value)

    def set_key(self, value: Any) -> None:
        self._read.set_key(value)

    def set_topic(self, value: str) -> None:
        self._read.set_topic(value)  # type: ignore[attr-defined]  # its stub has none

    def set_value(self, value: Any) -> None:
        self._read.set_value(value)


AnyMessage = Message | confluent_kafka.Message
"""A message as the program has it. At run time it is ours; a type checker may know it as confluent's."""
