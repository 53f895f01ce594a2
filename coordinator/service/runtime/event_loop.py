"""The runtime of a coordinator's groups: an event loop for each state partition. Only its thread steps the store's
runtime.

Requests come from any thread and wait for their answer. The loop sleeps until a request comes or a deadline is due.
Before and after each round it checks whether it was stalled, and passes the stalled time to the runtime. While it
sleeps, the process's stall watch checks, and wakes it after a stall."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from itertools import islice
from typing import TypeVar

from coordinator.core.looks.measures import GroupMeasures
from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.service.process.clock import LISTENS_AGAIN_MS, Clock, StallDetector, now_s
from coordinator.service.process.stall_watch import StallWatch
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.transaction import Access, Transaction

T = TypeVar("T")

ANSWER_TIMEOUT_S = 30.0
"""A caller waits this many seconds for its answer."""
MOST_AT_ONCE = 500
"""One call of ``call_each`` reads up to this many groups: other requests wait for them."""
STEPS_AGAIN_MS = 60_000
"""A loop steps its runtime after this many milliseconds although nothing is due."""
SHORTEST_SLEEP_MS = 10

_log = logging.getLogger(__name__)


class _EventLoop:
    """Runs a runtime in a thread of its own, until :meth:`close`."""

    def __init__(
        self, runtime: CoordinatorRuntime, clock: Clock | None = None, stall_watch: StallWatch | None = None
    ) -> None:
        """``stall_watch``: shared by the process's event loops; None: the loop has its own."""
        self.runtime = runtime
        self.clock = clock or Clock()
        self._stalls = StallDetector()
        self._unheard_ms = 0
        self._unread_ms = 0
        self._awake = threading.Condition()
        self._sleeps_until_ms: int | None = None
        self._round_since_s: float | None = None
        self._closed = False
        self._stepping = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="share-event_loop", daemon=True)
        self._thread.start()
        self._stall_watch = stall_watch or StallWatch()
        self._stall_watch.add(self)

    def __repr__(self) -> str:
        return f"<_EventLoop {self.runtime!r}>"

    def served_groups(self) -> dict[str, bool]:
        return {group.group_id: bool(group.sessions) for group in list(self.runtime.groups.values()) if group.exists}

    def call(self, group_id: str, transaction: Transaction[T], access: Access = Access.SERVE) -> T:
        """Run the transaction and return its answer once it is durable.

        Raises:
            ShareGroupError: the transaction, or a command of it, is refused.
            CoordinatorNotAvailable: no answer came within ANSWER_TIMEOUT_S, or the loop is closed."""
        answer = self._submit(group_id, transaction, access)
        try:
            return answer.result(ANSWER_TIMEOUT_S)
        except FutureTimeoutError:
            answer.cancel()
            reason = f"its state store ({self.runtime.store.name}) does not answer"
            raise CoordinatorNotAvailable(group_id=group_id, reason=reason, outcome_unknown=True) from None

    def call_each(self, transaction_of: Callable[[str], Transaction[T]]) -> dict[str, T]:
        found: dict[str, T] = {}
        served = iter(self.served_groups())
        while group_ids := list(islice(served, MOST_AT_ONCE)):
            found |= self._call_all(group_ids, transaction_of)
        return found

    def _call_all(self, group_ids: list[str], transaction_of: Callable[[str], Transaction[T]]) -> dict[str, T]:
        with self._awake:
            if self._closed:
                return {}
            submit = self.runtime.submit
            answers = {group_id: submit(group_id, transaction_of(group_id), Access.PEEK) for group_id in group_ids}
            self._awake.notify()
        done, late = wait(answers.values(), ANSWER_TIMEOUT_S)
        for answer in late:
            answer.cancel()
        return {g: answer.result() for g, answer in answers.items() if answer in done and answer.exception() is None}

    def may_rest(self, *, loaded: bool = False) -> bool:
        with self._stepping:
            return self.runtime.may_rest(self.clock.now_ms(), loaded=loaded)

    def close(self) -> None:
        with self._awake:
            self._closed = True
            self._awake.notify()
        self._stall_watch.remove(self)
        self._thread.join(ANSWER_TIMEOUT_S)
        self.runtime.store.close()

    # --- the thread

    def _submit(self, group_id: str, transaction: Transaction[T], access: Access) -> Future[T]:
        with self._awake:
            if self._closed:
                raise CoordinatorNotAvailable(group_id=group_id, reason="it is leaving")
            answer = self.runtime.submit(group_id, transaction, access)
            self._awake.notify()
        return answer

    def _run(self) -> None:
        while self._wait():
            with self._stepping:
                try:
                    self._step()
                except Exception:  # noqa: BLE001 - a loop that ends would leave every caller waiting
                    _log.exception("a round of the event loop failed")
        with self._stepping:
            self._step()

    def _step(self) -> None:
        now_ms = self._look()
        stalled_ms, self._unheard_ms = self._unheard_ms, 0
        unread_ms, self._unread_ms = self._unread_ms, 0
        self._round_since_s = now_s()
        try:
            self.runtime.step(now_ms, stalled_ms, unread_ms)
        finally:
            self._round_since_s = None

    @property
    def stuck_s(self) -> float:
        """For how many seconds the present round has lasted; 0: none runs, or it reads state. Any thread may ask."""
        since_s = self._round_since_s
        if since_s is None or self.runtime.is_reading:
            return 0.0
        return now_s() - max(since_s, self.runtime.read_s)

    def _look(self) -> int:
        now_ms = self.clock.now_ms()
        self._unheard_ms += self._stalls.look(now_ms)
        return now_ms

    def _wait(self) -> bool:
        """Sleep until a request or a deadline is due, or a stall was found. Returns False once the loop is closed."""
        with self._awake:
            if self._is_called:
                return not self._closed
            due_ms, now_ms = self.runtime.next_deadline_ms(), self._look()
            until_ms = now_ms + STEPS_AGAIN_MS if due_ms is None else due_ms
            if self._unheard_ms:
                # Nothing was received during a long round: give what was sent meanwhile time to come in.
                until_ms = min(until_ms, now_ms + LISTENS_AGAIN_MS)
            self._sleeps_until_ms = until_ms
            while True:
                self._awake.wait(min(max(until_ms - now_ms, SHORTEST_SLEEP_MS), STEPS_AGAIN_MS) / 1000)
                now_ms = self._look()
                if now_ms >= until_ms or self._unheard_ms or self._is_called:
                    self._sleeps_until_ms = None
                    return not self._closed

    @property
    def _is_called(self) -> bool:
        return self.runtime.has_waiting or self._closed or bool(self._unread_ms)

    def add_unheard(self, ms: int) -> None:
        with self._awake:
            self._unread_ms += ms
            self._awake.notify()

    def hand_over(self, group_id: str, tenure: str) -> None:
        with self._awake:
            self.runtime.handed_over[group_id] = tenure
            self._awake.notify()

    def look_in_sleep(self) -> None:
        """The stall watch calls this. If the loop sleeps without a reason to wake up, check for a stall. Wake the loop
        if there was one, or if its deadline has passed on a clock that jumped."""
        with self._awake:
            if self._sleeps_until_ms is None or self._unheard_ms or self._is_called:
                return
            now_ms = self.clock.now_ms()
            if now_ms < self._sleeps_until_ms:
                self._unheard_ms = self._stalls.look(now_ms)
            if self._unheard_ms or now_ms >= self._sleeps_until_ms:
                self._awake.notify()


class PartitionedRuntime:
    """The groups of a coordinator, in an event loop for each state partition with a group that was asked for. A store
    in one file is one partition.

    Rule: a slow partition, or a long load, holds up its own groups only. An event loop is made when one of its groups
    is asked for."""

    def __init__(
        self,
        partition_of: Callable[[str], int],
        runtime_of: Callable[[int], CoordinatorRuntime],
        clock: Clock | None = None,
    ) -> None:
        """``partition_of``: the partition of a group id. ``runtime_of``: makes a new runtime on a partition's store."""
        self.clock = clock or Clock()
        self._partition_of, self._runtime_of = partition_of, runtime_of
        self._event_loops: dict[int, _EventLoop] = {}
        self._stall_watch = StallWatch()
        self._making = threading.Lock()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<PartitionedRuntime {len(self._event_loops)}>"

    def served_groups(self) -> dict[str, bool]:
        """Returns the groups that are served now, and whether each has a member with a session."""
        return {group_id: is_live for loop in self._all() for group_id, is_live in loop.served_groups().items()}

    def call(self, group_id: str, transaction: Transaction[T], access: Access = Access.SERVE) -> T:
        return self._event_loop_of(group_id).call(group_id, transaction, access)

    def call_each(self, transaction_of: Callable[[str], Transaction[T]]) -> dict[str, T]:
        """Run a transaction that only reads on each group that is served now, in calls of up to MOST_AT_ONCE groups.
        Returns the answers by group, without groups that do not answer."""
        found = (event_loop.call_each(transaction_of) for event_loop in self._all())
        return {group_id: answer for of_loop in found for group_id, answer in of_loop.items()}

    def rested_groups(self) -> dict[str, GroupMeasures]:
        """The measures of groups that this process unloaded at rest and still owns, as they were then. Empty if another
        process could take a group unnoticed."""
        return {group_id: each for loop in self._all() for group_id, each in dict(loop.runtime.rested).items()}

    def may_rest(self, *, loaded: bool = False) -> bool:
        """Whether no group holds anything, waits for anything, or has a member. ``loaded``: look at the loaded groups
        alone, and ignore groups that could not be loaded so far."""
        return all(event_loop.may_rest(loaded=loaded) for event_loop in self._all())

    def has_dead_letters_due(self, group_id: str) -> bool:
        """Whether records of a group that is served now wait for their dead letters."""
        event_loop = self._event_loops.get(self._partition_of(group_id))
        return event_loop is not None and event_loop.runtime.has_dead_letters_due(group_id)

    def tenure(self, group_id: str) -> str:
        """The tenure of this process as the owner of the group; empty if this process does not serve the group."""
        event_loop = self._event_loops.get(self._partition_of(group_id))
        return "" if event_loop is None else event_loop.runtime.store.tenure(group_id)

    def holds(self, group_id: str) -> bool:
        """Whether the group is served here, or loaded again soon."""
        event_loop = self._event_loops.get(self._partition_of(group_id))
        return event_loop is not None and event_loop.runtime.holds(group_id)

    def held_groups(self) -> frozenset[str]:
        """Returns the groups that are served here, or loaded now or soon."""
        return frozenset().union(*(event_loop.runtime.held for event_loop in self._all()))

    def unheard(self, group_ids: Iterable[str], ms: int) -> None:
        """Record that for this many milliseconds no member of these groups could be heard."""
        for number in {self._partition_of(group_id) for group_id in group_ids}:
            if (event_loop := self._event_loops.get(number)) is not None:
                event_loop.add_unheard(ms)

    def hand_over(self, group_id: str, tenure: str) -> None:
        """Give the group up after the running round, if this process still owns it with this tenure."""
        if (event_loop := self._event_loops.get(self._partition_of(group_id))) is not None:
            event_loop.hand_over(group_id, tenure)

    def stuck_s(self, group_id: str) -> float:
        """As :attr:`_EventLoop.stuck_s` of the group's event loop."""
        event_loop = self._event_loops.get(self._partition_of(group_id))
        return 0.0 if event_loop is None else event_loop.stuck_s

    def begin_anew(self, partition_of: Callable[[str], int]) -> None:
        """Close all event loops, and start again on other stores, with the partitions of ``partition_of``."""
        with self._making:
            ended, self._event_loops, self._partition_of = self._event_loops, {}, partition_of
        for event_loop in ended.values():
            event_loop.close()

    def close(self) -> None:
        """Finish the running requests, refuse new ones, and release the stores to their next owner."""
        with self._making:
            self._is_closed = True
            ended, self._event_loops = self._event_loops, {}
        for event_loop in ended.values():
            event_loop.close()

    def _all(self) -> list[_EventLoop]:
        with self._making:
            return list(self._event_loops.values())

    def _event_loop_of(self, group_id: str) -> _EventLoop:
        with self._making:
            if self._is_closed:
                raise CoordinatorNotAvailable(group_id=group_id, reason="it is leaving")
            number = self._partition_of(group_id)
            event_loop = self._event_loops.get(number)
            if event_loop is None:
                event_loop = _EventLoop(self._runtime_of(number), self.clock, self._stall_watch)
                self._event_loops[number] = event_loop
            return event_loop
