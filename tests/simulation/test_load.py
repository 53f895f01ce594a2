"""The simulation of many queries keeps the promises by which its table can be believed."""

from __future__ import annotations

import dataclasses

import pytest

from tests.simulation.load import BROKERS, INTERPRETER, TRANSACTIONS, Carried, Coordinators, Load, Machines
from tests.simulation.load_costs import ENDS, HEARTBEAT, NEXT, START, Call, UnitCosts
from tests.simulation.load_table import LOADED_BATCHES_S, LOADED_MEDIAN_MS, checked

SMALL = Load(queries=100, trigger_ms=1_000)
WITHOUT_PAUSES = Load(queries=400, trigger_ms=0, spark_ms=0)
SATURATED = 0.97
COSTS = UnitCosts(
    calls={
        NEXT: Call(python_ms=1.5, partition_ms=0.04, native_ms=0.8, asks=True, appends=True),
        START: Call(python_ms=1.5, partition_ms=0.04, native_ms=0.8, appends=True),
        HEARTBEAT: Call(python_ms=0.5),
        ENDS: Call(python_ms=0.8, native_ms=0.3, asks=True),
    },
    transaction_ms=4.0,
    transaction_p99_ms=12.0,
    broker_ms=1.0,
)
FAST = {kind: dataclasses.replace(call, python_ms=0.01, partition_ms=0.0) for kind, call in COSTS.calls.items()}


def play(load: Load, coordinators: int = 1, costs: UnitCosts = COSTS, broker_cores: int = 12) -> Carried:
    """Four seconds of it."""
    machines = Machines(coordinators=coordinators, broker_cores=broker_cores)
    return Coordinators(load, machines, costs).play(4, 3)


@pytest.mark.parametrize("load", [SMALL, WITHOUT_PAUSES], ids=["light", "overloaded"])
def test_each_call_is_answered_or_under_way(load: Load) -> None:
    parts = Coordinators(load, Machines(coordinators=2), COSTS)
    parts.play(4)
    answered = sum((each.answered for each in parts.coordinators), start=type(parts.sent)())
    for kind in (NEXT, START, HEARTBEAT, ENDS):
        assert 0 <= parts.sent[kind] - answered[kind] <= load.queries * (5 if kind == ENDS else 1), kind
    assert answered[START] <= answered[NEXT] <= answered[START] + load.queries


def test_the_simulation_matches_a_measured_coordinator() -> None:
    found = checked()
    assert found.batches_per_s == pytest.approx(LOADED_BATCHES_S, rel=0.25)
    assert found.quantile_ms(0.5) == pytest.approx(LOADED_MEDIAN_MS, rel=0.25)


def test_more_coordinators_do_not_raise_the_throughput_of_one_group() -> None:
    one_group = dataclasses.replace(WITHOUT_PAUSES, in_a_group=400)
    assert play(one_group, 8).batches_per_s == pytest.approx(play(one_group, 1).batches_per_s, rel=0.05)


@pytest.mark.parametrize(
    ("costs", "broker_cores", "bottleneck"),
    [
        (COSTS, 12, INTERPRETER),
        (dataclasses.replace(COSTS, calls=FAST, broker_ms=4.0), 1, BROKERS),
        (dataclasses.replace(COSTS, calls=FAST, transaction_ms=50.0, transaction_p99_ms=60.0), 12, TRANSACTIONS),
    ],
    ids=["coordinator", "brokers", "transactions"],
)
def test_the_bottleneck_named_is_the_resource_in_full_use(costs: UnitCosts, broker_cores: int, bottleneck: str) -> None:
    found = play(WITHOUT_PAUSES, costs=costs, broker_cores=broker_cores)
    assert found.bottleneck == bottleneck
    assert found.used[bottleneck] > SATURATED


def test_a_coordinator_above_its_limit_refuses_calls_and_keeps_serving() -> None:
    found = play(dataclasses.replace(WITHOUT_PAUSES, queries=1_000))
    assert found.refused > 100
    assert found.calls_per_s > 0.9 * play(WITHOUT_PAUSES).calls_per_s
    assert not found.sessions_end
