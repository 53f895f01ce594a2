"""Refuses connections in a process that was forked while gRPC ran.

Rule: gRPC has threads and locks of the process as a whole. A fork copies the locks and not the threads, so that any
call in the forked process can crash or hang it, also on a connection that is made there. With its last connection gRPC
ends its threads, a moment later: a fork waits for that, once for the connections that were closed before it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from confluent_kafka import IllegalStateException

from coordinator.protocol.errors import ShareGroupError

TASKS = Path("/proc/self/task")
OF_GRPC = ("grpc", "event_engine")
"""The name of each of gRPC's threads begins with one of these words."""
ENDS_S = 5.0
"""A fork waits up to this many seconds for the threads of closed connections to end."""


class UsedAfterFork(ShareGroupError, IllegalStateException):
    """Process {pid} was forked from process {made_by}, which had a ShareConsumer, an Admin or another connection to a
    coordinator open, or used gRPC otherwise: neither an open connection nor a new one works in the forked process.
    Close all of them before the fork, and make new ones after it, or start the process with
    multiprocessing.get_context("spawn")."""


_open: weakref.WeakSet[Any] = weakref.WeakSet()
_of_parent: list[Any] = []
"""In a forked process: the other process's connections, so that none is destroyed here."""
_is_used = False
"""Whether this process ever opened a connection. Otherwise gRPC's threads are another library's, and do not matter."""
_has_waited = False
"""Whether a fork has waited for closed connections in vain since the last one was opened; the next fork does not."""
_is_unfit = False
"""Whether gRPC's threads ran before the latest fork; the forked process reads it."""
_forked_from: int | None = None
"""In a forked process in which no connection works: the process from which it was forked."""


def opened(connection: object) -> None:
    """Record an open connection of this process. Raises UsedAfterFork if no connection works in this process."""
    global _is_used, _has_waited
    check_process()
    _is_used, _has_waited = True, False
    _open.add(connection)


def closed(connection: object) -> None:
    """Record that the connection is closed."""
    _open.discard(connection)


def check_process(made_by: int | None = None) -> None:
    """Check that connections work in this process. ``made_by``: the process that made what is used now. Raises
    UsedAfterFork if it was forked from a process with open connections, or from ``made_by``."""
    if made_by not in (None, os.getpid()) or _forked_from is not None:
        raise UsedAfterFork(made_by=made_by or _forked_from, pid=os.getpid())


def _runs() -> bool:
    """Whether gRPC has threads in this process; where a system does not show them: whether connections are open."""
    for comm in TASKS.glob("*/comm"):
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            if comm.read_text().startswith(OF_GRPC):
                return True
    return bool(_open)


def _before_fork() -> None:
    global _is_unfit, _has_waited
    until_s, pause = time.monotonic() + ENDS_S, threading.Event()
    while (is_unfit := _is_used and _runs()) and not (_open or _has_waited):
        pause.wait(0.005)
        _has_waited = time.monotonic() > until_s  # the threads are of another user of gRPC
    _is_unfit = is_unfit


def _in_forked_child() -> None:
    global _forked_from
    _of_parent.extend(_open)
    if _forked_from is None and (_is_unfit or _of_parent):
        _forked_from = os.getppid()


os.register_at_fork(before=_before_fork, after_in_child=_in_forked_child)
