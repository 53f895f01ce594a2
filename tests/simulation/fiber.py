"""Code that waits, such as the service's handlers, as a task of the simulated world.

It runs in a thread of its own, and only while the world waits for it: one of the two runs at a time, so that a seed
still gives the same events in the same order.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from tests.simulation.simulated_world import Task

_here = threading.local()


class _Killed(BaseException):
    """The process died in which the code ran: nothing catches it."""


class Fiber:
    """A function at work, ``about`` something. What it waits for (:func:`wait_for`) is a task that the world runs."""

    def __init__(self, function: Callable[[], Any], about: Any = None) -> None:
        self._function, self.about = function, about
        self._go_on, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._told: tuple[Any, BaseException | None] = (None, None)
        self._asks: Task | None = None
        self._outcome: tuple[Any, BaseException | None] = (None, None)
        self._killed = False
        self._thread = threading.Thread(target=self._run, name="simulated", daemon=True)

    def run(self) -> Task:
        """Runs the function; the task gets what it returns or raises. If the task is dropped, the function ends where
        it waits."""
        self._thread.start()
        try:
            while self._switch() is not None:
                assert self._asks is not None
                try:
                    self._told = ((yield from self._asks), None)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is the function's
                    self._told = (None, error)
        finally:
            self._kill()
        value, error = self._outcome
        if error is not None:
            raise error
        return value

    # --- the world's side

    def _switch(self) -> Task | None:
        self._asks = None
        self._go_on.release()
        self._waits.acquire()
        return self._asks

    def _kill(self) -> None:
        self._killed = True
        while self._thread.is_alive() and self._asks is not None:
            self._switch()
        self._thread.join()

    # --- the function's side

    def wait(self, task: Task) -> Any:
        """The result of the task; to be called from within the function."""
        self._asks = task
        self._waits.release()
        self._go_on.acquire()
        if self._killed:
            raise _Killed
        value, error = self._told
        if error is not None:
            raise error
        return value

    def _run(self) -> None:
        self._go_on.acquire()
        _here.fiber = self
        with contextlib.suppress(_Killed):
            try:
                self._outcome = (self._function(), None)
            except Exception as error:  # noqa: BLE001 - the world's side raises it
                self._outcome = (None, error)
        self._asks = None
        self._waits.release()


def wait_for(task: Task) -> Any:
    """The result of the task, for which the fiber's function waits while the world goes on."""
    return _current().wait(task)


def at_work_on() -> Any:
    """The subject of the fiber whose function calls this."""
    return _current().about


def work_on(subject: Any) -> None:
    """Set the subject of the fiber whose function calls this."""
    _current().about = subject


def _current() -> Fiber:
    fiber: Fiber = _here.fiber
    return fiber
