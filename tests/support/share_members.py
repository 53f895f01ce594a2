"""A ShareConsumer whose coordinator and brokers are stubs: for what it does with answers, without a broker."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka

from coordinator.client.session import RequestOf
from coordinator.protocol.messages import Acknowledge, AcknowledgeReply, MarkInProgress, PartitionPlan, ProgressReply
from coordinator.protocol.values import AcknowledgeType, AcquiredRange
from share_consumer.ahead import Acquired
from share_consumer.consumer import ShareConsumer
from share_consumer.fetching import FetchAnswer, Wanted
from share_consumer.message import Message
from share_consumer.record_runs import RecordRun
from share_consumer.sending import Sending

CONFIG = {"bootstrap.servers": "127.0.0.1:9", "group.id": "billing"}
LOCK_MS = 30_000
JOINS = (1, 0)


def run_of(first: int, count: int, *, delivery_count: int = 1, topic_id: str = "T") -> RecordRun:
    """A run of ``count`` records of orders-0."""
    read = [confluent_kafka.Message(topic="orders", partition=0, offset=first + at, value=b"v") for at in range(count)]
    messages = [Message(message, delivery_count) for message in read]
    return RecordRun(("orders", 0), topic_id, first, delivery_count, messages)


def acquired(*runs: RecordRun, lock_s: float = LOCK_MS / 1000, joins: Any = JOINS) -> Acquired:
    """One acquisition of these records of orders-0, which were read at once."""
    ranges = tuple(AcquiredRange(run.first, run.last, run.delivery_count) for run in runs)
    plan = PartitionPlan(topic="orders", topic_id="T", partition=0, ranges=ranges)
    now_s = time.monotonic()
    found = Acquired((plan,), now_s, now_s, lock_s, joins)
    found.read(runs, [])
    return found


def offsets(messages: Any) -> list[int]:
    return [message.offset() for message in messages]


def refusing(*refused: int) -> Callable[[Any], AcknowledgeReply]:
    """The reply to acknowledgements of orders-0: refused, all of them, if they name one of these offsets."""

    def reply(partitions: Any) -> AcknowledgeReply:
        named = any(b.first <= at <= b.last for part in partitions for b in part.batches for at in refused)
        return AcknowledgeReply(errors={"T:0": "INVALID_RECORD_STATE"} if named else {})

    return reply


class StubMembership:
    """A membership that notes its requests. ``reply`` gives the answers to outcomes, ``signalled`` those to signals."""

    member_id = "m"

    def __init__(self) -> None:
        self.joins, self.lives_until_s = JOINS, math.inf
        self.calls: list[tuple[str, Any]] = []
        self.joined: object = self
        self.when_leaving: Callable[[], object] = lambda: None
        self.reply: Callable[[Any], AcknowledgeReply] = lambda partitions: AcknowledgeReply()
        self.signalled: Callable[[Any], ProgressReply] = lambda partitions: ProgressReply()

    def call(self, request_of: RequestOf[Any]) -> Any:
        request = request_of({"group_id": "billing", "member_id": self.member_id, "member_epoch": 1})
        if isinstance(request, MarkInProgress):
            self.calls.append(("signal", request.partitions))
            return self.signalled(request.partitions)
        assert isinstance(request, Acknowledge)
        self.calls.append(("acknowledge", request.partitions))
        return self.reply(request.partitions)

    def session(self, topics: tuple[str, ...]) -> object:
        self.calls.append(("join", topics))
        return self.joined

    def leave(self) -> None:
        self.calls.append(("leave for now", ()))

    def end_retries(self, in_s: float) -> None: ...

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
        self.supply = consumer._supply
        self.wanted: list[Wanted] = []
        self.delivery_count, self.ordered = 1, False
        self.real_membership = consumer._membership
        self._answers: queue.SimpleQueue[tuple[int, Exception | None]] = queue.SimpleQueue()
        self._next = 0
        consumer._membership = consumer._acknowledgements._membership = self.membership  # type: ignore[assignment]
        consumer._renewer._membership = consumer._supply._membership = self.membership  # type: ignore[assignment]
        consumer._supply._departure._membership = self.membership  # type: ignore[assignment]
        consumer._supply._fetcher._membership = self.membership  # type: ignore[assignment]
        consumer._supply._fetcher.fetch = self._fetch  # type: ignore[method-assign]

    def answer(self, records: int) -> None:
        """The next fetch answers with ``records`` records."""
        self._answers.put((records, None))

    def fail(self, error: Exception) -> None:
        """The next fetch fails."""
        self._answers.put((0, error))

    def hold(self, first: int, last: int) -> None:
        """These records are being read for the next poll."""
        self.supply.ahead.begin(acquired(run_of(first, last - first + 1)))

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

    def _fetch(self, wanted: Wanted, sending: Sending, answered: Callable[[dict[Any, str]], object]) -> FetchAnswer:
        self.wanted.append(wanted)
        self.asked.set()
        self.when_asked()
        if sending:
            self.riding.append(sending.partitions)
        records, error = self._answers.get()
        if sending:
            self.when_riding()
        answered({})
        fetched = FetchAnswer(error=error, ordered=self.ordered)
        if records:
            run = run_of(self._next, records, delivery_count=self.delivery_count)
            fetched.acquired, fetched.records = acquired(run, joins=self.membership.joins), records
            fetched.lock_timeout_ms = LOCK_MS
            self.supply.ahead.begin(fetched.acquired)
            self._next += records
        return fetched


def subscribed(**more: Any) -> tuple[ShareConsumer, Stubs]:
    """A consumer of orders with these configs, named in snake case, and its stubs."""
    consumer = ShareConsumer({**CONFIG, **{key.replace("_", "."): value for key, value in more.items()}})
    consumer.subscribe(["orders"])
    return consumer, Stubs(consumer)
