"""The supply of records for a ShareConsumer's polls: one request at a time, and its reply.

A request is one AcquireRecords (Kafka: ShareFetch); its reply has the acquired records, read from the brokers.

Rules: each request begins in a poll, either for that poll or ahead of the next ones (:mod:`share_consumer.pace`). So a
program that does not poll gets at most one reply. After a reply with a part of an acquisition, the next request reads
the rest. Nothing is acquired ahead while the program has records that were delivered before: if such a record crashes
the process, no other record must lose a delivery."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from math import inf

from coordinator.protocol.values import AcknowledgeType
from share_consumer.acknowledgements import Departure
from share_consumer.ahead import Ahead
from share_consumer.fetching import Answered, FetchAnswer, Fetcher, Wanted
from share_consumer.membership import Membership
from share_consumer.options import ConsumerOptions
from share_consumer.pace import Pace
from share_consumer.record_runs import RecordRun, Unread
from share_consumer.sending import Sending
from share_consumer.worker import Worker

logger = logging.getLogger(__name__)

LONGEST_WAIT_S = 1.0
"""One request waits up to this many seconds for records. A poll that timed out delays the next poll by no more than
that."""


class _Asked:
    """A request that was sent, or is delayed; ``now`` ends the delay."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.now = threading.Event()
        self.is_cancelled = False
        self.answer: Future[FetchAnswer] = Future()


class Supply:
    """The records of one consumer on their way to its polls. ``tell`` is called when a reply has come."""

    def __init__(
        self,
        options: ConsumerOptions,
        membership: Membership,
        acquired: Callable[[int], None],
        tell: Callable[[], None],
        departure: Departure,
    ) -> None:
        self.ahead, self._departure = Ahead(), departure
        self._membership, self._tell = membership, tell
        self._max_poll_records = options.max_poll_records
        self._fetcher = Fetcher(options, membership, self.ahead, acquired)
        self._worker = Worker("share-fetching")
        self._pace = Pace(options.max_poll_records)
        self._asked: _Asked | None = None
        self._again = False

    @property
    def threads(self) -> tuple[Fetcher, Worker]:
        """The parts with a thread, which must end when the consumer is dropped."""
        return self._fetcher, self._worker

    # --- what has come

    def polled(self) -> None:
        self._pace.polled(time.monotonic())

    def look(self) -> list[RecordRun]:
        """Returns the next records of a poll; call :meth:`returned` to remove them."""
        return self.ahead.look(self._max_poll_records, time.monotonic(), self._membership.joins)

    def returned(self, parts: list[RecordRun]) -> None:
        """Remove records that a poll returns. A second call changes nothing."""
        self.ahead.remove(parts)
        self._again = any(part.delivery_count > 1 for part in parts)
        self._pace.returned(sum(map(len, parts)), time.monotonic())

    @property
    def needs_renewal(self) -> bool:
        return self.ahead.needs_renewal(time.monotonic(), self._membership.joins, self._membership.lives_until_s)

    @property
    def has_come(self) -> bool:
        return self._asked is not None and self._asked.answer.done() and self._asked.answer.result().error is None

    def take_in(self) -> tuple[FetchAnswer, list[Unread]]:
        """Returns the reply and its gaps. Offsets that were not read are released, and in an ordered group also the
        later ones of their partition; their delivery does not count as a try. Can be called again until
        :meth:`taken_in`."""
        assert self._asked is not None
        fetched = self._asked.answer.result()
        if fetched.acquired is None:
            return fetched, []
        unread = self.ahead.take_in(fetched.acquired, time.monotonic())
        ends = fetched.acquired.ends_in_order(unread) if fetched.ordered else {}
        cut, lost = self.ahead.cut(fetched.acquired, ends), Sending()
        unread = [of for of in unread if of.range.first < ends.get(of.key, inf)]
        lost.add_unread(of for of in unread if of.kind == AcknowledgeType.RELEASE)
        if released := (*cut, *lost.partitions):
            self._worker.submit(lambda: self._fetcher.release(released))
        return fetched, [of for of in unread if of.kind != AcknowledgeType.RELEASE]

    def taken_in(self, fetched: FetchAnswer) -> None:
        """Drop the reply, which was applied."""
        asked, self._asked = self._asked, None
        if asked is not None:
            lock_s = fetched.lock_timeout_ms / 1000
            wanted = fetched.records if fetched.is_part else asked.wanted.records  # a part is all there was
            bytes_each = fetched.nbytes / max(fetched.records, 1)
            self._pace.answered(wanted, fetched.records, bytes_each, lock_s, fetched.took_s, fetched.read_s)

    # --- requests

    @property
    def asks_ahead(self) -> bool:
        """Whether the next request is sent before a poll waits for its records."""
        if self._asked is not None and not self._asked.wanted.ahead:
            return False
        return self.ahead.has_rest or (self._pace.is_ahead and not self._again)

    def on_its_way(self) -> Future[FetchAnswer] | None:
        """Returns the reply to the request under way, if there is one, and ends the request's delay."""
        if self._asked is None:
            return None
        self._asked.now.set()
        return self._asked.answer

    def ask(self, topics: tuple[str, ...], wait_ms: int, sending: Sending, answered: Answered) -> Future[FetchAnswer]:
        """Request records for a waiting poll. The request carries the acknowledgements."""
        return self._ask(Wanted(topics, self._max_poll_records, wait_ms), sending, answered, 0.0)

    def ask_ahead(self, topics: tuple[str, ...], take: Callable[[], Sending], answered: Answered) -> Sending | None:
        """Request records ahead of the next polls, if that is due. Returns the acknowledgements that the request
        carries; None if no request was sent at once."""
        if self._asked is not None:
            return None
        if self.ahead.has_rest:  # acquired already: it is only to be read
            sending = take()
            self._ask(Wanted(topics, self._max_poll_records, ahead=True), sending, answered, 0.0)
            return sending
        if self._again:
            return None
        now_s = time.monotonic()
        if (question := self._pace.next_question(self.ahead.records, now_s)) is None:
            return None
        is_due = question.at_s <= now_s
        sending = take() if is_due else Sending()
        self._ask(Wanted(topics, question.records, ahead=True), sending, answered, question.at_s - now_s)
        return sending if is_due else None

    def _ask(self, wanted: Wanted, sending: Sending, answered: Answered, in_s: float) -> Future[FetchAnswer]:
        asked, fetcher = _Asked(wanted), self._fetcher

        def fetch() -> FetchAnswer:
            if in_s > 0:
                asked.now.wait(in_s)
            return FetchAnswer() if asked.is_cancelled and not sending else fetcher.fetch(wanted, sending, answered)

        asked.answer.add_done_callback(lambda _: self._tell())
        try:
            self._asked = asked
            return self._worker.submit(fetch, asked.answer)
        except BaseException:  # Ctrl+C: the request may not be queued, and then its answer would never come
            if asked.answer.cancel():
                self._asked = None
            raise

    # --- the end

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Release the records that no poll has returned, after the request under way. Then join again with these
        topics, if the consumer had joined; without topics, leave as in :meth:`outcomes_left`."""
        if self._asked is not None:
            self._asked.is_cancelled = True
            self._asked.now.set()
            self._asked = None
        self._pace = Pace(self._max_poll_records)
        waiting = self.ahead.clear_waiting()  # now: a poll that follows must not return what is released
        self._worker.submit(lambda: self._fetcher.give_back(waiting))
        if topics:
            self._worker.submit(lambda: self._join_for(topics))
        else:
            self._leave_unless_held()

    def outcomes_left(self, topics: tuple[str, ...]) -> None:
        """Outcomes were sent. A consumer without topics leaves the group if these were the last ones."""
        if not topics and self._membership.joined is not None:
            self._leave_unless_held()

    def _leave_unless_held(self) -> None:
        """Leave the group after the request under way, unless the program holds records, which leaving would release.
        Then the member gives up its partitions, and leaves when the locks have ended at the latest."""
        holds = self._departure.holds_records()  # now: what the program sends later is none of this
        self._worker.submit(lambda: self._join_for(()) if holds else self._departure.leave())

    def _join_for(self, topics: tuple[str, ...]) -> None:
        """Join again with these topics, so that the coordinator makes a new assignment."""
        if self._membership.joined is None:
            return
        try:
            self._membership.session(topics)
        except Exception as error:  # noqa: BLE001 - the next poll reports it; without one the session ends in time
            logger.warning("could not change the subscription yet: %s", error)

    def leave(self) -> None:
        self._fetcher.leave()

    def close(self) -> None:
        """Cancel the request under way, and send no more."""
        if self._asked is not None:
            self._asked.is_cancelled = True
            self._asked.now.set()
        self._fetcher.close()
        self._worker.close()
