"""The doors of a coordinator, each with the same requests behind it: a local socket, TLS, the topics between hosts."""

from __future__ import annotations

import functools
from itertools import count
from typing import Any

import pyarrow.flight as flight
import trustme

from coordinator.client.connection import Connection, Tls
from coordinator.protocol.format_versions import PROTOCOL, PROTOCOL_HEADER
from coordinator.protocol.host_records import ADMIN_REQUESTS, REQUESTS, id_of_request
from coordinator.protocol.rights import RIGHT_OF, Right, Tokens
from coordinator.protocol.wire import Endpoint, decode_answer, encode
from coordinator.service.requests.requests import Handle, Requests
from coordinator.service.server.flight_server import FlightServer
from coordinator.service.server.listener import Listener
from tests.support.asked_hosts import AskedOwner, ask

LISTS = "groups=billing-.* topics=orders-.*"
MEMBER, ADMIN, BOUND = (f"{name}-token-0123456789" for name in ("member", "admin", "bound"))
TOKENS = Tokens.parse(
    f"member,read billing:{MEMBER}\nadmin alice:{ADMIN}\nmember,read,admin lists:{BOUND} {LISTS}\n", "a test"
)


@functools.cache
def _with_tls() -> tuple[Listener, Tls]:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    return Listener(certificate=certificate, key=issued.private_key_pem.bytes()), Tls(roots=authority.cert_pem.bytes())


class Socket:
    """The door for programs. ``peer`` begins what it says of where they ask from."""

    peer = "ipv4:127.0.0.1:"

    def __init__(self, requests: Requests, *, with_tls: bool = False) -> None:
        listener, self._tls = _with_tls() if with_tls else (Listener(), None)
        self.server = FlightServer(requests, TOKENS, listener=listener)
        self._connections: dict[str, Connection] = {}

    def ask(self, request: Any, token: str = MEMBER, **given: Any) -> Any:
        """The reply to the request."""
        return self.send(type(request).__name__, encode(request), token, **given)

    def send(self, name: str, body: bytes, token: str = MEMBER, protocol: str = str(PROTOCOL)) -> Any:
        """The reply to these bytes as a request of this name. A program that names no ``protocol`` has no header."""
        headers = [(b"authorization", f"Bearer {token}".encode())]
        headers += [(PROTOCOL_HEADER.encode(), protocol.encode())] if protocol else []
        options = flight.FlightCallOptions(headers=headers, timeout=60)
        (answer,) = self.connection(token)._client.do_action(flight.Action(name, body), options)
        return decode_answer(answer.body.to_pybytes())

    def connection(self, token: str = MEMBER) -> Connection:
        """A client of this door."""
        endpoint = Endpoint(host="127.0.0.1", port=self.server.port, token=token, pid=1)
        return self._connections.setdefault(token, Connection(endpoint, self._tls))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self.server.shutdown()


class Topics:
    """The door for other hosts: a record is read as soon as it is written, and handled by its reader. ``token`` stands
    for the topic; a token with allow lists is known to the asker's host alone, whose requests come through a door of
    its own, and are handled by ``there`` if they are for no group."""

    peer = "host two"

    def __init__(self, requests: Requests, there: Handle) -> None:
        self._owner = AskedOwner(answer=requests.answer)
        self._theirs = Socket(Requests().begin(there, self))
        self._numbers = count()

    def ask(self, request: Any, token: str = MEMBER, **given: Any) -> Any:
        return self.send(type(request).__name__, encode(request), token, **given)

    def send(self, name: str, body: bytes, token: str = MEMBER, protocol: str = str(PROTOCOL)) -> Any:
        if token == BOUND:
            return self._theirs.send(name, body, token, protocol)
        return decode_answer(self._write(name, body, REQUESTS if token == MEMBER else ADMIN_REQUESTS, protocol))

    def answered(self, name: str, body: Any, head: Any, asker: Any, here: Any) -> bytes:
        """As the asker's host passes a request on that it has let in."""
        topic = ADMIN_REQUESTS if RIGHT_OF.get(name) is Right.ADMIN else REQUESTS
        return self._write(name, body.to_pybytes(), topic, asker.protocol)

    def close(self) -> None:
        self._theirs.close()

    def _write(self, name: str, body: bytes, topic: str, protocol: str) -> bytes:
        request_id = id_of_request(f"r{next(self._numbers)}", name, body)
        by = "alice" if topic == ADMIN_REQUESTS else "billing"
        record, before = ask(id=request_id, name=name, protocol=protocol, by=by), len(self._owner.answers)
        self._owner.reads(record, body, topic)
        return self._owner.answers[before:][-1]


KINDS = ("socket", "tls", "topics")


def door(kind: str, requests: Requests, there: Handle) -> Socket | Topics:
    """A door of this kind."""
    return Topics(requests, there) if kind == "topics" else Socket(requests, with_tls=kind == "tls")
