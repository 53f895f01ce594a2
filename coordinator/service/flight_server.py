"""Arrow Flight in front of the service: one action a request, its token checked before anything else.

Rule: no body, however malformed, and no error ends the service; every error crosses by its name.
Acknowledgements as record batches come by ``do_exchange``: the request is the descriptor's command, the answer the
metadata of what is written back.
"""

from __future__ import annotations

import hmac
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow.flight as flight

from coordinator.errors import InternalError, InvalidRequest, NotAuthorized, ShareGroupError
from coordinator.messages import Acknowledge, AcknowledgeRows, PartitionAcks
from coordinator.service.acknowledged_rows import partition_acks
from coordinator.wire import PROTOCOL, Health, Healthy, decode_request, encode, encode_error

LOOPBACK = "127.0.0.1"

_log = logging.getLogger(__name__)


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Compares in constant time, on every call."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> None:
        given = (headers.get("authorization") or [""])[0]
        given = given.encode() if isinstance(given, str) else bytes(given)
        if not hmac.compare_digest(given, self._expected):
            raise flight.FlightUnauthenticatedError(NotAuthorized.__name__)


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves ``handle`` from its construction until ``shutdown``."""

    def __init__(self, handle: Callable[[Any], Any], token: str, *, version: str = "", port: int = 0) -> None:
        self._handle = handle
        self._version = version
        self._counting = threading.Lock()
        self._running = 0
        self.last_request_s = time.monotonic()
        super().__init__(f"grpc://{LOOPBACK}:{port}", middleware={"token": _TokenCheck(token)})

    def __repr__(self) -> str:
        return f"<FlightServer {LOOPBACK}:{self.port}>"

    @property
    def idle_s(self) -> float:
        """Seconds since the last request; 0 while one runs. Health is none."""
        with self._counting:
            return 0.0 if self._running else time.monotonic() - self.last_request_s

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        return [self._answer(action.type, action.body.to_pybytes())]

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        name = AcknowledgeRows.__name__
        writer.write_metadata(self._answer(name, descriptor.command or b"", lambda: partition_acks(reader.read_all())))

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return []

    # --- inside

    def _answer(self, name: str, body: bytes, acks: Callable[[], tuple[PartitionAcks, ...]] | None = None) -> bytes:
        try:
            request = decode_request(name, body)
            if isinstance(request, AcknowledgeRows):
                request = _with_acks(request, acks)
            if isinstance(request, Health):
                return encode(Healthy(pid=os.getpid(), protocol=PROTOCOL, version=self._version))
            return encode(self._counted(request))
        except ShareGroupError as error:
            return encode_error(error)
        except Exception as error:  # noqa: BLE001 - our mistake in one request must reach its caller by name
            _log.exception("request failed: %s", name)
            return encode_error(InternalError(what=name, reason=repr(error)))

    def _counted(self, request: Any) -> Any:
        with self._counting:
            self._running += 1
        try:
            return self._handle(request)
        finally:
            with self._counting:
                self._running -= 1
                self.last_request_s = time.monotonic()


def _with_acks(request: AcknowledgeRows, acks: Callable[[], tuple[PartitionAcks, ...]] | None) -> Acknowledge:
    if acks is None:
        raise InvalidRequest(what="AcknowledgeRows comes by do_exchange, with its rows.")
    return Acknowledge(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        partitions=acks(),
    )
