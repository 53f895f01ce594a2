"""A ShareConsumer whose coordinator and brokers are stubs: for what it does with answers, without a broker."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Message

from coordinator.protocol.messages import Acknowledge, AcknowledgeReply, MarkInProgress, PartitionPlan, ProgressReply
from coordinator.protocol.values import AcknowledgeType, AcquiredRange
from share_source.share_consumer.consumer import ShareConsumer
from share_source.share_consumer.fetching import Fetched
from share_source.share_consumer.in_flight import Delivered, Sending

CONFIG = {"bootstrap.servers": "127.0.0.1:9", "group.id": "billing"}
LOCK_MS = 30_000


def delivered(first: int, count: int) -> Delivered:
    """So many records of orders-0, delivered once."""
    messages = [Message(topic="orders", partition=0, offset=first + at, value=b"v") for at in range(count)]
    return Delivered("orders", 0, "T", messages, [1] * count)


class StubMembership:
    """A membership that notes its requests. ``reply`` gives the answers to outcomes, ``signalled`` those to signals."""

    member_id = "m"

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.joined: object = self
        self.when_leaving: Callable[[], object] = lambda: None
        self.reply: Callable[[Any], AcknowledgeReply] = lambda partitions: AcknowledgeReply()
        self.signalled: Callable[[Any], ProgressReply] = lambda partitions: ProgressReply()

    def call(self, request: type[Any], **fields: Any) -> Any:
        if request is MarkInProgress:
            self.calls.append(("signal", fields["partitions"]))
            return self.signalled(fields["partitions"])
        assert request is Acknowledge
        self.calls.append(("acknowledge", fields["partitions"]))
        return self.reply(fields["partitions"])

    def close(self) -> None:
        self.when_leaving()
        self.calls.append(("leave", ()))


class Stubs:
    """The stubs of one consumer. Its fetches wait for ``answer`` or ``fail``."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self.membership = StubMembership()
        self.asked = threading.Event()
        self.riding: list[Any] = []
        self.when_asked: Callable[[], object] = lambda: None
        self.when_riding: Callable[[], object] = lambda: None
        self._fetcher = consumer._fetcher
        self.real_membership = consumer._membership
        self._answers: queue.SimpleQueue[tuple[int, Exception | None]] = queue.SimpleQueue()
        self._next = 0
        consumer._membership = consumer._acknowledgements._membership = self.membership  # type: ignore[assignment]
        consumer._renewer._membership = consumer._fetcher._membership = self.membership  # type: ignore[assignment]
        consumer._fetcher.fetch = self._fetch  # type: ignore[method-assign]

    def answer(self, records: int) -> None:
        """The next fetch answers with so many records."""
        self._answers.put((records, None))

    def fail(self, error: Exception) -> None:
        """The next fetch fails."""
        self._answers.put((0, error))

    def hold(self, topic: str, first: int, last: int) -> None:
        """The fetcher holds these records for the next poll."""
        held = PartitionPlan(topic=topic, topic_id="T", partition=0, ranges=(AcquiredRange(first, last, 1),))
        self._fetcher.held.partitions = (held,)

    def signals(self) -> list[Any]:
        """The partitions of each request with signals."""
        return [partitions for kind, partitions in self.membership.calls if kind == "signal"]

    def outcomes(self) -> list[tuple[int, str]]:
        """The outcomes that were sent, by offset; renewals are none."""
        sent = [partitions for kind, partitions in self.membership.calls if kind == "acknowledge"] + self.riding
        return [
            (offset, AcknowledgeType(batch.types[0]).name)
            for partitions in sent
            for part in partitions
            for batch in part.batches
            for offset in range(batch.first, batch.last + 1)
        ]

    def _fetch(
        self, topics: tuple[str, ...], sending: Sending, wait_ms: int, answered: Callable[[dict[Any, str]], object]
    ) -> Fetched:
        self.asked.set()
        self.when_asked()
        if sending:
            self.riding.append(sending.partitions)
        records, error = self._answers.get()
        if sending:
            self.when_riding()
        answered({})
        fetched = Fetched(error=error)
        if records:
            fetched.delivered = [delivered(self._next, records)]
            fetched.lock_timeout_ms, fetched.until_s = LOCK_MS, time.monotonic() + LOCK_MS / 1000
            self._next += records
        return fetched
