"""Serves the embedded broker at a fixed port of this host, since its own port is another one at each start, and answers
what the embedded broker can't: it creates topics by request, finds the offset of a timestamp, and refuses transactions.

Rule: clients know this address alone, so that every request comes here. The requests of a connection are answered one
after another, as by Kafka's brokers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

from sharegroup.demo import wire
from sharegroup.demo.embedded_broker import EmbeddedBroker

HOST = "localhost"
"""Clients are told this name, which README's programs have."""

_had: set[int] = set()


class PortNotFree(OSError):
    """A port of this host can't be had; the error number says why."""


@contextlib.contextmanager
def fixed_port(port: int, broker: EmbeddedBroker, cluster_id: str) -> Iterator[int]:
    """Serve the broker at `port` of localhost, for the length of the `with` block, as the cluster of this id. Port 0 is
    any free one that this process has not had before: clients remember what they found at an address. Yields the port.
    Raises PortNotFree if the port can't be had, with errno.EADDRINUSE if another program has it."""
    owner = os.getpid()
    with contextlib.ExitStack() as cleanup:
        found = 0
        while not found or (found in _had and not port):
            try:
                listeners = _listen(port)
            except PortNotFree as error:
                if port or error.errno != errno.EADDRINUSE:
                    raise
                continue
            for listener in listeners:
                cleanup.callback(listener.close)
            found = int(listeners[0].getsockname()[1])
        _had.add(found)
        loop = asyncio.new_event_loop()
        cleanup.callback(loop.close)
        thread = threading.Thread(target=loop.run_forever, name="fixed-port", daemon=True)
        thread.start()  # the caller's thread may have a loop that runs, as in a notebook
        cleanup.callback(thread.join)
        cleanup.callback(loop.call_soon_threadsafe, loop.stop)
        front = _Front(broker, found, cluster_id)
        served = [asyncio.run_coroutine_threadsafe(asyncio.start_server(front, sock=each), loop) for each in listeners]
        servers = [each.result() for each in served]
        cleanup.callback(lambda: asyncio.run_coroutine_threadsafe(_end(servers), loop).result())
        try:
            yield found
        finally:
            if os.getpid() != owner:  # a forked process leaves the block: the server is not there
                cleanup.pop_all()


class _Front:
    """Handles a connection: passes its requests on to the broker, and rewrites the answers in which that broker is
    wrong: addresses, offsets by timestamp, transactions, and topics that it creates."""

    def __init__(self, broker: EmbeddedBroker, port: int, cluster_id: str) -> None:
        self._broker = broker
        self._port = port
        self._cluster_id = cluster_id

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Without it a second answer waits 40 ms. asyncio sets it only where the listener was made with TCP's number.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, _, port = self._broker.bootstrap_servers.rpartition(":")
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError), contextlib.closing(writer):
            broker_reader, broker_writer = await asyncio.open_connection(host, int(port))
            with contextlib.closing(broker_writer):
                while True:
                    request = wire.Request(await _read(reader))
                    if request.key == wire.CREATE_TOPICS:
                        _write(writer, await self._in_thread(self._created, request))
                        continue
                    if request.begins_transactions:
                        _write(writer, wire.refused_transactions(request))
                        continue
                    _write(broker_writer, request.content)
                    if request.is_answered:
                        _write(writer, await self._answer(request, await _read(broker_reader)))
                        await writer.drain()

    async def _answer(self, request: wire.Request, answer: bytes) -> bytes:
        if request.key == wire.VERSIONS:
            return wire.capped_versions(answer)
        if request.key in (wire.METADATA, wire.FIND_COORDINATOR):
            return wire.readdressed(request, answer, HOST, self._port, self._cluster_id)
        if request.key == wire.LIST_OFFSETS and (asked := request.timestamps()):
            found = await self._in_thread(lambda: {each: self._broker.offset_at(*each, asked[each]) for each in asked})
            return wire.with_offsets(
                request, answer, {each: wire.ListedOffset(*at) for each, at in found.items() if at}
            )
        return answer

    def _created(self, request: wire.Request) -> bytes:
        topics, only_validated = request.new_topics()
        known = self._broker.topic_names()
        errors = {name: wire.topic_error(name, configs, exists=name in known) for name, configs in topics.items()}
        for name, error in errors.items():
            if error is None and not only_validated:
                self._broker.create_topic(name)
        return wire.created_topics(request, errors)

    async def _in_thread(self, work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)


async def _read(reader: asyncio.StreamReader) -> bytes:
    """The next request or answer; EOFError after the last."""
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)


def _write(writer: asyncio.StreamWriter, content: bytes) -> None:
    writer.write(struct.pack(">i", len(content)) + content)


async def _end(servers: list[asyncio.Server]) -> None:
    """Take no more connections, and return once all have ended, also those that were taken just now."""
    for server in servers:
        server.close()
    # Python 3.11 reports a connection that is cancelled before it has begun as an error.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _listen(port: int) -> list[socket.socket]:
    """Listeners on both addresses of localhost; on IPv4 alone where this host has no IPv6. Raises PortNotFree."""
    try:
        first = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise PortNotFree(error.errno, error.strerror) from None
    try:
        second = socket.create_server(("::1", first.getsockname()[1]), family=socket.AF_INET6)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            first.close()
            raise PortNotFree(error.errno, error.strerror) from None
        return [first]
    return [first, second]
