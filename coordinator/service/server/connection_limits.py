"""Closes connections that show no token: after a while, or at once if there are too many.

gRPC accepts every connection and has no limit to set. So a thread scans the descriptors of this process once a second
for sockets of the server's port (through ``/dev/fd``, which Linux and macOS have). Rule: no other socket is touched. A
descriptor is duplicated before it is examined, because its number may be another socket's a moment later."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
import time
from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import unquote

from coordinator.protocol.repeated_lines import LogOnce

LOOK_S = 1.0
"""Two scans are this many seconds apart."""
DESCRIPTORS = "/dev/fd"
_MAPPED = "::ffff:"

Peer: TypeAlias = tuple[str, int]


class UnauthenticatedConnections:
    """Limits the connections to ``port`` until it is closed. ``greeted``: the peers that have shown the token, as gRPC
    writes them. The server adds peers; this class removes those that are gone."""

    def __init__(
        self,
        port: int,
        once: LogOnce,
        greeted: set[str],
        *,
        max_connections: int,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
        look_s: float = LOOK_S,
    ) -> None:
        self._port = port
        self._once = once
        self._max_connections = max_connections
        self._patience_s = patience_s
        self._clock = clock
        self._look_s = look_s
        self._greeted = greeted
        self._first_seen: dict[Peer, float] = {}
        self._duplicate = os.open(os.devnull, os.O_RDONLY)
        # Closed while descriptors are listed: a flood may have taken all others.
        self._spare = os.open(os.devnull, os.O_RDONLY)
        self._looked = clock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="share-unauthenticated", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Close connections that have shown no token for too long, and the oldest ones while there are too many."""
        greeted = set(self._greeted)
        known, now = {_of_grpc(peer) for peer in greeted}, self._clock()
        self._forgive(now)
        there = self._connections()
        self._greeted -= {peer for peer in greeted if _of_grpc(peer) not in there}
        self._first_seen = {peer: self._first_seen.get(peer, now) for peer in there}
        silent = sorted((peer for peer in there if peer not in known), key=self._first_seen.__getitem__)
        surplus = max(0, len(there) - self._max_connections)
        late = [peer for peer in silent if now - self._first_seen[peer] >= self._patience_s]
        for peer in late:
            self._cut(there[peer], peer, "silent", "it has not shown the token")
        for peer in silent[len(late) : surplus]:
            self._cut(there[peer], peer, "flood", f"there are more than max.connections={self._max_connections}")
        if surplus > len(silent):
            self._once.warn("crowd", f"{len(there)} connections with the token are open: more than max.connections")

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        for descriptor in (self._duplicate, self._spare):
            os.close(descriptor)

    def _run(self) -> None:
        while not self._closed.wait(self._look_s):
            with contextlib.suppress(OSError):  # no descriptor is free: the next scan tries again
                self.look()

    def _forgive(self, now: float) -> None:
        """Extend every connection's time by as long as this process was paused: no token could be shown then."""
        late_s, self._looked = now - self._looked - self._look_s, now
        if late_s > self._look_s:
            self._first_seen = {peer: seen + late_s for peer, seen in self._first_seen.items()}

    def _connections(self) -> dict[Peer, int]:
        os.close(self._spare)
        try:
            names = os.listdir(DESCRIPTORS)
        finally:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        numbers = sorted(int(name) for name in names)
        found = {peer: number for number in numbers if number != self._duplicate and (peer := self._peer(number))}
        self._release()
        return found

    def _peer(self, number: int) -> Peer | None:
        """The peer of descriptor ``number`` if it is a connection to the port. ``_duplicate`` is that socket then."""
        try:
            os.dup2(number, self._duplicate)
            held = socket.socket(fileno=self._duplicate)
        except OSError:
            return None
        try:
            return _normal(held.getpeername()) if held.getsockname()[1] == self._port else None
        except (OSError, IndexError):
            return None
        finally:
            held.detach()

    def _cut(self, number: int, peer: Peer, kind: str, why: str) -> None:
        if self._peer(number) == peer:
            held = socket.socket(fileno=self._duplicate)
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)
            held.detach()
            self._once.warn(kind, f"a connection of {peer[0]} was cut: {why}")
        self._release()

    def _release(self) -> None:
        os.dup2(self._spare, self._duplicate)


def _normal(address: tuple[object, ...]) -> Peer:
    return str(address[0]).removeprefix(_MAPPED), int(str(address[1]))


def _of_grpc(peer: str) -> Peer:
    """The peer that gRPC writes as ``ipv4:127.0.0.1:5`` or ``ipv6:%5B::1%5D:5``."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return host.strip("[]").removeprefix(_MAPPED), int(port or 0)


def raise_descriptor_limit() -> None:
    """Raise the limit of open descriptors as far as this process may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems don't take "unlimited"
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
