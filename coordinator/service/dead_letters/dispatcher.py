"""The dead letter dispatcher: writes the letters that nobody else wrote (delivery limit, expiry, a sink's failed ones).

It is told which groups changed, and has a worker for each that has records waiting for their letters; a few threads
work at the workers. Rules: no request waits for it; a group whose dead letter topic is away is tried again after 1 s,
and at last every 30 s, and holds up no other group; what waits survives the coordinator, since it is the groups' state.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterable, Mapping

from coordinator.service.brokers.cluster import Cluster
from coordinator.service.dead_letters.group_worker import GroupWorker, Left
from coordinator.service.process.rate_limited_log import RateLimitedLog
from coordinator.service.runtime.event_loop import RuntimeApi

FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 30.0
JITTER = 0.2
AT_ONCE = 4
"""So many groups' letters are written at a time."""
CLOSE_S = 3.0

_log = logging.getLogger(__name__)


class _Slot:
    """A worker in the dispatcher: when it is worked at next, and what is known of it. Changed under the dispatcher's
    lock."""

    def __init__(self, worker: GroupWorker) -> None:
        self.worker = worker
        self.due_s = 0.0
        self.is_worked_at = False
        self.is_told = False
        self.is_blocked = False


class DeadLetterDispatcher:
    """Thread-safe. It has no thread and no connection until a group has letters."""

    def __init__(self, cluster: Cluster, kafka_config: Mapping[str, str]) -> None:
        """Told from now on, and at work from :meth:`open` on: an event_loop may load groups before others know it."""
        self._cluster, self._kafka_config = cluster, kafka_config
        self._event_loop: RuntimeApi | None = None
        self._early: set[str] = set()
        self._changed = threading.Condition()
        self._slots: dict[str, _Slot] = {}
        self._threads: list[threading.Thread] = []
        self._said = RateLimitedLog(_log)
        self._closed = False

    def __repr__(self) -> str:
        return f"<DeadLetterDispatcher groups={len(self._slots)}>"

    def open(self, event_loop: RuntimeApi) -> None:
        """Go to work."""
        with self._changed:
            self._event_loop = event_loop
        self.tell(self._early)

    def tell(self, groups: Iterable[str]) -> None:
        """These groups changed, or were loaded. Called by the event_loop's thread: it does not wait."""
        with self._changed:
            if self._event_loop is None:
                self._early.update(groups)
                return
            having = [group_id for group_id in groups if self._event_loop.has_letters(group_id)]
            for group_id in having:
                self._seat(group_id, self._event_loop)
            if having:
                self._changed.notify_all()

    def may_rest(self) -> bool:
        """No letter waits that can still be written: those of a group that is blocked need a person."""
        with self._changed:
            return all(place.is_blocked for place in self._slots.values())

    def close(self) -> None:
        """End the threads; a letter that is just being written may be written again by the next coordinator."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + CLOSE_S
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        for place in list(self._slots.values()):
            if not place.is_worked_at:
                place.worker.close()

    # --- workers

    def _seat(self, group_id: str, event_loop: RuntimeApi) -> None:
        place = self._slots.get(group_id)
        if place is None:
            worker = GroupWorker(
                group_id, event_loop, self._cluster, self._kafka_config, self._said, is_stopped=lambda: self._closed
            )
            self._slots[group_id] = _Slot(worker)
            if len(self._threads) < min(AT_ONCE, len(self._slots)) and not self._closed:
                self._threads.append(threading.Thread(target=self._run, name="share-letters", daemon=True))
                self._threads[-1].start()
        else:
            place.is_told = True

    def _run(self) -> None:
        while (place := self._next()) is not None:
            try:
                left = place.worker.work()
            except Exception:  # noqa: BLE001 - our mistake with one group's letters must not end the others'
                _log.exception("dead letters failed: group=%s", place.worker.group_id)
                place.worker.attempts += 1
                left = Left.WAITING
            self._leave(place, left)

    def _next(self) -> _Slot | None:
        """The worker that is due, when one is; None at the end."""
        with self._changed:
            while not self._closed:
                free = [place for place in self._slots.values() if not place.is_worked_at]
                place = min(free, key=lambda each: each.due_s, default=None)
                if place is not None and place.due_s <= time.monotonic():
                    place.is_worked_at, place.is_told = True, False
                    return place
                self._changed.wait(None if place is None else max(place.due_s - time.monotonic(), 0.0))
        return None

    def _leave(self, place: _Slot, left: Left) -> None:
        is_done = left in (Left.NOTHING, Left.GROUP_GONE)
        if is_done or self._closed:
            place.worker.close()
        with self._changed:
            place.is_worked_at = False
            place.is_blocked = left is Left.BLOCKED
            if is_done and not place.is_told:
                del self._slots[place.worker.group_id]
            else:
                place.due_s = time.monotonic() + (0.0 if is_done else backoff_s(place.worker.attempts))
            self._changed.notify_all()


def backoff_s(attempts: int) -> float:
    """How long to wait after so many attempts in a row that failed."""
    grown = min(FIRST_BACKOFF_S * 2.0 ** min(attempts - 1, 30), LONGEST_BACKOFF_S)
    return grown * random.uniform(1 - JITTER, 1 + JITTER)
