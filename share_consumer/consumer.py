"""The ShareConsumer, with the methods, the exceptions and the messages of confluent_kafka.ShareConsumer.

Rule: delivery is at least once. In implicit mode the next poll or commit accepts the records of the last poll. close()
releases records without an outcome."""

from __future__ import annotations

import logging
import os
import time
import weakref
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from threading import Lock
from typing import Any

import confluent_kafka
from confluent_kafka import IllegalStateException, Messages

from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.log_lines import log_as_chosen
from coordinator.protocol.messages import PartitionAcks
from coordinator.protocol.values import AcknowledgeType
from share_consumer.acknowledgements import AcknowledgementCallback, Acknowledgements, Committed, Departure, committed
from share_consumer.arguments import (
    ERRONEOUS,
    INVALID,
    c_int,
    check_hint,
    check_note,
    check_type,
    refused_type,
    timeout_seconds,
    type_number,
    wrong_topics,
)
from share_consumer.callbacks import Callbacks
from share_consumer.errors import NoteInImplicitMode, SignalInImplicitMode, kafka_exception, one_of
from share_consumer.fetching import FetchAnswer, Fetcher
from share_consumer.hand_over import HandOver
from share_consumer.implicit import ImplicitInFlight
from share_consumer.in_flight import InFlight
from share_consumer.membership import Membership
from share_consumer.message import AnyMessage
from share_consumer.options import ConsumerOptions
from share_consumer.record_runs import RecordRun
from share_consumer.renewal import Renewal, Renewer
from share_consumer.sending import Sending
from share_consumer.single_thread import SingleThread
from share_consumer.supply import LONGEST_WAIT_S, Supply
from share_consumer.waiting import Waiting
from share_consumer.worker import Worker
from share_source.executor.range_cursor import Key

LOGGERS = ("coordinator", "share_consumer", "share_source")
OUTAGE_PATIENCE_S = 5.0
"""close() retries no request after this many seconds. Records without a reply by then may come again."""

logger = logging.getLogger(__name__)


def _serve(callbacks: Callbacks, options: ConsumerOptions) -> None:
    """Call the program's error_cb, stats_cb, throttle_cb and logger. This function holds no reference to the consumer,
    so that Python collects a dropped consumer at once."""
    if callbacks:
        callbacks.serve(options.client_config)


def _end(
    pid: int, renewer: Renewer, fetcher: Fetcher, worker: Worker, acknowledgements: Acknowledgements, member: Membership
) -> None:
    """End the threads and the membership of a consumer that the program dropped without close(). Its records are
    released; for those that no poll has returned, the delivery does not count as a try. In a fork, which has no such
    threads, nothing happens."""
    if os.getpid() != pid:
        return
    for thread in (renewer, fetcher, worker):
        thread.close()

    def leave() -> None:
        fetcher.leave()
        member.close()

    acknowledgements.close(leave)


class ShareConsumer:
    """A member of a share group. It gets single records, each under a lock for a limited time, and acknowledges each of
    them.

    The constructor takes a configuration dict, or keywords, as confluent_kafka.ShareConsumer does. Like that class, a
    ShareConsumer is for one thread at a time; only :meth:`wakeup` may be called by another thread."""

    def __init__(self, config: dict[str, Any] | None = None, /, **more: Any) -> None:
        """Check the configuration; the first connection comes later.

        Raises:
            KafkaException, ValueError, TypeError: the configuration is wrong (the errors of ConsumerOptions.parse).
            RuntimeError: the constructor was called before."""
        if hasattr(self, "_inside"):
            raise RuntimeError("ShareConsumer already initialized")
        if (config is None and not more) or not isinstance(config, dict | None):
            raise TypeError("expected configuration dict")
        options = ConsumerOptions.parse({**(config or {}), **more})
        log_as_chosen(LOGGERS)
        self._callbacks = Callbacks(options.callbacks)
        self._options = options = replace(options, callbacks=self._callbacks.recorders)
        self._inside = SingleThread()
        self._topics: tuple[str, ...] = ()
        self._changing = Lock()
        self._explicit = InFlight() if options.explicit else None
        self._implicit = None if options.explicit else ImplicitInFlight()
        self._in_flight: InFlight | ImplicitInFlight = self._explicit or self._implicit or ImplicitInFlight()
        self._membership = Membership(options)
        self._metrics = self._membership.metrics
        self._serve = partial(_serve, self._callbacks, options)
        self._waiting = Waiting(self._serve if self._callbacks else None)
        self._acknowledgements = Acknowledgements(self._membership)
        self._renewing: Future[dict[Key, str]] | None = None
        self._riding: Future[dict[Key, str]] | None = None
        self._leaving: Future[None] | None = None
        self._taking: list[RecordRun] = []
        self._hand_over = HandOver(options.key_deserializer, options.value_deserializer)
        self._renewer = Renewer(self._membership, self._held, self._renewed)
        departure = Departure(self._membership, self._acknowledgements, self._in_flight, self._changing)
        self._supply = Supply(options, self._membership, self._renewer.start, self._waiting.tell, departure)
        self._lock_timeout_ms: int | None = None
        ends = (self._renewer, *self._supply.threads, self._acknowledgements, self._membership)
        self._dropped = weakref.finalize(self, _end, os.getpid(), *ends)
        self._dropped.atexit = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._options.group_id} {self._in_flight!r}>"

    def __enter__(self) -> ShareConsumer:
        with self._inside.enter():
            return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the subscription

    def subscribe(self, topics: list[str]) -> None:
        """Subscribe to these topics instead of those before. A single name that begins with ^ is a regular expression
        (RE2) for whole names.

        Raises:
            TypeError: ``topics`` is no list, or one of them is no text.
            ValueError: a name is there twice, or no topic can have it."""
        with self._inside.enter():
            if not isinstance(topics, list):
                raise TypeError("expected list of topic unicode strings")
            given: list[object] = [*topics]
            for each in given:
                if not isinstance(each, str):
                    kind = type(each).__name__
                    raise TypeError(f"expected list of topic unicode strings, and {each!r} is of type {kind}")
            names = tuple(sorted(topics))
            if wrong := wrong_topics(names):
                raise ValueError(f"Failed to subscribe: {INVALID}: {wrong}")
            self._change_subscription(names)

    def unsubscribe(self) -> None:
        """Subscribe to nothing, and leave the group. The consumer stays a member, without partitions, until the records
        in flight are acknowledged. Records that no poll has returned are released."""
        with self._inside.enter():
            self._change_subscription(())

    def _change_subscription(self, topics: tuple[str, ...]) -> None:
        if self._taking:  # a poll was interrupted while it took them: they are the next poll's, and not given back
            self._take()
        if topics:
            with suppress(Exception):  # the next poll or commit says it
                self._callbacks.start(self._options.client_config)
        before, self._topics = self._topics, topics
        if before != topics and (before or self._membership.joined is not None):
            self._supply.subscribe(topics)

    def subscription(self) -> list[str]:
        with self._inside.enter():
            return list(self._topics)

    # --- records

    def poll(self, timeout: float = -1) -> Messages:
        """Returns the next records; empty if none come within ``timeout`` seconds (-1: no limit). In implicit mode the
        records of the poll before are accepted.

        Raises:
            IllegalStateException: there is no subscription or, in explicit mode, records of the poll before have no
                outcome and are not in progress.
            KafkaException: the coordinator or the brokers refuse; or the coordinator has refused signals, which one
                exception names, once.
            WakeupException: another thread called :meth:`wakeup`."""
        before = None
        try:
            with self._inside.enter(), self._metrics.polling():
                before = self._hand_over.returned
                seconds = timeout_seconds(timeout)
                self._serve()
                self._supply.polled()
                self._send_signals()
                if self._taking:  # a poll was interrupted while it took them
                    self._take()
                if not self._hand_over.waits:
                    self._check_signals()
                    if self._explicit is not None and (count := self._explicit.undecided):
                        raise IllegalStateException(f"{count} records from previous poll have not been acknowledged")
                    if not self._topics:
                        raise IllegalStateException("Consumer is not subscribed to any topics")
                    deadline_s = None if seconds < 0 else time.monotonic() + seconds
                    self._accept_returned()
                    if not self._renewed_came(deadline_s):
                        self._poll(deadline_s)
                return self._hand_over.messages()
        except BaseException:
            if before is not None:  # else another thread may be inside, whose records these are
                self._hand_over.take_back(before)
            raise

    def _poll(self, deadline_s: float | None) -> None:
        """Wait for records until ``deadline_s``. Callbacks of answers come before records are taken: they may raise."""
        while not self._hand_over.waits:
            self._waiting.begin()  # before the outcomes leave: a close() that follows sends them
            if self._supply.has_come:
                self._take_in()
            if self._supply.needs_renewal and not self._waiting.wait(self._renewed_now(), deadline_s):
                break
            if taking := self._supply.look():
                self._settle()
                self._taking = taking
                self._take()
                self._go_on()
                return
            if not self._waiting.wait(self._ask(deadline_s), deadline_s):
                break
            self._take_in()
            if deadline_s is not None and time.monotonic() >= deadline_s and not self._supply.ahead.records:
                break
        self._settle()

    def _take(self) -> None:
        """Move the looked-up records from the supply to the hand-over. An interrupted call can be repeated."""
        self._supply.returned(self._taking)
        with self._changing:
            self._in_flight.add(self._taking)
        self._hand_over.add(list(chain.from_iterable(run.messages for run in self._taking)))
        self._metrics.consumed(sum(map(len, self._taking)))
        self._taking = []

    def _go_on(self) -> None:
        """A poll is about to return records: ask for the next ones if that is due, and send the outcomes."""
        riding: Future[dict[Key, str]] = Future()
        sending = self._supply.ask_ahead(self._topics, self._outgoing, riding.set_result)
        if sending is None:
            self._send_on()
        elif sending:
            self._ride(sending, riding)

    def _send_on(self) -> None:
        """Send outcomes that no request carries. They wait up to LINGER_S if the next request is expected at once."""
        with self._changing:
            has_outcomes = self._in_flight.has_outcomes
        if has_outcomes and self._supply.asks_ahead:
            self._acknowledgements.send_soon(self._outgoing)
        elif has_outcomes:
            self._acknowledgements.send(self._outgoing())

    def _outgoing(self) -> Sending:
        with self._changing:
            self._drop_given_back()
            return self._in_flight.take()

    def _drop_given_back(self) -> None:
        """Drop records that no poll has returned, and that a release in an ordered group gives back."""
        for given_back in self._in_flight.releases():
            self._supply.ahead.given_back(*given_back)

    def _ride(self, sending: Sending, riding: Future[dict[Key, str]]) -> None:
        self._riding = riding
        self._acknowledgements.ride(sending, riding)

    def _ask(self, deadline_s: float | None) -> Future[FetchAnswer]:
        """Returns the reply to the request under way, or sends a new request, which carries the outcomes."""
        if (answer := self._supply.on_its_way()) is not None:
            self._send_on()
            return answer
        sending = self._outgoing()
        left_s = LONGEST_WAIT_S if deadline_s is None else min(deadline_s - time.monotonic(), LONGEST_WAIT_S)
        riding: Future[dict[Key, str]] = Future()
        answer = self._supply.ask(self._topics, max(int(left_s * 1000), 0), sending, riding.set_result)
        if sending:
            self._ride(sending, riding)
        return answer

    def _take_in(self) -> None:
        """Apply a reply: from now on polls may return its records."""
        fetched, unread = self._supply.take_in()
        with self._changing:
            self._in_flight.add_unread(unread)
            if fetched.acquired is not None:
                self._in_flight.ordered = fetched.ordered
        self._supply.taken_in(fetched)  # last: an answer that was interrupted is taken in again
        if fetched.error is not None:
            self._settle()
            raise kafka_exception(fetched.error) if isinstance(fetched.error, ShareGroupError) else fetched.error
        if fetched.lock_timeout_ms:
            self._lock_timeout_ms = fetched.lock_timeout_ms

    # --- outcomes

    def acknowledge(
        self,
        message: AnyMessage,
        ack_type: int = AcknowledgeType.ACCEPT,
        *,
        reason: str | None = None,
        delay_ms: int | None = None,
        release_at: datetime | None = None,
    ) -> None:
        """Set the outcome of a record, in explicit mode; the next poll or commit sends it. The newest outcome counts.
        RENEW: the record stays with this consumer under a new lock, and must be acknowledged again. ``reason``, for
        REJECT: the dead letter has its first 500 characters. ``delay_ms`` or ``release_at``, a datetime with a time
        zone, for RELEASE: no member gets the record earlier; both None: the group's backoff applies.

        Raises:
            TypeError, ValueError, OverflowError: an argument has another type, or a value that is not allowed.
            NoteInImplicitMode, IllegalStateException: the mode is implicit, or the record is not in flight."""
        with self._inside.enter():
            check_type(1, message, confluent_kafka.Message, "confluent_kafka.cimpl.Message")
            at = message.topic(), message.partition(), message.offset()
            self._decide("message", *at, ack_type, reason, delay_ms, release_at)

    def acknowledge_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        ack_type: int = AcknowledgeType.ACCEPT,
        *,
        reason: str | None = None,
        delay_ms: int | None = None,
        release_at: datetime | None = None,
    ) -> None:
        """The same as :meth:`acknowledge`, for the record at this offset."""
        with self._inside.enter():
            check_type(1, topic, str, "str")
            self._decide("offset", topic, c_int(partition), c_int(offset, 64), ack_type, reason, delay_ms, release_at)

    def _decide(
        self,
        what: str,
        topic: str | None,
        partition: int | None,
        offset: int | None,
        ack_type: int,
        reason: str | None,
        delay_ms: int | None,
        release_at: datetime | None,
    ) -> None:
        number = type_number(ack_type)
        is_type = self._explicit is None or AcknowledgeType.ACCEPT <= number <= AcknowledgeType.RENEW
        if not is_type:
            raise ValueError(f"Failed to acknowledge {what}: {refused_type(number)}")
        if topic is None or partition is None or offset is None or min(partition, offset) < 0:
            raise ValueError(f"Failed to acknowledge {what}: {INVALID}: no record is at {topic}-{partition}@{offset}")
        note = check_note(what, number, reason, delay_ms, release_at)
        if self._explicit is None and note != ("", None):
            raise NoteInImplicitMode()
        if self._explicit is None:
            reason = "the next poll accepts the record, in implicit mode. Set share.acknowledgement.mode=explicit"
            raise IllegalStateException(f"Failed to acknowledge {what}: {ERRONEOUS}: {reason} to acknowledge it")
        with self._changing:
            key = (topic, partition)
            if not self._explicit.decide(key, offset, AcknowledgeType(number), *note):
                reason = self._explicit.why_not_decided(key, offset)
                raise IllegalStateException(f"Failed to acknowledge {what}: {ERRONEOUS}: {reason}")

    def mark_in_progress(self, message: AnyMessage, hint: str | None = None) -> None:
        """Signal that the work on a record goes on, in explicit mode (KAFKA-20458). From then on the record's lock
        lasts for the group's group.share.in.progress.staleness.threshold.ms, and a poll needs no outcome for it. The
        next poll or commit sends the signal, or this method once max.in-flight.progress.batches signals are pending.
        ``hint``: for people, up to 256 bytes in UTF-8; None keeps the last hint.

        Raises:
            TypeError, ValueError: ``message`` is no Message, or ``hint`` is no text or too long.
            SignalInImplicitMode, RecordNotInFlight, RecordHasOutcome: IllegalStateExceptions.
            KafkaException: the coordinator has refused earlier signals; one exception names all of them."""
        with self._inside.enter():
            check_type(1, message, confluent_kafka.Message, "confluent_kafka.cimpl.Message")
            check_hint(hint)
            self._check_signals()
            if self._explicit is None:
                raise SignalInImplicitMode()
            with self._changing:
                self._explicit.mark_in_progress(message, hint)
                is_full = self._explicit.pending_signals >= self._options.max_progress_batches
            if is_full:
                self._send_signals()

    def _send_signals(self) -> None:
        if self._explicit is None:
            return
        with self._changing:
            signals = self._explicit.take_signals()
        if signals:
            self._acknowledgements.signal(signals)

    def _check_signals(self) -> None:
        """Raise the coordinator's refusal of signals, for records that are still in flight."""
        if self._explicit is None:
            return
        refused = self._acknowledgements.refused_signals()
        with self._changing:
            told = [why for signals, why in refused if self._explicit.holds(signals)]
        if told:
            raise one_of(told)

    def commit_sync(self, timeout: float = 60) -> Committed:
        """Send the outcomes and wait. Returns for each partition None, or the exception that says why its outcomes were
        refused; empty if there were no outcomes. In implicit mode the records of the last poll are accepted."""
        with self._inside.enter():
            seconds = timeout_seconds(timeout)
            self._send_signals()
            sending = self._outcomes()
            result: Committed = {}
            if sending:
                future = self._acknowledgements.send(sending)
                future.add_done_callback(self._waiting.tell)
                self._waiting.until(future.done, None if seconds < 0 else time.monotonic() + seconds)
                errors = future.result() if future.done() else dict.fromkeys(sending.offsets, "_TIMED_OUT")
                result = committed(sending, errors)
            self._supply.outcomes_left(self._topics)
            self._settle()
            self._serve()
            return result

    def commit_async(self) -> None:
        """Send the outcomes. A later call of any method calls the callback with the reply."""
        with self._inside.enter():
            self._send_signals()
            if sending := self._outcomes():
                self._acknowledgements.send(sending)
            self._supply.outcomes_left(self._topics)
            self._settle()
            self._serve()

    def _accept_returned(self) -> None:
        """In implicit mode, accept the records that the program has. In explicit mode, give unreadable records their
        automatic outcome."""
        if self._explicit is not None:
            with self._changing:
                self._explicit.decide_unreadable()
        count = len(self._hand_over.returned)
        if self._implicit is not None:
            with self._changing:
                self._implicit.hand_out(count)
                self._hand_over.returned = []  # CPython handles no signal between these two: each is counted once
                self._implicit.accept_all()
        with self._changing:
            self._drop_given_back()

    def _outcomes(self) -> Sending:
        self._accept_returned()
        return self._outgoing()

    def _renewed_came(self, deadline_s: float | None) -> bool:
        """Returns whether this poll returns records that the program renewed: new records come only after those."""
        if self._explicit is None:
            return False
        with self._changing:
            sending = self._explicit.take() if self._explicit.has_renewed else Sending()
        if sending:
            self._renewing = self._acknowledgements.send(sending)
            self._renewing.add_done_callback(self._waiting.tell)
        if self._renewing is not None:
            if not self._waiting.wait(self._renewing, deadline_s):
                return True
            self._renewing = None
            self._settle()
        with self._changing:
            self._hand_over.add(self._explicit.take_renewed(), are_deserialized=True)
        return self._hand_over.waits

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Have ``callback(offsets, exception)`` called, in this thread, with the reply to each partition's outcomes.
        None removes the callback. Raises TypeError if the callback can't be called."""
        with self._inside.enter():
            if callback is not None and not callable(callback):
                raise TypeError("callback must be callable or None")
            self._acknowledgements.callback = callback

    def _settle(self) -> None:
        settled = self._acknowledgements.settled()
        if self._explicit is not None:
            with self._changing:
                for sending, errors in settled:
                    self._explicit.renew(sending, errors)
        self._acknowledgements.call_back(settled)

    # --- locks

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Returns how long the last poll's records were locked at first, in ms; None before the first record."""
        with self._inside.enter():
            return self._lock_timeout_ms

    def _held(self) -> tuple[PartitionAcks, ...]:
        """Returns the renewals that are due. Called in the renewer's thread."""
        with self._changing:
            delivered = self._in_flight.renewals() if self._options.renews_in_background else ()
        is_due = self._waiting.polls_within(self._options.max_poll_interval_ms / 1000)
        return (*delivered, *(self._supply.ahead.renewals() if is_due else ()))

    def _renewed(self, renewal: Renewal, lost: list[PartitionAcks]) -> None:
        """Apply the reply to renewals. Called in the renewer's thread."""
        with self._changing:
            for acks in lost:
                self._in_flight.forget_lock(acks)
        self._supply.ahead.renewed(renewal, lost)

    def _renewed_now(self) -> Future[object]:
        renewed = self._acknowledgements.call(self._renewer.try_to_renew)
        renewed.add_done_callback(self._waiting.tell)
        return renewed

    # --- the rest

    def metrics(self) -> dict[str, float]:
        """Returns the consumer's metrics by the names of Kafka's Java client (docs/do/share-consumer.md). Any thread
        may call this, also after close()."""
        self.check_process()
        return self._metrics.values()

    def check_process(self) -> None:
        """Raises UsedAfterFork in a fork of the process that made the consumer."""
        self._inside.check_process()

    def hold_back(self) -> None:
        """Accept none of the last poll's records until :meth:`hand_out` counts them: the program lacks them yet."""
        self._hand_over.returned = []

    def hand_out(self, count: int = 1) -> None:
        """Count the next ``count`` records, in the order of the polls, as handed to the program."""
        if self._implicit is not None:
            with self._changing:
                self._implicit.hand_out(count)

    def forget_wakeup(self) -> None:
        self._waiting.forget_wakeup()

    def wakeup(self) -> None:
        """Make the current poll, or else the next one, raise WakeupException. Any thread may call this."""
        self.check_process()
        self._waiting.wakeup()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials (SASL PLAIN and SCRAM) for new connections. Raises TypeError if one is no text."""
        self.check_process()
        if self._inside.closed:
            raise IllegalStateException("Share consumer closed")
        check_type(1, username, str, "str")
        check_type(2, password, str, "str")
        self._options.kafka_config.update({"sasl.username": username, "sasl.password": password})
        self._callbacks.set_sasl_credentials(username, password)

    def close(self) -> None:
        """Send the outcomes, leave the group and release the other records. Waits for the reply up to
        socket.timeout.ms, or for OUTAGE_PATIENCE_S if the coordinator or the brokers are known to be unreachable."""
        self.check_process()
        if self._inside.closed:
            return
        with self._inside.enter():
            with self._changing:
                sending = self._in_flight.take()
                self._in_flight.clear()
            if sending and self._membership.joined is not None:
                self._acknowledgements.send(sending)
            self._renewer.close()
            self._supply.close()
            self._dropped.detach()
            most_s = self._options.socket_timeout_ms / 1000
            self._membership.end_retries(OUTAGE_PATIENCE_S)
            has_joined = self._membership.joined is not None
            deadline_s = time.monotonic() + (most_s if has_joined else min(most_s, OUTAGE_PATIENCE_S))
            raised: list[Exception] = []
            if self._riding is not None:  # outcomes that the leaving must not overtake
                self._wait_to_close(self._riding, deadline_s, raised)
            self._leaving = self._leaving or self._acknowledgements.close(self._leave)
            self._wait_to_close(self._leaving, deadline_s, raised)  # if it is late, the session ends by itself
            self._inside.closed = True
            try:
                self._acknowledgements.call_back(self._acknowledgements.settled())
            except Exception:  # as confluent's: a callback does not fail close()
                logger.exception("the acknowledgement commit callback failed at close()")
            self._callbacks.close()
            if raised:
                raise raised[0]

    def _wait_to_close(self, future: Future[Any], deadline_s: float, raised: list[Exception]) -> None:
        """Wait for the future, and call callbacks meanwhile: what they raise comes out when all is closed."""
        waiting = Waiting(self._callbacks.report if self._callbacks else None)
        future.add_done_callback(waiting.tell)
        is_over = False
        while not is_over:
            is_over = future.done() or time.monotonic() >= deadline_s
            try:
                waiting.until(future.done, deadline_s)
            except Exception as error:  # noqa: BLE001 - the program's: close() raises it
                raised.append(error)
            else:
                is_over = True
        if future.done():
            future.result()

    def _leave(self) -> None:
        self._supply.leave()
        self._membership.close()


class DeserializingShareConsumer(ShareConsumer):
    """A ShareConsumer under the name, and with the constructor, of confluent_kafka.DeserializingShareConsumer. Every
    ShareConsumer takes key.deserializer and value.deserializer."""

    def __init__(self, conf: dict[str, Any]) -> None:
        super().__init__(conf.copy())
