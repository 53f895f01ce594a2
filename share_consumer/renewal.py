"""Renews the locks of a ShareConsumer in the background (KIP-1222): always those of acquired records that no poll has
returned yet, and with share.background.renew.enable also those of the records that the program holds.

Rule: a lock is renewed RENEWALS_PER_LOCK times before it would end, within the group's share.max.lock.extension.ms; the
coordinator names locks that this limit cuts. The coordinator refuses all renewals of a partition together, so each
range of a refused partition is renewed again, alone. A record whose renewal is refused is lost to the consumer."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import Acknowledge, AcknowledgeReply, PartitionAcks, PartitionPlan
from coordinator.protocol.values import CappedLock
from share_consumer.membership import Joins, Membership

logger = logging.getLogger(__name__)

RENEWALS_PER_LOCK = 3
SHORTEST_PAUSE_S = 0.2
"""Two renewals are at least this many seconds apart."""

Held = Callable[[], tuple[PartitionAcks, ...]]


class Renewal(NamedTuple):
    """When a renewal began, until when its locks last, both in monotonic seconds, and in which session it began.
    ``capped``: the locks that end sooner."""

    began_s: float
    until_s: float
    joins: Joins
    capped: tuple[CappedLock, ...] = ()

    def lasts_until_s(self, plans: Iterable[PartitionPlan]) -> float:
        """Returns when the first of the locks of an acquisition ends, in monotonic seconds."""
        if not self.capped:
            return self.until_s  # nearly always
        held = [(plan.topic_id, plan.partition, of) for plan in plans for of in plan.ranges]
        ends = [
            self.began_s + lock.left_ms / 1000
            for lock in self.capped
            for topic_id, partition, of in held
            if (topic_id, partition) == (lock.topic_id, lock.partition)
            and of.first <= lock.last
            and lock.first <= of.last
        ]
        return min(ends, default=self.until_s)


Renewed = Callable[[Renewal, list[PartitionAcks]], None]


class Renewer:
    """A daemon thread that renews the locks that ``held`` returns, from ``start`` to ``close``. After each renewal it
    calls ``renewed`` with the refused records, each range alone. Both must be methods: the thread does not keep their
    object alive."""

    def __init__(self, membership: Membership, held: Held, renewed: Renewed) -> None:
        self._membership = membership
        self._held, self._renewed = weakref.WeakMethod(held), weakref.WeakMethod(renewed)
        self._closed = False
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock_s = 0.0
        self._renewing = threading.Lock()

    def start(self, lock_timeout_ms: int) -> None:
        """Start the thread, or tell it the new length of the locks."""
        before_s, self._lock_s = self._lock_s, lock_timeout_ms / 1000
        if self._lock_s < before_s:
            self._changed.set()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="share-renewal", daemon=True)
            thread.start()
            self._thread = thread

    def close(self) -> None:
        """End the thread soon."""
        self._closed = True
        self._changed.set()

    def _run(self) -> None:
        while not self._closed:
            if self._changed.wait(max(self._lock_s / RENEWALS_PER_LOCK, SHORTEST_PAUSE_S)):
                self._changed.clear()
                continue
            self.try_to_renew()

    def try_to_renew(self) -> None:
        """Renew all locks once, now. A failure is logged."""
        try:
            self.renew()
        except ShareGroupError as error:
            logger.warning("could not renew locks: %s", error)
        except Exception:  # the thread must outlive any mistake: without it each long record would lose its lock
            logger.exception("could not renew locks")

    def renew(self) -> None:
        with self._renewing:
            began_s, joins = time.monotonic(), self._membership.joins
            if not (partitions := self._named()):
                return
            reply = self._ask(partitions)
            lost, capped = list(done(partitions, reply.done_below)), reply.capped
            if refused := reply.errors:
                held = (each for each in self._named() if f"{each.topic_id}:{each.partition}" in refused)
                for acks in (msgspec.structs.replace(each, batches=(of,)) for each in held for of in each.batches):
                    alone = self._ask((acks,))
                    lost += [acks] if alone.errors else done((acks,), alone.done_below)
                    capped += alone.capped
                logger.info("some locks were not renewed (%s): %d range(s) of records are lost", refused, len(lost))
            if (renewed := self._renewed()) is not None:
                renewed(Renewal(began_s, began_s + self._lock_s, joins, capped), lost)

    def _ask(self, partitions: tuple[PartitionAcks, ...]) -> AcknowledgeReply:
        reply: AcknowledgeReply = self._membership.call(lambda who: Acknowledge(**who, partitions=partitions))
        if reply.lock_timeout_ms:  # the group's may have been altered since the acquisition
            self.start(reply.lock_timeout_ms)
        return reply

    def _named(self) -> tuple[PartitionAcks, ...]:
        held = self._held()
        return held() if held is not None else ()


def done(renewed: Iterable[PartitionAcks], done_below: Mapping[str, int]) -> Iterator[PartitionAcks]:
    """Yields the parts of the ``renewed`` ranges that lie below the partitions' start offsets ``done_below``. Other
    members have finished these records. The coordinator does not refuse such renewals; it returns the start offset."""
    for acks in renewed:
        end = done_below.get(f"{acks.topic_id}:{acks.partition}", 0)
        below = [msgspec.structs.replace(of, last=min(of.last, end - 1)) for of in acks.batches if of.first < end]
        if below:
            yield PartitionAcks(topic_id=acks.topic_id, partition=acks.partition, batches=tuple(below))
