"""Poison among good records: every run ends, the poison is archived and nothing else, and nothing in an outage.

Longer: ``python -m tests.simulation --runs 10000 --seed 0``.
"""

from __future__ import annotations

import dataclasses

import pytest

from tests.simulation.poison import Run, Scenario, play

FIRST_SEED, SEEDS, SOAK_SEEDS, AT_ONCE = 1, 50, 300, 50

STORY = Scenario(
    seed=1,
    records=300,
    partitions=1,
    poison=((0, 123),),
    limit=5,
    mode="batch_optimized",
    queries=1,
    max_records=100,
    available_now=False,
    coordinator_dies=False,
    restart_ms=(2_000, 5_000),
    outage_after_batches=None,
    outage_restarts=0,
    deaths=0,
)
AFTER_A_SESSION = (50_000, 120_000)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.soak] if first >= FIRST_SEED + SEEDS else [])
        for first in range(FIRST_SEED, FIRST_SEED + SOAK_SEEDS, AT_ONCE)
    ],
)
def test_every_run_ends_and_archives_the_poison_alone(first: int) -> None:
    print(f"seeds {first} to {first + AT_ONCE - 1}")
    for seed in range(first, first + AT_ONCE):
        play(Scenario.of(seed))


@pytest.mark.parametrize("limit", range(2, 11))
@pytest.mark.parametrize("queries", [1, 2])
@pytest.mark.parametrize("restart_ms", [(2_000, 5_000), AFTER_A_SESSION], ids=["seconds", "sessions"])
def test_one_poison_record_costs_a_bounded_number_of_restarts(
    limit: int, queries: int, restart_ms: tuple[int, int]
) -> None:
    run = play(dataclasses.replace(STORY, limit=limit, queries=queries, restart_ms=restart_ms))
    assert run.failures <= (limit + 3) * queries + 2, run.report()


def test_a_poison_at_the_very_end_waits_until_others_complete() -> None:
    run = Run(dataclasses.replace(STORY, poison=((0, 299),)))
    run.until("good_done", 20)
    for _ in range(500):
        run.turn()
    assert run.coordinator.archived == [], "no evidence, no dead letter queue: no trial"
    assert run.failures < 60, "it backs off"
    run.feed()
    run.until("all_done", 2)


def test_two_queries_away_longer_than_a_session_do_not_exchange_a_poison() -> None:
    for seed in range(20):
        play(dataclasses.replace(STORY, seed=seed, queries=2, restart_ms=AFTER_A_SESSION, coordinator_dies=True))


@pytest.mark.parametrize("limit", [2, 3, 5, 10])
@pytest.mark.parametrize("restart_ms", [(2_000, 5_000), AFTER_A_SESSION], ids=["seconds", "sessions"])
@pytest.mark.parametrize("queries", [1, 2])
def test_an_outage_archives_nothing(limit: int, restart_ms: tuple[int, int], queries: int) -> None:
    outage = dataclasses.replace(
        STORY,
        poison=(),
        limit=limit,
        queries=queries,
        restart_ms=restart_ms,
        outage_after_batches=1,
        outage_restarts=150,
    )
    run = play(outage)
    assert run.coordinator.archived == []
    assert run.outage_failures == 150


def test_an_outage_while_a_whole_batch_is_quarantined_archives_no_good_record() -> None:
    """L = 2 has no slices: good records are quarantined with the bad one, and have yet to fail alone."""
    for after in range(12):
        run = play(
            dataclasses.replace(
                STORY, records=10, poison=((0, 7),), limit=2, outage_after_batches=after, outage_restarts=40
            )
        )
        assert run.coordinator.archived == [(0, 7)]


def test_a_batch_done_before_the_outage_and_completed_within_is_no_evidence() -> None:
    """With a processing-time trigger a query completes its batch at its next tick, when others have long failed."""
    for seed in range(40):
        late = dataclasses.replace(
            STORY, seed=seed, poison=(), queries=2, outage_after_batches=3, outage_restarts=60, trigger_ms=60_000
        )
        assert play(late).coordinator.archived == []
