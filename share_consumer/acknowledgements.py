"""Acknowledgements and signals on their way to the coordinator, and what the program gets of the replies: the result of
a commit, calls of the callback, refused signals.

Rule: the callback is called in the program's own thread, within a method of the consumer, once for each partition."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicPartition

from coordinator.protocol.errors import ShareGroupError, UnknownMemberId
from coordinator.protocol.messages import Acknowledge, MarkInProgress, PartitionProgress
from share_consumer.errors import kafka_exception, of_code
from share_consumer.implicit import ImplicitInFlight
from share_consumer.in_flight import InFlight
from share_consumer.membership import Membership
from share_consumer.sending import Sending
from share_consumer.worker import Worker
from share_source.executor.range_cursor import Key

logger = logging.getLogger(__name__)

AcknowledgementCallback = Callable[[dict[TopicPartition, set[int]], KafkaException | None], object]
Errors = Mapping[Key, str]
LINGER_S = 0.05
"""Outcomes wait up to this many seconds for the next request for records, which takes them along. They wait only if
that request is sent without a poll (:attr:`Supply.asks_ahead`)."""
Committed = dict[TopicPartition, KafkaException | None]


class RefusedSignals(NamedTuple):
    """Signals that the coordinator refused, and why."""

    signals: PartitionProgress
    why: Exception


class Acknowledgements:
    """Sends the acknowledgements and signals of one consumer, in order. Another worker requests records, so a commit
    never waits for a poll."""

    def __init__(self, membership: Membership) -> None:
        self.callback: AcknowledgementCallback | None = None
        self._membership, self._metrics = membership, membership.metrics
        self._worker = Worker("share-acknowledgements")
        self._sent: deque[tuple[Sending, Future[dict[Key, str]]]] = deque()
        self._answered: deque[tuple[Sending, Errors]] = deque()
        self.lingers = False
        """Whether outcomes wait to be sent."""
        self._hurries = threading.Event()
        self._signals: deque[Future[list[RefusedSignals]]] = deque()

    def send(self, sending: Sending) -> Future[dict[Key, str]]:
        """Send the acknowledgements later. The future gets the errors by partition."""
        future = self._worker.submit(lambda: acknowledged(self._membership, sending))
        self.ride(sending, future)
        return future

    def send_soon(self, take: Callable[[], Sending]) -> None:
        """Send what ``take`` returns after LINGER_S seconds, unless another request has sent it by then."""
        if not self.lingers:
            self.lingers = True
            self._worker.submit(lambda: self._send_rest(take))

    def _send_rest(self, take: Callable[[], Sending]) -> None:
        self._hurries.wait(LINGER_S)
        self.lingers = False  # first: what comes from now on is sent by the next call
        if sending := take():
            answer: Future[dict[Key, str]] = Future()
            self.ride(sending, answer)
            answer.set_result(acknowledged(self._membership, sending))

    def call(self, function: Callable[[], object]) -> Future[object]:
        """Call the function once everything that was submitted before it is done."""
        return self._worker.submit(function)

    def ride(self, sending: Sending, answer: Future[dict[Key, str]]) -> None:
        """Track acknowledgements that a request carries. ``answer`` gets the errors by partition."""
        self._metrics.acknowledged(sum(sending.counts.values()))
        self._sent.append((sending, answer))

    def signal(self, partitions: tuple[PartitionProgress, ...]) -> None:
        self._signals.append(self._worker.submit(lambda: _refused_signals(self._membership, partitions)))

    def refused_signals(self) -> list[RefusedSignals]:
        """Returns the signals that were refused since the last call."""
        refused = []
        while self._signals and self._signals[0].done():
            refused += self._signals.popleft().result()
        return refused

    def settled(self) -> list[tuple[Sending, Errors]]:
        while self._sent and self._sent[0][1].done():
            sending, future = self._sent.popleft()
            self._answered.append((sending, future.result()))
            if refused := sum(count for key, count in sending.counts.items() if key in future.result()):
                self._metrics.refused(refused)
        settled = list(self._answered)
        self._answered.clear()
        return settled

    def call_back(self, settled: Iterable[tuple[Sending, Errors]]) -> None:
        """Call the callback for these replies. If it raises, raise its first exception after all calls."""
        raised: BaseException | None = None
        for sending, errors in settled:
            for key, offsets in sending.offsets.items() if self.callback is not None else ():
                if self.callback is None:
                    break  # the callback removed itself
                try:
                    self.callback({_named(key): set(offsets)}, _exception(errors.get(key)))
                except BaseException as error:  # noqa: BLE001 - an answer that is not told now is never told
                    raised = raised or error
        if raised is not None:
            raise raised

    def close(self, then: Callable[[], None]) -> Future[None]:
        """Call ``then`` once everything that was submitted before it is done, then end the thread."""
        self._hurries.set()
        future = self._worker.submit(then)
        self._worker.close()
        return future


class Departure:
    """The leaving of a consumer without a subscription. Its outcomes are sent first, since a member that has left can't
    send them. A consumer whose program holds records stays a member, since leaving would release these. This object has
    no reference to the consumer: a thread that leaves keeps no consumer alive. ``changing`` guards ``in_flight``."""

    def __init__(
        self,
        membership: Membership,
        acknowledgements: Acknowledgements,
        in_flight: InFlight | ImplicitInFlight,
        changing: threading.Lock,
    ) -> None:
        self._membership, self._acknowledgements = membership, acknowledgements
        self._in_flight, self._changing = in_flight, changing

    def holds_records(self) -> bool:
        """Send the outcomes that need no commit of the program. Returns whether the program holds records. Called in a
        thread of its own."""
        with self._changing:
            is_due = isinstance(self._in_flight, ImplicitInFlight) or self._acknowledgements.lingers
            sending = self._in_flight.take() if is_due else self._in_flight.take_unread()
            holds = self._in_flight.holds_records
        if sending:
            self._acknowledgements.send(sending)
        return holds

    def leave(self) -> None:
        """Leave the group after all pending outcomes, if the consumer has joined it."""
        self._acknowledgements.call(lambda: None).result()
        self._membership.leave()


def acknowledged(membership: Membership, sending: Sending) -> dict[Key, str]:
    """Send the acknowledgements and wait. Returns the errors by partition."""
    try:
        partitions = sending.partitions
        reply = membership.call(lambda who: Acknowledge(**who, partitions=partitions))
    except UnknownMemberId:  # without a subscription, it left when its records' locks ended
        return sending.all_failed("INVALID_RECORD_STATE")
    except Exception as error:  # noqa: BLE001 - an outcome without an answer would never be told
        return all_failed(sending, error)
    for lock in reply.capped:
        logger.warning(
            "partition %d, offsets %d-%d: the lock ends in %.1f s, when share.max.lock.extension.ms is used up, and "
            "can't be renewed",
            *(lock.partition, lock.first, lock.last, lock.left_ms / 1000),
        )
    return sending.errors(reply.errors)


def _refused_signals(membership: Membership, partitions: tuple[PartitionProgress, ...]) -> list[RefusedSignals]:
    """Send the signals and wait. The coordinator refuses all signals of a partition together, so each range of a
    refused partition is sent again, alone."""
    try:
        if not (errors := _errors_of_signals(membership, partitions)):
            return []
        refused = []
        for signals in partitions:
            name = f"{signals.topic_id}:{signals.partition}"
            for batch in signals.batches if name in errors else ():
                alone = PartitionProgress(topic_id=signals.topic_id, partition=signals.partition, batches=(batch,))
                if answer := _errors_of_signals(membership, (alone,)).get(name):
                    refused.append(RefusedSignals(alone, of_code(*answer)))
        return refused
    except Exception as error:  # noqa: BLE001 - an error without an answer would never be told
        told = kafka_exception(error) if isinstance(error, ShareGroupError) else error
        return [RefusedSignals(signals, told) for signals in partitions]


def _errors_of_signals(
    membership: Membership, partitions: tuple[PartitionProgress, ...]
) -> Mapping[str, tuple[str, str]]:
    return membership.call(lambda who: MarkInProgress(**who, partitions=partitions)).errors


def all_failed(sending: Sending, error: BaseException) -> dict[Key, str]:
    """Returns one error for all partitions."""
    return sending.all_failed(error.kafka_error if isinstance(error, ShareGroupError) else "UNKNOWN")


def committed(sending: Sending, errors: Errors) -> Committed:
    """Returns the result of a commit, by partition."""
    return {_named(key): _exception(errors.get(key)) for key in sending.records}


def _named(key: Key) -> TopicPartition:
    return TopicPartition(key[0], key[1], 0)  # the offset that confluent's class names


def _exception(code: str | None) -> KafkaException | None:
    return None if code is None else of_code(code)
