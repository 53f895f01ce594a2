"""Chooses TCP ports for the servers of tests."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import socket

PORTS = range(12_000, 32_000)
"""Below the ports that Linux gives to outgoing connections (32768 and above): while a server is away, a client that
tries to reach the server could otherwise get the server's own port."""

_given: collections.deque[int] = collections.deque(maxlen=1000)
"""The ports that this process chose last: a server that was given one may not listen on it yet."""


def free_ports(count: int) -> list[int]:
    """Return different ports that nobody listens on, none of which is among the last thousand chosen here.

    Each pytest-xdist worker chooses from a range of its own: two workers never choose the same port between this look
    and the start of the server.
    """
    ports = ports_of_worker(
        os.environ.get("PYTEST_XDIST_WORKER", "gw0"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    )
    chosen: list[int] = []
    with contextlib.ExitStack() as held:  # all are held until all are known, so they differ
        while len(chosen) < count:
            port = random.SystemRandom().choice(ports)
            if port in _given:
                continue
            with contextlib.suppress(OSError):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                chosen.append(port)
    _given.extend(chosen)
    return chosen


def ports_of_worker(worker: str, workers: int) -> range:
    """Return the ports of a worker, by its name (gw0, gw1, …) and the number of workers."""
    width = len(PORTS) // workers
    first = PORTS.start + int(worker.removeprefix("gw")) % workers * width
    return range(first, first + width)


def listens(port: int) -> bool:
    """Whether a server of this host listens on the port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
