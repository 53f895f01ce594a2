"""A TCP proxy in front of a broker, so that a test can cut the data path and heal it.

While cut, the connections there were are gone and new ones are refused, as with a broker whose host went away; with
`silent=True` they stay open and no byte passes, as with a firewall that drops packets; with `silent_so_far=True` so do
those that there are, and new ones get through; with `records_only=True` a
connection is gone as soon as records are asked for on it, so that clients know of the cluster and can read nothing.
With `lacks`, the broker seems to be one that has fewer requests. `answered` counts the bytes of the broker's answers.
"""

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Mapping

from tests.support.lacking_brokers import Lacking
from tests.support.ports import free_ports

CHUNK_BYTES = 1 << 16
FOR_RECORDS = {1, 2}
"""Kafka's API keys of Fetch and ListOffsets."""


class TcpProxy:
    """Forwards 127.0.0.1:`port` to `target`, until `cut()`; `heal()` opens it again."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self._listener: socket.socket | None = _listen(*free_ports(1))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._silent: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._without_records = threading.Event()
        self._newest: dict[int, int] = {}
        self.answered = 0
        self._closed = threading.Event()
        self._accept_in_background()

    def __repr__(self) -> str:
        state = "open" if self._listener and self._flowing.is_set() else "cut"
        return f"<TcpProxy 127.0.0.1:{self.port} -> {self.target[0]}:{self.target[1]} {state} pairs={len(self._pairs)}>"

    def cut(self, *, silent: bool = False, silent_so_far: bool = False, records_only: bool = False) -> None:
        """Nothing gets through from now on, or nothing on the connections there are, or no records."""
        if silent_so_far:
            with self._lock:
                self._silent |= self._pairs
            return
        if records_only:
            self._without_records.set()
            self._drop_connections()  # in new ones the first request is the first byte
            return
        self._flowing.clear()
        if not silent:
            self._stop_listening()
            self._drop_connections()

    def heal(self) -> None:
        """New connections get through again; those that were cut silently go on where they stopped, or are gone if new
        ones got through meanwhile."""
        self._without_records.clear()
        with self._lock:
            silent, self._silent = self._silent, set()
        for pair in silent:
            _shut(pair)
        self._flowing.set()
        if self._listener is None:
            self._listener = _listen(self.port)
            self._accept_in_background()

    def lacks(self, newest: Mapping[int, int]) -> None:
        """New connections have these API keys up to these versions alone (tests.support.lacking_brokers).
        `lacks({})`: as the broker is."""
        self._newest = dict(newest)
        self._drop_connections()

    def close(self) -> None:
        """The end: the port is free again."""
        self._closed.set()
        self._flowing.set()
        self._stop_listening()
        self._drop_connections()

    def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
            listener.close()

    def _drop_connections(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            _shut(pair)

    def _accept_in_background(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), name="proxy-accept", daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # cut or closed
            threading.Thread(target=self._forward, args=(client, listener), name="proxy-pair", daemon=True).start()

    def _forward(self, client: socket.socket, listener: socket.socket) -> None:
        try:
            server = socket.create_connection(self.target, timeout=5)
        except OSError:
            client.close()
            return
        pair = (client, server)
        with self._lock:
            self._pairs.add(pair)
        if listener is not self._listener:  # the test cut the proxy meanwhile
            _shut(pair)
        try:
            self._pump(pair)
        finally:
            with self._lock:
                self._pairs.discard(pair)
                self._silent.discard(pair)
            _shut(pair)
            for end in pair:
                end.close()

    def _pump(self, pair: tuple[socket.socket, socket.socket]) -> None:
        client, server = pair
        requests = _Requests() if self._without_records.is_set() else None
        lacking = Lacking(self._newest) if self._newest else None
        for end in pair:
            end.settimeout(None)
        with selectors.DefaultSelector() as selector, contextlib.suppress(OSError):
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while not self._closed.is_set():
                for key, _ in selector.select():
                    chunk = key.fileobj.recv(CHUNK_BYTES)
                    if not chunk:
                        return
                    if requests and key.fileobj is client and self._asks_for_records(requests, chunk):
                        return
                    self._flowing.wait()
                    if pair in self._silent:
                        continue  # its bytes are lost
                    if key.fileobj is server:
                        self.answered += len(chunk)
                    if lacking and key.fileobj is server:
                        chunk = lacking.answered(chunk)
                    elif lacking:
                        lacking.asked(chunk)
                    key.data.sendall(chunk)

    def _asks_for_records(self, requests: "_Requests", chunk: bytes) -> bool:
        return not FOR_RECORDS.isdisjoint(requests.api_keys(chunk)) and self._without_records.is_set()


class _Requests:
    """The bytes of a client, split into Kafka's requests: four bytes with the rest's length, two with the API key."""

    def __init__(self) -> None:
        self._begun = b""
        self._left = 0

    def api_keys(self, chunk: bytes) -> list[int]:
        """Of the requests that begin in this chunk."""
        found = []
        rest = self._begun + chunk
        while len(rest) > self._left + 5:
            rest = rest[self._left :]
            length, api_key = struct.unpack_from(">ih", rest)
            found.append(api_key)
            self._left = 4 + length
        passed = min(len(rest), self._left)
        self._left -= passed
        self._begun = rest[passed:]
        return found


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    return listener


def _shut(pair: tuple[socket.socket, socket.socket]) -> None:
    """End both ways; the thread that pumps between them sees it and closes them."""
    for end in pair:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
