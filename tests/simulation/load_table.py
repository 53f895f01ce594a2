"""The table of how many queries coordinators carry: ``python -m tests.simulation load``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from tests.simulation.load import Carried, Coordinators, Load, Machines

LOADED = Load(queries=32, in_a_group=4, partitions=50, trigger_ms=0, spark_ms=0, ends_every_ms=3_600_000)
LOADED_MACHINE = Machines(coordinators=1, shared_cores=2, left=0.72)
LOADED_BATCHES_S, LOADED_MEDIAN_MS = 43.0, 721.0
"""Measured: batches a second and median latency of a coordinator, its broker and its clients under load on a machine of
two cores. A batch took 33.3 ms of CPU time of all of them, so that other programs left 1.43 of the two cores."""
COORDINATORS = (1, 2, 4, 8, 16)
TRIGGERS_MS = (10_000.0, 1_000.0, 0.0)
SECONDS = 10.0
AT_MOST_MS = 1_000.0
"""Coordinators carry their queries while the 99th percentile of a plan's latency is at most this many ms."""
HEAD = (
    "| trigger | coordinators | batches/s | calls/s | plan: median; 99th percentile | used: brokers' CPU, the busiest "
    "coordinator's, the busiest state partition | most used | queries carried |\n"
    "|---|---:|---:|---:|---:|---:|---|---:|"
)


def lines(load: Load, coordinators: Sequence[int] = COORDINATORS) -> Iterator[str]:
    """The table's lines: of each trigger and number of coordinators what becomes of the load, and how many queries they
    carry."""
    yield HEAD
    for trigger_ms in TRIGGERS_MS:
        of_trigger = dataclasses.replace(load, trigger_ms=trigger_ms)
        for count in coordinators:
            machines = Machines(coordinators=count)
            yield _line(played(of_trigger, machines), largest(of_trigger, machines))


def checked() -> Carried:
    """The simulation's answer to the load that was measured."""
    return Coordinators(LOADED, LOADED_MACHINE).play(SECONDS)


def check_line() -> str:
    """The simulation against the measured load, in a sentence."""
    found = checked()
    return (
        f"One coordinator, its broker and {LOADED.queries} clients on 1.43 cores, without pauses: simulated "
        f"{found.batches_per_s:,.0f} batches/s, median {found.quantile_ms(0.5):,.0f} ms; measured "
        f"{LOADED_BATCHES_S:,.0f}, {LOADED_MEDIAN_MS:,.0f} ms"
    )


def played(load: Load, machines: Machines) -> Carried:
    """The load as the coordinators carry it: some triggers are over before it is counted, and some are counted."""
    warm_up_s = max(3.0, 1.2 * load.trigger_ms / 1_000)
    return Coordinators(load, machines).play(max(SECONDS, load.trigger_ms / 1_000), warm_up_s)


def is_carried(carried: Carried) -> bool:
    """Whether the plans came in time, no call was refused, and no session may have ended."""
    return carried.quantile_ms(0.99) < AT_MOST_MS and not carried.refused and not carried.sessions_end


def largest(load: Load, machines: Machines) -> int:
    """The largest number of queries, in groups alike, that the coordinators carry: two digits of it."""
    low, high = 0, load.in_a_group
    while is_carried(played(dataclasses.replace(load, queries=high), machines)):
        low, high = high, 2 * high
    while high - low > max(1, low // 20):
        middle = (low + high) // 2
        if is_carried(played(dataclasses.replace(load, queries=middle), machines)):
            low = middle
        else:
            high = middle
    return int(float(f"{low:.2g}"))


def _line(found: Carried, queries: int) -> str:
    trigger = f"{found.load.trigger_ms / 1_000:g} s" if found.load.trigger_ms else "none"
    used = ", ".join(f"{100 * share:.0f} %" for share in found.used.values())
    refused = f"; {found.refused:,} refused" if found.refused else ""
    return (
        f"| {trigger} | {found.machines.coordinators} | {found.batches_per_s:,.0f} | {found.calls_per_s:,.0f} | "
        f"{found.quantile_ms(0.5):,.0f} ms; {found.quantile_ms(0.99):,.0f} ms{refused} | {used} | {found.bottleneck} | "
        f"{queries:,} |"
    )
