"""A listener that answers as a Kafka broker does, and that says when told so that its cluster has no broker: so does a
broker of a cluster whose brokers are all fenced."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_API_VERSIONS, _METADATA = 18, 3
_MOST = {_API_VERSIONS: 0, _METADATA: 4}
"""The newest version of each request that it knows."""
_UNKNOWN_TOPIC, _UNSUPPORTED = 3, 35


class FencedBroker:
    """``is_fenced``: it names no broker. ``told``: how many answers have named none."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener, self.is_fenced, self.told = listener, False, 0
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"

    def accept(self) -> None:
        """Answer each connection in a thread, until the listener is closed."""
        try:
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        except OSError:
            return

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as requests:
            while head := requests.read(4):
                request = requests.read(*struct.unpack(">i", head))
                key, version, number, name = struct.unpack(">hhih", request[:10])
                body = _versions(version) if key == _API_VERSIONS else self._metadata(request[10 + max(name, 0) :])
                connection.sendall(struct.pack(">ii", 4 + len(body), number) + body)

    def _metadata(self, asked: bytes) -> bytes:
        self.told += self.is_fenced
        host, _, port = self.address.partition(":")
        broker = struct.pack(">i", 1) + _text(host) + struct.pack(">ih", int(port), -1)
        brokers = struct.pack(">i", 0) if self.is_fenced else struct.pack(">i", 1) + broker
        controller = struct.pack(">i", -1 if self.is_fenced else 1)
        topics = [
            struct.pack(">h", _UNKNOWN_TOPIC) + _text(each) + struct.pack(">?i", False, 0) for each in _names(asked)
        ]
        return (
            struct.pack(">i", 0) + brokers + _text("c") + controller + struct.pack(">i", len(topics)) + b"".join(topics)
        )


def _versions(version: int) -> bytes:
    """The answer to ApiVersions, in its oldest version."""
    known = b"".join(struct.pack(">hhh", key, 0, most) for key, most in _MOST.items())
    return struct.pack(">hi", _UNSUPPORTED if version else 0, len(_MOST)) + known


def _names(asked: bytes) -> Iterator[str]:
    """The topics of a request for metadata."""
    (count,), at = struct.unpack(">i", asked[:4]), 4
    for _ in range(count):
        (size,) = struct.unpack(">h", asked[at : at + 2])
        yield asked[at + 2 : at + 2 + size].decode()
        at += 2 + size


def _text(said: str) -> bytes:
    return struct.pack(">h", len(said)) + said.encode()


@contextmanager
def fenced_broker() -> Iterator[FencedBroker]:
    """The listener, which begins as a cluster of one broker."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        broker = FencedBroker(listener)
        thread = threading.Thread(target=broker.accept, daemon=True)
        thread.start()
        try:
            yield broker
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=60)
