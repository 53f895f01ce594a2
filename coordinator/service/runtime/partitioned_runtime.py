"""The event_loops of a coordinator whose state lies in several partitions: one for each that it serves a group of.

Rule: a slow partition, or a long load, holds up its own groups only. An event_loop is made when one of its groups is
asked for, and ended when its partition goes to another process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from coordinator.service.runtime.clock import Clock
from coordinator.service.runtime.event_loop import EventLoop
from coordinator.service.runtime.runtime import CoordinatorRuntime, Transaction
from coordinator.state_log.placement import state_partition_of

T = TypeVar("T")


class PartitionedRuntime:
    """As one :class:`~coordinator.service.runtime.event_loop.EventLoop` to those who call."""

    def __init__(self, partitions: int, shard_of: Callable[[int], CoordinatorRuntime]) -> None:
        """``shard_of``: a new runtime on this partition's store."""
        self.clock = Clock()
        self.partitions = partitions
        self._runtime_of = shard_of
        self._event_loops: dict[int, EventLoop] = {}
        self._making = threading.Lock()

    def __repr__(self) -> str:
        return f"<PartitionedRuntime {len(self._event_loops)} of {self.partitions}>"

    @property
    def group_count(self) -> int:
        """Groups that are served now."""
        return sum(event_loop.group_count for event_loop in self._all())

    def call(self, group_id: str, transaction: Transaction[T], *, claim: bool = False, peek: bool = False) -> T:
        """See :meth:`EventLoop.call`."""
        return self._event_loop_of(group_id).call(group_id, transaction, claim=claim, peek=peek)

    def may_rest(self) -> bool:
        return all(event_loop.may_rest() for event_loop in self._all())

    def has_letters(self, group_id: str) -> bool:
        event_loop = self._event_loops.get(state_partition_of(group_id, self.partitions))
        return event_loop is not None and event_loop.has_letters(group_id)

    def end(self, partitions: frozenset[int]) -> None:
        """These go to another process: finish what runs, then let go of them."""
        with self._making:
            ended = [
                event_loop for number in partitions if (event_loop := self._event_loops.pop(number, None)) is not None
            ]
        for event_loop in ended:
            event_loop.close()

    def begin_anew(self, partitions: int) -> None:
        """From now on there are so many partitions, on other stores; what runs on those before is ended."""
        with self._making:
            ended, self._event_loops, self.partitions = list(self._event_loops.values()), {}, partitions
        for event_loop in ended:
            event_loop.close()

    def close(self) -> None:
        self.end(frozenset(range(self.partitions)))

    # --- inside

    def _all(self) -> list[EventLoop]:
        with self._making:
            return list(self._event_loops.values())

    def _event_loop_of(self, group_id: str) -> EventLoop:
        number = state_partition_of(group_id, self.partitions)
        with self._making:
            event_loop = self._event_loops.get(number)
            if event_loop is None:
                event_loop = self._event_loops[number] = EventLoop(self._runtime_of(number), self.clock)
            return event_loop
