"""The brokers in memory of this process's tests.

Rule: when a block ends, also by a failure, the queries that began within the block are stopped first: their processes
would start another coordinator."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from sharegroup import Admin  # it checks the packages before another import fails
from sharegroup.demo.embedded_broker import EmbeddedBroker
from sharegroup.demo.local_broker import local_broker
from sharegroup.testing.errors import NoTestBroker
from sharegroup.testing.records import checked, put

Topics = Mapping[str, Iterable[object]]

CONFIGS = {
    "share.coordinator.idle.timeout.ms": "3600000",  # a person may sit in a debugger
    "share.coordinator.metadata.refresh.ms": "500",  # a topic that the test adds is soon seen by a pattern
}
"""Configs of the coordinators of tests."""


class RunningBroker(NamedTuple):
    """A broker that runs now."""

    embedded: EmbeddedBroker
    address: str

    @property
    def kafka(self) -> dict[str, str]:
        """The configuration of a Kafka client."""
        return {"bootstrap.servers": self.address}

    def admin(self) -> Admin:
        """A client of the coordinator. Close it after each use: a program under test may fork."""
        return Admin(self.kafka)


_running: dict[str, RunningBroker] = {}


@contextlib.contextmanager
def broker(topics: Topics = MappingProxyType({})) -> Iterator[str]:
    """Run a Kafka broker in memory for the length of the ``with`` block, with these topics and their records, as
    :func:`produce` takes them. Yields its address for ``kafka.bootstrap.servers`` and ``bootstrap.servers``.

    When the block ends, queries that began within it are stopped, and nothing is left. If this process is killed, a
    second process ends the coordinator at once, and removes its files. If both are killed, the coordinator ends by
    itself after an hour and five minutes.

    Raises:
        UnusableTopicName, UnusableRecord, RecordsNotKept: see :func:`produce`.
        ShareGroupError: the coordinator can't be started."""
    wanted, owner = checked(topics), os.getpid()
    before = _queries().keys()
    with local_broker(configs=CONFIGS) as local, contextlib.ExitStack() as cleanup:
        cleanup.callback(lambda: _stop_queries(before) if os.getpid() == owner else None)
        put(local.embedded, wanted)
        local.coordinator.connect().close()
        _running[local.address] = RunningBroker(local.embedded, local.address)
        cleanup.callback(_running.pop, local.address)
        yield local.address


def produce(topics: Topics, *, address: str | None = None) -> None:
    """Put records into topics; one that does not exist is created, with four partitions. A record is str, bytes, None,
    or a :class:`~sharegroup.testing.Record`, which has a key and headers. ``address``: the broker, if several run.

    Raises:
        NoTestBroker: no broker runs there.
        UnusableTopicName, UnusableRecord: a topic or a record can't be used.
        RecordsNotKept: the broker does not have all of the records."""
    put(running("produce", address).embedded, checked(topics))


def running(what: str, address: str | None) -> RunningBroker:
    """The broker at the address; None: the only one. ``what``: the function that a test called. Raises NoTestBroker if
    it does not run in this process, or none is named and several run."""
    if address is None and len(_running) == 1:
        return next(iter(_running.values()))
    if address in _running:
        return _running[address]
    if address is None and _running:
        raise NoTestBroker(what=what, reason=f"several run ({', '.join(_running)})")
    where = f" at {address}" if address is not None else ""
    raise NoTestBroker(what=what, reason=f"no broker of sharegroup.testing runs in this process{where}")


def _queries() -> dict[str, Any]:
    """The streaming queries that run in this process's Spark session, by id of their run."""
    if (sql := sys.modules.get("pyspark.sql")) is None:
        return {}
    with contextlib.suppress(Exception):  # a session that was stopped, or whose JVM is gone, has no queries
        session = sql.SparkSession.getActiveSession()
        return {query.runId: query for query in (session.streams.active if session is not None else ())}
    return {}


def _stop_queries(before: Iterable[str]) -> None:
    for run_id, query in _queries().items():
        if run_id not in before:
            with contextlib.suppress(Exception):  # it has ended meanwhile, with its own error
                query.stop()
