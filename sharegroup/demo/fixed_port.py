"""A fixed port of this host for the embedded broker, whose own port is another one at each start.

Rule: only the first connection of a client comes here. The broker's answer names the broker's own address, at which
the client then reads and writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import Iterator

PORT = 9092
"""The port in the first program of README.md, which `sharegroup quickstart` serves."""
_CHUNK_BYTES = 1 << 16


@contextlib.contextmanager
def fixed_port(port: int, target: str) -> Iterator[int]:
    """Forward connections to `port` of localhost to `target` (host:port), for the length of the `with` block. Port 0 is
    any free one. Returns the port.

    Raises:
        OSError: the port can't be had, with errno.EADDRINUSE if another program has it.
    """
    with contextlib.ExitStack() as cleanup:
        listeners = _listen(port)
        for listener in listeners:
            cleanup.callback(listener.close)
        host, _, target_port = target.rpartition(":")
        loop = asyncio.new_event_loop()
        cleanup.callback(loop.close)
        for listener in listeners:
            loop.run_until_complete(asyncio.start_server(_Forward(host, int(target_port)), sock=listener))
        thread = threading.Thread(target=loop.run_forever, name="fixed-port", daemon=True)
        thread.start()
        cleanup.callback(thread.join)
        cleanup.callback(loop.call_soon_threadsafe, _stop, loop)
        yield listeners[0].getsockname()[1]


class _Forward:
    """Handles a connection: opens one to the broker, and copies the bytes of both until one side ends."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, broker_writer), _copy(broker_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    writer.close()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all connections, and stop the loop once they have ended."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    asyncio.gather(*tasks, return_exceptions=True).add_done_callback(lambda _: loop.stop())


def _listen(port: int) -> list[socket.socket]:
    """Listeners on both addresses of localhost; on IPv4 alone where this host has no IPv6."""
    first = socket.create_server(("127.0.0.1", port))
    try:
        second = socket.create_server(("::1", first.getsockname()[1]), family=socket.AF_INET6)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            first.close()
            raise
        return [first]
    return [first, second]
