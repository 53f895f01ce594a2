"""The dead letter dispatcher: writes the dead letters that no sink wrote (delivery limit, expiry, a sink's failures).

The runtime notifies it of changed groups. Each group with waiting records has a worker, and a small thread pool runs
the workers. Rules: no request waits for the dispatcher. A group whose dead letter topic can't be written is retried
after 1 s, later every 30 s, and blocks no other group. The waiting records are part of the groups' state, so they
survive the coordinator."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterable, Mapping

from coordinator.protocol.repeated_lines import LogOnce
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.dead_letters.group_worker import GroupWorker, PassResult
from coordinator.service.runtime.event_loop import PartitionedRuntime

FIRST_BACKOFF_S = 1.0
"""A group whose pass failed runs again after this many seconds, twice as long after each further failure."""
LONGEST_BACKOFF_S = 30.0
"""The backoff grows to this many seconds: a topic that can be written again is noticed within half a minute."""
JITTER = 0.2
"""The backoff varies at random by this fraction, so that groups do not all try at the same time."""
PARALLEL_GROUPS = 4
"""The dead letters of up to this many groups are written at the same time: the number of threads."""
CLOSE_S = 3.0
"""Closing waits this many seconds for the threads."""

_log = logging.getLogger(__name__)


class _Slot:
    """A group's worker, when it runs next, and the state of its last pass. Hold the dispatcher's lock to change it."""

    def __init__(self, worker: GroupWorker) -> None:
        self.worker = worker
        self.due_s = 0.0
        self.is_running = False
        self.is_changed = False
        self.is_blocked = False


class DeadLetterDispatcher:
    """Schedules the groups' workers. Thread-safe. It has no thread or connection until records wait."""

    def __init__(
        self, runtime: PartitionedRuntime, cluster: KafkaCluster, kafka_config: Mapping[str, str], doubts: TopicDoubts
    ) -> None:
        """Schedules no group yet: name the groups that are loaded already to :meth:`notify`."""
        self._runtime = runtime
        self._cluster, self._kafka_config, self._doubts = cluster, kafka_config, doubts
        self._changed = threading.Condition()
        self._slots: dict[str, _Slot] = {}
        self._threads: list[threading.Thread] = []
        self._log = LogOnce(_log)
        self._closed = False

    def notify(self, groups: Iterable[str]) -> None:
        """Schedule those of these groups that have waiting records. The event loop calls it: it must not block."""
        with self._changed:
            waiting = [group_id for group_id in groups if self._runtime.has_dead_letters_due(group_id)]
            for group_id in waiting:
                self._schedule(group_id)
            if waiting:
                self._changed.notify_all()

    def may_rest(self) -> bool:
        """Whether all waiting dead letters are blocked until a person acts."""
        with self._changed:
            return all(slot.is_blocked for slot in self._slots.values())

    def close(self) -> None:
        """End the threads. If a dead letter is being written, the next coordinator may write it again."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + CLOSE_S
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        for slot in list(self._slots.values()):
            if not slot.is_running:
                slot.worker.close()

    # --- workers

    def _schedule(self, group_id: str) -> None:
        slot = self._slots.get(group_id)
        if slot is None:
            worker = GroupWorker(
                group_id,
                self._runtime,
                self._cluster,
                self._kafka_config,
                self._doubts,
                self._log,
                is_stopped=lambda: self._closed,
            )
            self._slots[group_id] = _Slot(worker)
            if len(self._threads) < min(PARALLEL_GROUPS, len(self._slots)) and not self._closed:
                self._threads.append(threading.Thread(target=self._run, name="share-dead-letters", daemon=True))
                self._threads[-1].start()
        else:
            slot.is_changed = True

    def _run(self) -> None:
        while (slot := self._next()) is not None:
            try:
                result = slot.worker.work()
            except Exception:  # noqa: BLE001 - a bug with one group's dead letters must not stop the other groups'
                _log.exception("writing dead letters failed, and is tried again: group=%s", slot.worker.group_id)
                slot.worker.attempts += 1
                result = PassResult.WAITING
            self._reschedule(slot, result)

    def _next(self) -> _Slot | None:
        with self._changed:
            while not self._closed:
                free = [slot for slot in self._slots.values() if not slot.is_running]
                slot = min(free, key=lambda candidate: candidate.due_s, default=None)
                if slot is not None and slot.due_s <= time.monotonic():
                    slot.is_running, slot.is_changed = True, False
                    return slot
                self._changed.wait(None if slot is None else max(slot.due_s - time.monotonic(), 0.0))
        return None

    def _reschedule(self, slot: _Slot, result: PassResult) -> None:
        is_done = result in (PassResult.DONE, PassResult.GROUP_GONE)
        if is_done or self._closed:
            slot.worker.close()
        with self._changed:
            slot.is_running = False
            slot.is_blocked = result is PassResult.BLOCKED
            if is_done and not slot.is_changed:
                del self._slots[slot.worker.group_id]
            else:
                slot.due_s = time.monotonic() + (0.0 if is_done else backoff_s(slot.worker.attempts))
            self._changed.notify_all()


def backoff_s(attempts: int) -> float:
    """Seconds to wait after ``attempts`` failed attempts in a row, with jitter."""
    grown = min(FIRST_BACKOFF_S * 2.0 ** min(attempts - 1, 30), LONGEST_BACKOFF_S)
    return grown * random.uniform(1 - JITTER, 1 + JITTER)
