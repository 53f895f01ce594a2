"""The measured costs that the simulation of many queries takes: of a call, a transaction and a question to the brokers.

Source: ``make bench ARGS="--only load"`` (docs/trust/benchmarks.md, "Many queries"), which prints each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

NEXT, START, HEARTBEAT, ENDS = "next", "start", "heartbeat", "ends"
"""A query's calls: complete a plan and acquire the next one, start it, heartbeat, and read the logs' ends."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One kind of call. ``python_ms``, and ``partition_ms`` for each partition of the plan: CPU time of the
    coordinator's interpreter, which serves one call at a time. ``native_ms``: of librdkafka's threads beside it.
    ``asks``: the brokers are asked before the decision. ``appends``: the decision is appended."""

    python_ms: float
    partition_ms: float = 0.0
    native_ms: float = 0.0
    asks: bool = False
    appends: bool = False


CALLS: Mapping[str, Call] = MappingProxyType(
    {
        NEXT: Call(python_ms=4.2, partition_ms=0.105, native_ms=2.1, asks=True, appends=True),
        START: Call(python_ms=3.2, partition_ms=0.105, native_ms=1.7, appends=True),
        HEARTBEAT: Call(python_ms=0.5),
        ENDS: Call(python_ms=1.6, native_ms=0.5, asks=True),
    }
)
"""Of a loaded coordinator: a batch of one partition took 5.8 ms of Python's CPU time, and one of 50 partitions 13.6,
where the batches came one after the other, and 17.8 under load, so that all of it is taken 1.31 times."""


@dataclass(frozen=True, kw_only=True)
class UnitCosts:
    """All costs. ``transaction_ms``: the median of an append without any load, ``transaction_p99_ms`` its 99th
    percentile; ``broker_ms`` the brokers' CPU time of it. ``ask_ms`` and ``ask_broker_ms``: of a question.
    ``client_ms``: CPU time of the query's process for a batch, which counts where it shares a machine."""

    calls: Mapping[str, Call] = field(default_factory=lambda: CALLS)
    transaction_ms: float = 3.6
    transaction_p99_ms: float = 32.0
    broker_ms: float = 3.0
    ask_ms: float = 2.5
    ask_broker_ms: float = 2.0
    client_ms: float = 1.9
