"""Listeners that are no Kafka broker's: what answers at an address where somebody expects one."""

import contextlib
import socket
import socketserver
import struct
import threading


class Answer(socketserver.BaseRequestHandler):
    """Sends the server's answer to whatever comes."""

    def handle(self) -> None:
        self.request.recv(1)
        self.request.sendall(self.server.answer)
        self.request.recv(1 << 16)


QUORUM = (1, 17, 18, 52, 53, 54, 62)
"""Requests that a KRaft controller answers."""


class Controller(socketserver.BaseRequestHandler):
    """Answers to ApiVersions as a KRaft controller does, and closes the connection at any other request."""

    def handle(self) -> None:
        while head := self.request.recv(12, socket.MSG_WAITALL):
            size, api_key, version, correlation_id = struct.unpack(">ihhi", head)
            self.request.recv(size - 8, socket.MSG_WAITALL)
            if api_key != 18:
                return
            keys = [number for key in QUORUM for number in (key, 0, 0)]
            error = 0 if version == 0 else 35  # UNSUPPORTED_VERSION
            answer = struct.pack(f">ihi{len(keys)}h", correlation_id, error, len(QUORUM), *keys)
            self.request.sendall(struct.pack(">i", len(answer)) + answer)


class Tls(socketserver.BaseRequestHandler):
    """Does a TLS handshake, and closes the connection of who speaks plain text, as Kafka's TLS listener does."""

    def handle(self) -> None:
        if self.request.recv(1, socket.MSG_PEEK) == b"\x16":
            with contextlib.suppress(OSError), self.server.answer.wrap_socket(self.request, server_side=True) as opened:
                opened.recv(1)


class Silence(socketserver.BaseRequestHandler):
    """Reads all, and answers nothing."""

    def handle(self) -> None:
        while self.request.recv(1 << 16):
            pass


@contextlib.contextmanager
def listening(handler, answer):
    """The address of a server with this handler."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads, server.answer = True, answer
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
