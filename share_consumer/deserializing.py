"""Keys and values as objects, as confluent_kafka.DeserializingShareConsumer makes them.

Rule: a record that can't be deserialized stays in its batch, with its bytes, and says so by ``error()``: the program
acknowledges it as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError
from confluent_kafka.serialization import MessageField, SerializationContext

from coordinator.kafka.record_headers import headers_of
from share_consumer.message import Message

Deserializer = Callable[..., Any]


class Raw(NamedTuple):
    """A message with its key and value as the broker sent them."""

    message: Message
    key: Any
    value: Any


def deserialize(raws: Iterable[Raw], key: Deserializer | None, value: Deserializer | None) -> None:
    """Deserialize keys and values in place. The key comes first, since its deserializer may prepare the value's. An
    interrupted call can be repeated."""
    if key is None and value is None:
        return
    for raw in raws:
        _deserialize(raw, key, value)


def _deserialize(raw: Raw, key: Deserializer | None, value: Deserializer | None) -> None:
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
