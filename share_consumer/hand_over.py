"""The records that a poll has taken, until the program has them.

Rule: if anything ends a poll before it returns, even a signal handler that raises (Ctrl+C), the next poll returns its
records. So a poll's records count as returned only when the program calls the consumer again.

A record that can't be deserialized stays in its batch, with its bytes, and says so by ``error()``: the program
acknowledges it like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Messages
from confluent_kafka.serialization import MessageField, SerializationContext

from coordinator.kafka.record_headers import headers_of
from share_consumer.message import Message

Deserializer = Callable[..., Any]


class _Raw(NamedTuple):
    """A message with its key and value as the broker sent them."""

    message: Message
    key: Any
    value: Any


class HandOver:
    """The records of one consumer on their way from a poll to the program. The deserializers may be None."""

    def __init__(self, key_deserializer: Any, value_deserializer: Any) -> None:
        self._deserializers = key_deserializer, value_deserializer
        self._waiting: list[Message] = []
        self._raws: list[_Raw] = []
        self.returned: list[Message] = []
        """The records that the last poll returned. The consumer empties this list once it has counted them."""

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def add(self, messages: list[Message], *, are_deserialized: bool = False) -> None:
        """Add the records of a poll. The hand-over must be empty. ``are_deserialized``: by an earlier poll."""
        if any(each is not None for each in self._deserializers) and not are_deserialized:
            readable = (message for message in messages if message.error() is None)
            self._raws = [_Raw(message, message.key(), message.value()) for message in readable]
        self._waiting = messages

    def messages(self) -> Messages:
        """Take the records for a poll. Raises what a deserializer raises."""
        for raw in self._raws:
            _deserialize(raw, *self._deserializers)
        self.returned = messages = self._waiting
        self._waiting, self._raws = [], []
        return Messages._from_list(messages) if messages else Messages()  # type: ignore[arg-type]  # as confluent's

    def take_back(self, before: list[Message]) -> None:
        """Keep the records for the next poll, since this poll raises. ``before``: ``returned`` at the poll's begin."""
        if self.returned is not before and self.returned:
            self._waiting, self.returned = self.returned, []


def _deserialize(raw: _Raw, key: Deserializer | None, value: Deserializer | None) -> None:
    """Deserialize key and value in place. The key comes first, since its deserializer may prepare the value's. An
    interrupted call can be repeated."""
    message = raw.message
    context = SerializationContext(message.topic() or "", MessageField.KEY, headers_of(message))
    code = KafkaError._KEY_DESERIALIZATION
    try:
        new_key = raw.key if key is None else key(raw.key, context)
        code, context.field = KafkaError._VALUE_DESERIALIZATION, MessageField.VALUE
        new_value = raw.value if value is None else value(raw.value, context)
    except Exception as error:  # noqa: BLE001 - a deserializer is the program's
        message.set_error(KafkaError(code, str(error)))
        return
    message.set_key(new_key)
    message.set_value(new_value)
