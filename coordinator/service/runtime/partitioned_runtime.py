"""The engines of a coordinator whose state lies in several partitions: one for each that it serves a group of.

Rule: a slow partition, or a long load, holds up its own groups only. An engine is made when one of its groups is asked
for, and ended when its partition goes to another process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from coordinator.service.runtime.clock import Clock
from coordinator.service.runtime.event_loop import Engine
from coordinator.service.runtime.runtime import Script, Shard
from coordinator.state_log.placement import state_partition_of

T = TypeVar("T")


class Engines:
    """As one :class:`~coordinator.service.runtime.event_loop.Engine` to those who call."""

    def __init__(self, partitions: int, shard_of: Callable[[int], Shard]) -> None:
        """``shard_of``: a new shard on this partition's store."""
        self.clock = Clock()
        self.partitions = partitions
        self._shard_of = shard_of
        self._engines: dict[int, Engine] = {}
        self._making = threading.Lock()

    def __repr__(self) -> str:
        return f"<Engines {len(self._engines)} of {self.partitions}>"

    @property
    def group_count(self) -> int:
        """Groups that are served now."""
        return sum(engine.group_count for engine in self._all())

    def call(self, group_id: str, script: Script[T], *, claim: bool = False, peek: bool = False) -> T:
        """See :meth:`Engine.call`."""
        return self._engine_of(group_id).call(group_id, script, claim=claim, peek=peek)

    def may_rest(self) -> bool:
        return all(engine.may_rest() for engine in self._all())

    def has_letters(self, group_id: str) -> bool:
        engine = self._engines.get(state_partition_of(group_id, self.partitions))
        return engine is not None and engine.has_letters(group_id)

    def end(self, partitions: frozenset[int]) -> None:
        """These go to another process: finish what runs, then let go of them."""
        with self._making:
            ended = [engine for number in partitions if (engine := self._engines.pop(number, None)) is not None]
        for engine in ended:
            engine.close()

    def begin_anew(self, partitions: int) -> None:
        """From now on there are so many partitions, on other stores; what runs on those before is ended."""
        with self._making:
            ended, self._engines, self.partitions = list(self._engines.values()), {}, partitions
        for engine in ended:
            engine.close()

    def close(self) -> None:
        self.end(frozenset(range(self.partitions)))

    # --- inside

    def _all(self) -> list[Engine]:
        with self._making:
            return list(self._engines.values())

    def _engine_of(self, group_id: str) -> Engine:
        number = state_partition_of(group_id, self.partitions)
        with self._making:
            engine = self._engines.get(number)
            if engine is None:
                engine = self._engines[number] = Engine(self._shard_of(number), self.clock)
            return engine
