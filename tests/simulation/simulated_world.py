"""The simulated world: one clock, one queue of what happens next, one source of chance, processes that can die.

No thread and no sleep: a task is a generator that yields how long it waits (milliseconds) or what it waits for
(:class:`Pending`). The same seed gives the same events in the same order.
"""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Callable, Generator
from itertools import count
from typing import Any, TypeAlias

Task: TypeAlias = Generator[Any, Any, Any]
_INCARNATION = re.compile(r"\b[0-9a-f]{8}\.(?=\d)")


class BrokenPromise(AssertionError):
    """Something that the core promises is not so."""


class Gone(Exception):
    """A process ends by itself: it failed, or was fenced."""


class World:
    """``now_ms`` is everybody's time: whole milliseconds, but for a simulation that counts parts of them, as that
    of many queries. ``trace`` is what happened, for people."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.now_ms = 1_000_000
        self.trace: list[tuple[int, str, str]] = []
        self.events = 0
        self.broken: BrokenPromise | None = None
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.between_steps: Callable[[], None] = lambda: None
        """Called before each step of any process: injects further faults."""

    def __repr__(self) -> str:
        return f"<World seed={self.seed} now={self.now_ms} events={self.events}>"

    def at(self, due_ms: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (max(due_ms, self.now_ms), next(self._order), act))

    def after(self, ms: float, act: Callable[[], None]) -> None:
        self.at(self.now_ms + ms, act)

    def run_until(self, until_ms: float, is_done: Callable[[], bool] = lambda: False) -> None:
        """Runs the events that are due by then. An event may call this for a call that takes time."""
        while self._queue and self._queue[0][0] <= until_ms:
            if is_done():
                return
            due_ms, _, act = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, due_ms)
            self.events += 1
            act()
            if self.broken is not None:  # whoever caught it on the way did not mean to
                raise self.broken
        self.now_ms = max(self.now_ms, until_ms)

    def note(self, who: str, what: str) -> None:
        self.trace.append((self.now_ms, who, what))

    def fail(self, what: str) -> None:
        """The run ends here."""
        if self.broken is None:
            what = _INCARNATION.sub("", what)  # which is another one in each run
            self.note("!!!", what)
            self.broken = BrokenPromise(f"seed {self.seed}: {what}")
        raise self.broken

    def between(self, low: int, high: int) -> int:
        return self.chance.randint(low, high)

    def happens(self, probability: float) -> bool:
        return self.chance.random() < probability


class Pending:
    """Something that a task waits for. It is set once; what comes later is ignored."""

    __slots__ = ("_is_set", "_then", "value")

    def __init__(self) -> None:
        self._is_set = False
        self._then: Callable[[Any], None] | None = None
        self.value: Any = None

    @property
    def is_set(self) -> bool:
        return self._is_set

    def set(self, value: Any) -> None:
        if self._is_set:
            return
        self._is_set, self.value = True, value
        if self._then is not None:
            self._then(value)

    def then(self, act: Callable[[Any], None]) -> None:
        if self._is_set:
            act(self.value)
        else:
            self._then = act


class Process:
    """An operating system's process: it may be killed or stopped between any two steps of its tasks."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.alive = True
        self.stopped_until_ms = 0
        self.on_death: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} alive={self.alive}>"

    @property
    def stopped(self) -> bool:
        return self.stopped_until_ms > self.world.now_ms

    def spawn(self, task: Task) -> None:
        self.world.after(0, lambda: self._resume(task, None))

    def when_running(self, act: Callable[[], None]) -> bool:
        """Returns whether it runs now. If it is stopped, ``act`` is called when it continues; if it is dead, never."""
        if self.alive and self.stopped:
            self.world.at(self.stopped_until_ms, act)
            return False
        return self.alive

    def stop_for(self, ms: int) -> None:
        self.world.note(self.name, f"is stopped for {ms} ms")
        self.stopped_until_ms = self.world.now_ms + ms

    def die(self, why: str) -> None:
        if self.alive:
            self.alive = False
            self.world.note(self.name, f"dies: {why}")
            self.on_death()

    def _resume(self, task: Task, answer: Any) -> None:
        if not self.when_running(lambda: self._resume(task, answer)):
            return
        self.world.between_steps()
        try:
            waits_for = task.send(answer)
        except StopIteration:
            return
        except Gone as why:
            self.die(str(why))
            return
        if isinstance(waits_for, Pending):
            waits_for.then(lambda value: self._resume(task, value))
        else:
            self.world.after(waits_for, lambda: self._resume(task, None))
