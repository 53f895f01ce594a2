"""The records that a poll has taken, until the program has them.

Rule: whatever ends a poll before it has returned, a signal handler that raises (Ctrl+C) included, leaves its records to
the next poll. So a poll's records count as returned only when the program calls the consumer again.
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
        """The records that the last poll returned. The consumer empties the list when it has counted them."""

    def __repr__(self) -> str:
        return f"<HandOver {len(self._waiting)} records>"

    @property
    def waits(self) -> bool:
        """Whether there are records that no poll has returned."""
        return bool(self._waiting)

    def add(self, messages: list[Message], *, are_deserialized: bool = False) -> None:
        """Add the records of a poll. The hand-over must be empty. ``are_deserialized``: the records were returned
        before."""
        if any(each is not None for each in self._deserializers) and not are_deserialized:
            readable = (message for message in messages if message.error() is None)
            self._raws = [Raw(message, message.key(), message.value()) for message in readable]
        self._waiting = messages

    def messages(self) -> Messages:
        """Returns the records for a poll. Raises what a deserializer raises."""
        deserialize(self._raws, *self._deserializers)
        self.returned = messages = self._waiting
        self._waiting, self._raws = [], []
        return Messages._from_list(messages) if messages else Messages()  # type: ignore[arg-type]  # as confluent's

    def take_back(self, before: list[Message]) -> None:
        """Keep the records for the next poll: this one ends with an exception. ``before``: what had been returned when
        it began."""
        if self.returned is not before and self.returned:
            self._waiting, self.returned = self.returned, []
