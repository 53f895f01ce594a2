"""The ShareConsumer, with the methods, the exceptions and the messages of confluent_kafka.ShareConsumer.

Rule: a poll alone asks for records, so that a program that works holds no more of them than it was given. Delivery is
at least once: in implicit mode the next poll or commit accepts what the last poll returned; records without an outcome
at close() are released.
"""

from __future__ import annotations

import logging
import operator
import os
import time
import weakref
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from threading import Condition, Lock
from typing import Any

from confluent_kafka import IllegalStateException, Message, Messages

from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import PartitionAcks
from coordinator.protocol.values import AcknowledgeType
from share_source.range_cursor import Key
from share_source.share_consumer.acknowledgements import AcknowledgementCallback, Acknowledgements, Committed, committed
from share_source.share_consumer.arguments import ERRONEOUS, INVALID, check_hint, check_type, timeout_seconds
from share_source.share_consumer.deserializing import Raw, deserialize
from share_source.share_consumer.errors import SignalInImplicitMode, WakeupException, kafka_exception
from share_source.share_consumer.fetching import Answered, Fetched, Fetcher
from share_source.share_consumer.in_flight import InFlight, Sending, acks_of
from share_source.share_consumer.membership import Membership
from share_source.share_consumer.options import ConsumerOptions
from share_source.share_consumer.renewal import Renewer
from share_source.share_consumer.single_thread import SingleThread
from share_source.share_consumer.worker import Worker

logger = logging.getLogger(__name__)

LONGEST_WAIT_S = 1.0
"""Seconds of one question for records, at most: so long may a poll that was given up hold back the next one."""


class ShareConsumer:
    """A member of a share group that gets single records, each for a limited time, and acknowledges each of them.

    The constructor takes a configuration dict, or keywords, as confluent_kafka.ShareConsumer does. Like that class a
    ShareConsumer is for one thread at a time; another thread may call :meth:`wakeup` alone.
    """

    def __init__(self, config: dict[str, Any] | None = None, /, **more: Any) -> None:
        """Checks the configuration; connects nowhere yet.

        Raises:
            KafkaException, ValueError, TypeError: the configuration is wrong, as of ConsumerOptions.parse.
        """
        if (config is None and not more) or not isinstance(config, dict | None):
            raise TypeError("expected configuration dict")
        self._options = options = ConsumerOptions.parse({**(config or {}), **more})
        self._inside = SingleThread(options.group_id)
        self._topics: tuple[str, ...] = ()
        self._changing = Lock()
        self._in_flight = InFlight()
        self._membership = Membership(options)
        self._fetching = Worker("share-fetching")
        self._fetch: Future[Fetched] | None = None
        self._acknowledgements = Acknowledgements(self._membership)
        self._renewing: Future[dict[Key, str]] | None = None
        self._riding: Future[dict[Key, str]] | None = None
        self._leaving: Future[None] | None = None
        self._unreturned: list[Message] = []
        self._raws: list[Raw] = []
        self._renewer = Renewer(self._membership, self._held, self._renewed)
        self._fetcher = Fetcher(options, self._membership, self._renewer.start)
        self._news = Condition()
        self._woken = False
        self._waits = False
        self._polled_s = 0.0
        self._held_until_s = 0.0
        self._lock_timeout_ms: int | None = None
        ends = (self._renewer, self._fetcher, self._fetching, self._acknowledgements, self._membership)
        self._dropped = weakref.finalize(self, _dropped, os.getpid(), *ends)
        self._dropped.atexit = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._options.group_id} {self._in_flight!r}>"

    def __enter__(self) -> ShareConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the subscription

    def subscribe(self, topics: list[str]) -> None:
        """Subscribe to these topics in place of those before. A list of one name that begins with ^ is a regular
        expression (RE2) for whole names.

        Raises:
            TypeError: it is no list.
            ValueError: a name is empty, or named twice.
        """
        with self._inside.enter():
            if not isinstance(topics, list):
                raise TypeError("expected list of topic unicode strings")
            names = tuple(map(str, topics))
            if not all(names) or len(set(names)) < len(names):
                raise ValueError(f"Failed to subscribe: {INVALID}")
            self._topics = names

    def unsubscribe(self) -> None:
        """Subscribe to nothing. Records that are in flight can still be acknowledged; those that no poll has returned
        are released."""
        with self._inside.enter():
            self._topics = ()
            if self._fetch is not None:
                self._fetch = None
                self._fetching.submit(self._give_back)  # after the fetch

    def _give_back(self) -> None:
        self._fetcher.give_back()
        self._held_until_s = 0.0

    def subscription(self) -> list[str]:
        """The topics that the consumer is subscribed to."""
        with self._inside.enter():
            return list(self._topics)

    # --- records

    def poll(self, timeout: float = -1) -> Messages:
        """The next records; empty if none come within ``timeout`` seconds (-1: it waits for ever). In implicit mode the
        records of the poll before are accepted.

        Raises:
            IllegalStateException: nothing is subscribed to, or, in explicit mode, records of the poll before have no
                outcome and are not in progress.
            KafkaException: the coordinator, or the brokers, refuse; or the coordinator has refused a signal.
            WakeupException: another thread called :meth:`wakeup`.
        """
        with self._inside.enter():
            seconds = timeout_seconds(timeout)
            self._send_signals()
            if not self._unreturned:
                self._check_signals()
                self._check_decided()
                if not self._topics:
                    raise IllegalStateException("Consumer is not subscribed to any topics")
                deadline_s = None if seconds < 0 else time.monotonic() + seconds
                with self._changing:
                    if not self._options.explicit:
                        self._in_flight.accept_all()
                if not self._renewed_came(deadline_s):
                    self._poll(deadline_s)
                    self._settle()
            return self._hand_over()

    def _hand_over(self) -> Messages:
        """The records that no poll has returned yet. Whatever ends a poll before, Ctrl+C too, leaves them to the next
        one."""
        deserialize(self._raws, self._options.key_deserializer, self._options.value_deserializer)
        messages, self._unreturned, self._raws = self._unreturned, [], []
        for message in messages:
            self.hand_out(message)
        return Messages._from_list(messages) if messages else Messages()

    def _check_decided(self) -> None:
        if self._options.explicit and (count := self._in_flight.undecided):
            raise IllegalStateException(f"{count} records from previous poll have not been acknowledged")

    def _poll(self, deadline_s: float | None) -> None:
        """Wait for records until then."""
        while not self._unreturned:
            self._polled_s = time.monotonic()
            self._check_wakeup()  # before the outcomes leave: a close() that follows sends them
            fetch = self._ask(deadline_s)
            if not self._wait(fetch, deadline_s):
                return
            self._take(fetch.result())
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return

    def _ask(self, deadline_s: float | None) -> Future[Fetched]:
        """The question for records that is on its way, or a new one. Outcomes go with a new one."""
        with self._changing:
            sending = self._in_flight.take()
        if self._fetch is not None:
            if sending:
                self._acknowledgements.send(sending)
            return self._fetch
        left_s = LONGEST_WAIT_S if deadline_s is None else min(deadline_s - time.monotonic(), LONGEST_WAIT_S)
        topics, wait_ms = self._topics, max(int(left_s * 1000), 0)
        riding: Future[dict[Key, str]] = Future()
        self._fetch = self._fetching.submit(lambda: self._fetched(topics, sending, wait_ms, riding.set_result))
        if sending:
            self._riding = riding
            self._acknowledgements.ride(sending, riding)
        self._fetch.add_done_callback(lambda _: self._tell())
        return self._fetch

    def _fetched(self, topics: tuple[str, ...], sending: Sending, wait_ms: int, answered: Answered) -> Fetched:
        fetched = self._fetcher.fetch(topics, sending, wait_ms, answered)
        if fetched.lock_timeout_ms:
            self._held_until_s = max(self._held_until_s, fetched.until_s)
        return fetched

    def _wait(self, future: Future[Any], deadline_s: float | None) -> bool:
        """Whether the future is done by then.

        Raises:
            WakeupException: another thread called :meth:`wakeup`.
        """
        self._waits = True
        try:
            with self._news:
                left_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0)
                self._news.wait_for(lambda: self._woken or future.done(), left_s)
        finally:
            self._waits, self._polled_s = False, time.monotonic()
        self._check_wakeup()
        return future.done()

    def _check_wakeup(self) -> None:
        with self._news:
            if self._woken:
                self._woken = False
                raise WakeupException()

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()

    def _take(self, fetched: Fetched) -> None:
        """Take in the records of an answer. Those whose locks have ended meanwhile are left to the group."""
        with self._changing:
            is_late = time.monotonic() >= max(fetched.until_s, self._held_until_s)
            self._fetcher.held.partitions = ()
            self._held_until_s = 0.0
            if fetched.delivered and not is_late:
                self._in_flight.add(fetched.delivered)
                messages = [message for each in fetched.delivered for message in each.messages]
                self._raws = [Raw(message, message.key(), message.value()) for message in messages]
                self._unreturned = messages
            self._fetch = None  # last: an answer that was interrupted is taken in again
        if fetched.error is not None:
            self._settle()
            raise kafka_exception(fetched.error) if isinstance(fetched.error, ShareGroupError) else fetched.error
        if fetched.lock_timeout_ms:
            self._lock_timeout_ms = fetched.lock_timeout_ms

    # --- outcomes

    def acknowledge(self, message: Message, ack_type: int = AcknowledgeType.ACCEPT) -> None:
        """Note the outcome of a record, in explicit mode; the next poll or commit sends it. The newest outcome counts.
        RENEW: the record stays with this consumer, for another lock's time, and has to be acknowledged again.

        Raises:
            TypeError, ValueError: the arguments are none.
            IllegalStateException: the mode is implicit, or the record is not in flight.
        """
        with self._inside.enter():
            check_type(1, message, Message, "confluent_kafka.cimpl.Message")
            self._decide("message", message.topic(), message.partition(), message.offset(), ack_type)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, ack_type: int = AcknowledgeType.ACCEPT
    ) -> None:
        """As :meth:`acknowledge`, for the record at this offset."""
        with self._inside.enter():
            check_type(1, topic, str, "str")
            self._decide("offset", topic, operator.index(partition), operator.index(offset), ack_type)

    def _decide(self, what: str, topic: str | None, partition: int | None, offset: int | None, ack_type: int) -> None:
        number = operator.index(ack_type)
        is_record = topic is not None and partition is not None and offset is not None and min(partition, offset) >= 0
        if not is_record or not AcknowledgeType.ACCEPT <= number <= AcknowledgeType.RENEW:
            raise ValueError(f"Failed to acknowledge {what}: {INVALID}")
        assert topic is not None and partition is not None and offset is not None
        with self._changing:
            key = (topic, partition)
            if not self._options.explicit or not self._in_flight.decide(key, offset, AcknowledgeType(number)):
                raise IllegalStateException(f"Failed to acknowledge {what}: {ERRONEOUS}")

    def mark_in_progress(self, message: Message, hint: str | None = None) -> None:
        """Say that the work on a record goes on, in explicit mode (KAFKA-20458): its lock lasts for the group's
        group.share.in.progress.staleness.threshold.ms from then on, and a poll needs no outcome of it. The next poll or
        commit sends the signal, or this method when max.in-flight.progress.batches are pending. ``hint``: for people,
        of at most 256 bytes in UTF-8; without one the hint before stays.

        Raises:
            TypeError, ValueError: the arguments are none.
            SignalInImplicitMode, RecordNotInFlight, RecordHasOutcome: IllegalStateExceptions.
            KafkaException: the coordinator has refused an earlier signal.
        """
        with self._inside.enter():
            check_type(1, message, Message, "confluent_kafka.cimpl.Message")
            check_hint(hint)
            self._check_signals()
            if not self._options.explicit:
                raise SignalInImplicitMode()
            with self._changing:
                self._in_flight.mark_in_progress(message, hint)
                is_full = self._in_flight.pending_signals >= self._options.max_progress_batches
            if is_full:
                self._send_signals()

    def _send_signals(self) -> None:
        with self._changing:
            signals = self._in_flight.take_signals()
        if signals:
            self._acknowledgements.signal(signals)

    def _check_signals(self) -> None:
        """Raise why the coordinator refused a signal, if its record is still in flight."""
        refused = self._acknowledgements.refused_signals()
        with self._changing:
            told = [why for signals, why in refused if self._in_flight.holds(signals)]
        if told:
            raise told[0]

    def commit_sync(self, timeout: float = 60) -> Committed:
        """Send the outcomes, and wait for the answer. By partition None, or the exception why they are refused; empty
        if there were none. In implicit mode the records of the last poll are accepted."""
        with self._inside.enter():
            seconds = timeout_seconds(timeout)
            self._send_signals()
            sending = self._outcomes()
            result: Committed = {}
            if sending:
                future = self._acknowledgements.send(sending)
                try:
                    result = committed(sending, future.result(None if seconds < 0 else seconds))
                except FutureTimeoutError:
                    result = committed(sending, dict.fromkeys(sending.offsets, "_TIMED_OUT"))
            self._settle()
            return result

    def commit_async(self) -> None:
        """Send the outcomes; a later method calls the callback with the answer."""
        with self._inside.enter():
            self._send_signals()
            if sending := self._outcomes():
                self._acknowledgements.send(sending)
            self._settle()

    def _outcomes(self) -> Sending:
        with self._changing:
            if not self._options.explicit:
                self._in_flight.accept_all()
            return self._in_flight.take()

    def _renewed_came(self, deadline_s: float | None) -> bool:
        """Whether this poll is for the records whose renewal the program asked for: new records come when these are
        done."""
        with self._changing:
            sending = self._in_flight.take() if self._in_flight.has_renewed else Sending()
        if sending:
            self._renewing = self._acknowledgements.send(sending)
            self._renewing.add_done_callback(lambda _: self._tell())
        if self._renewing is not None:
            if not self._wait(self._renewing, deadline_s):
                return True
            self._renewing = None
            self._settle()
        with self._changing:
            self._unreturned = self._in_flight.take_renewed()
        return bool(self._unreturned)

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Have ``callback(offsets, exception)`` called, in this thread, with the answer to each partition's outcomes;
        None: no more.

        Raises:
            TypeError: it can't be called.
        """
        with self._inside.enter():
            if callback is not None and not callable(callback):
                raise TypeError("callback must be callable or None")
            self._acknowledgements.callback = callback

    def _settle(self) -> None:
        settled = self._acknowledgements.settled()
        with self._changing:
            for sending, errors in settled:
                self._in_flight.renew(sending, errors)
        self._acknowledgements.call_back(settled)

    # --- locks

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long the locks of the last poll's records lasted when they were acquired, in milliseconds; None: no
        record was acquired yet."""
        with self._inside.enter():
            return self._lock_timeout_ms

    def _held(self) -> tuple[PartitionAcks, ...]:
        """The renewals that are due, in the renewer's thread."""
        with self._changing:
            delivered = self._in_flight.renewals() if self._options.renews_in_background else ()
            waits_s = time.monotonic() - self._polled_s
            is_due = self._waits or waits_s < self._options.max_poll_interval_ms / 1000
            waiting = self._fetcher.held.partitions if is_due else ()
        return (*delivered, *acks_of(waiting, AcknowledgeType.RENEW))

    def _renewed(self, until_s: float, lost: list[PartitionAcks]) -> None:
        """Note the answer to renewals, in the renewer's thread."""
        names = {(acks.topic_id, acks.partition, batch.first) for acks in lost for batch in acks.batches}
        with self._changing:
            for acks in lost:
                self._in_flight.forget_lock(acks)
            held = {(p.topic_id, p.partition, first) for p in self._fetcher.held.partitions for first, *_ in p.ranges}
            if held and not held & names:
                self._held_until_s = until_s

    # --- the rest

    def hold_back(self, messages: Messages) -> None:
        """Accept none of these records, until each is handed out: the program was not given them yet."""
        with self._changing:
            self._in_flight.hold_back(messages)

    def hand_out(self, message: Message) -> None:
        """The program has this record now."""
        with self._changing:
            self._in_flight.hand_out(message)

    def forget_wakeup(self) -> None:
        """Take back a wakeup that no poll has noticed."""
        with self._news:
            self._woken = False

    def wakeup(self) -> None:
        """Have the poll that runs now, or else the next one, raise WakeupException. Any thread may call it."""
        self._inside.check_process()
        with self._news:
            self._woken = True
            self._news.notify_all()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials (SASL PLAIN and SCRAM) for connections that are made from now on."""
        self._inside.check_process()
        if self._inside.closed:
            raise IllegalStateException("Share consumer closed")
        check_type(1, username, str, "str")
        check_type(2, password, str, "str")
        self._options.kafka_config.update({"sasl.username": username, "sasl.password": password})

    def close(self) -> None:
        """Send the outcomes, leave the group and release the other records. It waits for the answer, for
        socket.timeout.ms at most."""
        self._inside.check_process()
        if self._inside.closed:
            return
        with self._inside.enter():
            with self._changing:
                sending = self._in_flight.take()
                self._in_flight.clear()
            if sending and self._membership.joined is not None:
                self._acknowledgements.send(sending)
            self._renewer.close()
            self._fetcher.close()
            self._fetching.close()
            self._dropped.detach()
            deadline_s = time.monotonic() + self._options.socket_timeout_ms / 1000
            with suppress(FutureTimeoutError):  # the session ends by itself
                if self._riding is not None:  # outcomes that the leaving must not overtake
                    self._riding.result(max(deadline_s - time.monotonic(), 0))
            with suppress(FutureTimeoutError):
                self._leaving = self._leaving or self._acknowledgements.close(self._leave)
                self._leaving.result(max(deadline_s - time.monotonic(), 0))
            self._inside.closed = True
            try:
                self._acknowledgements.call_back(self._acknowledgements.settled())
            except Exception:  # as confluent's: a callback does not fail close()
                logger.exception("the acknowledgement commit callback failed at close()")

    def _leave(self) -> None:
        """Give back what no poll has returned, at no try, and leave the group."""
        self._fetcher.give_back()
        self._membership.close()


def _dropped(
    pid: int,
    renewer: Renewer,
    fetcher: Fetcher,
    fetching: Worker,
    acknowledgements: Acknowledgements,
    membership: Membership,
) -> None:
    """End the threads and the membership of a consumer that the program dropped without close(); its records are
    released. A fork has none of them."""
    if os.getpid() != pid:
        return
    renewer.close()
    fetcher.close()
    fetching.close()
    acknowledgements.close(membership.close)
