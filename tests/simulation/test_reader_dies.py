"""A query's reader dies alone: the running batch goes on without heartbeats, and Spark fails the query afterwards."""

from __future__ import annotations

import random
from collections import Counter

from coordinator.protocol.messages import PlanReply
from tests.simulation.spark_query import SimulatedCoordinator, SparkQuery
from tests.support.group_driver import SESSION_MS

EXACT = {"share.acquire.mode": "record_limit"}
"""A query takes no more records than it asks for."""


def written(*queries: SparkQuery) -> Counter[int]:
    """How often each offset is in the outputs of these queries."""
    outputs = [ranges for query in queries for ranges in query.outputs.values()]
    return Counter(offset for ranges in outputs for _, first, last in ranges for offset in range(first, last + 1))


def test_a_readerless_batch_that_outlives_its_session_doubles_records_of_others() -> None:
    """The last two rows of docs/trust/guarantees.md about the reader: others took 0 to 39, of which 20 to 39 are still
    held when the query is back; nobody took 40 to 99."""
    coordinator, chance = SimulatedCoordinator(records=100, **EXACT), random.Random(0)

    def outlive_the_session(query: SparkQuery, reply: PlanReply) -> bool:
        coordinator.pass_time(SESSION_MS + 1)
        assert not coordinator.group.members["a"].active
        b.start()
        assert b.step() and b.step()
        return True

    a = SparkQuery(coordinator, "a", outlive_the_session, chance, max_records=100)
    b = SparkQuery(coordinator, "b", lambda query, reply: True, chance, max_records=20)
    a.start()
    assert a.step(), "nothing stops the batch"
    assert a.commits == 1
    assert coordinator.accepted == {(0, offset) for offset in range(20)}, "those of b's first batch alone are done"

    a.die()
    a.start()
    assert not a.step(), "it completes its batch, and finds nothing else to do"
    assert coordinator.accepted == {(0, offset) for offset in (*range(20), *range(40, 100))}
    assert not b.step()
    assert coordinator.accepted == {(0, offset) for offset in range(100)}
    assert coordinator.archived == []
    assert written(a, b) == Counter([*range(100), *range(40)]), "none is lost, and only what b took is there twice"


def test_a_readerless_batch_that_ends_within_its_session_doubles_nothing() -> None:
    coordinator, chance = SimulatedCoordinator(records=100), random.Random(0)

    def take_nearly_a_session(query: SparkQuery, reply: PlanReply) -> bool:
        coordinator.pass_time(SESSION_MS - 1)
        b.start()
        assert not b.step()
        return True

    a = SparkQuery(coordinator, "a", take_nearly_a_session, chance, max_records=100)
    b = SparkQuery(coordinator, "b", lambda query, reply: True, chance, max_records=20)
    a.start()
    assert a.step()
    a.die()
    a.start()
    assert not a.step()
    assert not b.step()
    assert coordinator.accepted == {(0, offset) for offset in range(100)}
    assert written(a, b) == Counter(range(100))
