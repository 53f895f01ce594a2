"""The records that a poll has taken, until the program has them.

Rule: if anything ends a poll before it returns, even a signal handler that raises (Ctrl+C), the next poll returns its
records. So a poll's records count as returned only when the program calls the consumer again.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import Messages

from share_consumer.deserializing import Raw, deserialize
from share_consumer.message import Message


class HandOver:
    """The records of one consumer on their way from a poll to the program. The deserializers may be None."""

    def __init__(self, key_deserializer: Any, value_deserializer: Any) -> None:
        self._deserializers = key_deserializer, value_deserializer
        self._waiting: list[Message] = []
        self._raws: list[Raw] = []
        self.returned: list[Message] = []
        """The records that the last poll returned. The consumer empties this list once it has counted them."""

    def __repr__(self) -> str:
        return f"<HandOver {len(self._waiting)} records>"

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def add(self, messages: list[Message], *, are_deserialized: bool = False) -> None:
        """Add the records of a poll. The hand-over must be empty. ``are_deserialized``: an earlier poll has
        deserialized them."""
        if any(each is not None for each in self._deserializers) and not are_deserialized:
            readable = (message for message in messages if message.error() is None)
            self._raws = [Raw(message, message.key(), message.value()) for message in readable]
        self._waiting = messages

    def messages(self) -> Messages:
        """Take the records for a poll. Raises what a deserializer raises."""
        deserialize(self._raws, *self._deserializers)
        self.returned = messages = self._waiting
        self._waiting, self._raws = [], []
        return Messages._from_list(messages) if messages else Messages()  # type: ignore[arg-type]  # as confluent's

    def take_back(self, before: list[Message]) -> None:
        """Keep the records for the next poll, since this poll raises. ``before``: ``returned`` as it was when this poll
        began."""
        if self.returned is not before and self.returned:
            self._waiting, self.returned = self.returned, []
