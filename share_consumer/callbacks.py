"""The program's error_cb, stats_cb, throttle_cb and logger.

librdkafka calls a callback when the client is polled. Another thread polls the clients that read, and only while there
are records. Rule: the program's functions are called in its own thread, also while nothing is read and during an
outage. So the reports of the clients that read wait in a queue, and one more client, which reads nothing, is polled for
its own reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import Consumer

from coordinator.kafka.librdkafka import new_client
from share_source.executor.consumers import client_config

MOST_WAITING = 10_000
"""Up to this many reports wait for the program's thread; then the oldest ones are dropped."""


class Callbacks:
    """The callbacks of one consumer, by their key. Call ``serve``, ``report`` and ``close`` in the program's thread
    only; ``start``, or the first ``serve``, connects."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions
        self._reports: deque[Callable[[], object]] = deque(maxlen=MOST_WAITING)
        self._client: Consumer | None = None
        self.recorders: dict[str, Any] = {
            key: _Recorder(self._reports, partial(_log, function) if key == "logger" else function)
            for key, function in functions.items()
        }
        """What the clients that read have in the place of the program's functions."""

    def __bool__(self) -> bool:
        return bool(self._functions)

    def start(self, config: Mapping[str, Any]) -> None:
        """Make the client that watches the brokers. ``config``: that of the clients that read. Raises as new_client."""
        if self._client is None and self._functions:
            settings = {**dict(client_config(config, "read_uncommitted")), **self._functions}
            self._client = new_client(Consumer, settings)

    def serve(self, config: Mapping[str, Any]) -> None:
        """Start, and call the functions for everything reported since the last call. Raises as ``report``."""
        self._report_of_readers()
        self.start(config)
        self.report()

    def report(self) -> None:
        """Call the functions for everything reported since the last call. Raises what a function raises; the next call
        continues with the next report."""
        self._report_of_readers()
        while self._client is not None and self._client.poll(0) is not None:
            pass  # an error of which error_cb was told

    def set_sasl_credentials(self, username: str, password: str) -> None:
        if self._client is not None:
            self._client.set_sasl_credentials(username, password)

    def close(self) -> None:
        """Call the functions for the remaining reports, and close the client. Raises what a function raises first."""
        client, self._client = self._client, None
        self._functions = {}
        raised: list[Exception] = []
        while self._reports:
            try:
                self._report_of_readers()
            except Exception as error:  # noqa: BLE001 - the program's, which comes out below
                raised.append(error)
        try:
            if client is not None:
                client.close()
        finally:
            if raised:
                raise raised[0]

    def _report_of_readers(self) -> None:
        while self._reports:
            self._reports.popleft()()


def _log(logger: Any, *arguments: object) -> None:
    logger.log(*arguments)


class _Recorder:
    """Stands in for a function or a logger in a client that reads, and queues each call for the program's thread."""

    def __init__(self, reports: deque[Callable[[], object]], function: Callable[..., object]) -> None:
        self._reports, self._function = reports, function

    def __call__(self, *arguments: object) -> None:
        self._reports.append(partial(self._function, *arguments))

    log = __call__
