"""The service among crashes and faults: nothing is lost, forgotten or held twice, and each known mistake is found.

Longer: ``python -m tests.simulation service --seeds 10000 --seed 0``, and with ``--faults KIND``.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.mistakes.catalogue import MISTAKES
from tests.mistakes.durability import start_without_appending
from tests.mistakes.mistake import WITH_SINKS, Make, Patch, Seeds
from tests.simulation.service import ServiceRun, finish, play, trace
from tests.simulation.service_scenario import KINDS, ServiceScenario
from tests.simulation.world import BrokenPromise

FIRST_SEED, SEEDS, AT_ONCE = 0, 120, 20
SEEDS_TO_FIND_A_MISTAKE = 400
SEEDS_OF_A_KIND = 5
WALKED = ("configs", "hosts", "stalls", "topics")
"""Kinds of faults in which nothing is found now."""
SCENARIOS = {**KINDS, "sinks": ServiceScenario.of_sinks, "stopped drivers": ServiceScenario.of_stopped_drivers}
FOUND_HERE = [(mistake.make, seeds) for mistake in MISTAKES.values() for seeds in mistake.simulator]


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SEEDS, AT_ONCE))
def test_every_record_ends_and_no_answer_is_forgotten(first: int) -> None:
    print(f"seeds {first} to {first + AT_ONCE - 1}")
    for seed in range(first, first + AT_ONCE):
        play(ServiceScenario.of(seed))


def test_a_plan_that_a_stopped_driver_logs_after_its_successor_was_given_another_stops_no_query() -> None:
    logged_late = sum(play(ServiceScenario.of_stopped_drivers(seed)).ledger.logged_late for seed in range(40))
    assert logged_late >= 3


def test_the_runs_with_sinks_meet_what_they_are_for() -> None:
    """Attempts disagree, rows are stale, and letters are written twice."""
    vetoed, stale, letters, records = 0, 0, 0, 0
    for seed in range(WITH_SINKS, WITH_SINKS + 15):
        run = play(ServiceScenario.of_sinks(seed))
        vetoed += run.ledger.vetoed
        stale += run.witness.stale
        letters, records = letters + sum(run.broker.letters.values()), records + len(run.broker.letters)
    assert vetoed > 10
    assert stale > 5
    assert letters > records > 10


@pytest.mark.parametrize("kind", WALKED)
def test_nothing_is_lost_or_stuck_whatever_else_goes_wrong(kind: str) -> None:
    for seed in range(SEEDS_OF_A_KIND):
        play(KINDS[kind](seed))


@pytest.mark.parametrize(
    ("mistake", "seeds"),
    FOUND_HERE,
    ids=[f"{make.__name__}-{seeds.scenario or 'faults'}" for make, seeds in FOUND_HERE],
)
def test_the_mistake_is_found(mistake: Make, seeds: Seeds, monkeypatch: Patch) -> None:
    """Within the bounded number of seeds."""
    mistake(monkeypatch)
    for seed in range(seeds.first, seeds.first + SEEDS_TO_FIND_A_MISTAKE):
        try:
            play(SCENARIOS[seeds.scenario](seed))
        except BrokenPromise as found:
            print(found)
            return
    pytest.fail(f"{mistake.__name__} was not found in {SEEDS_TO_FIND_A_MISTAKE} seeds")


TRACE_OF_A_SEED = """
import hashlib, sys
from tests.simulation.service import play, trace
from tests.simulation.service_scenario import ServiceScenario
print(hashlib.sha256(trace(play(ServiceScenario.of(int(sys.argv[1])))).encode()).hexdigest())
"""


def test_a_seed_replays_exactly_in_another_process_too() -> None:
    said = set()
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-c", TRACE_OF_A_SEED, "5"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        said.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(said) == 1


def test_a_failure_names_its_seed_and_shows_what_happened(monkeypatch: Patch) -> None:
    start_without_appending(monkeypatch)
    told = []
    for _ in range(2):
        run = ServiceRun(ServiceScenario.of(0))
        with pytest.raises(BrokenPromise, match=r"^seed 0: ") as found:
            finish(run)
        told.append((str(found.value), trace(run)))
    assert told[0] == told[1]


def test_the_bounded_run_meets_what_it_is_for() -> None:
    """All kinds of trouble happen in it, so that a clean run says something."""
    deaths, answers, archived, lost, snapshots, fenced = {}, {}, set(), 0, 0, 0
    for seed in range(FIRST_SEED, FIRST_SEED + 40):
        run = play(ServiceScenario.of(seed))
        deaths.update(run.deaths)
        answers.update(run.witness.answers)
        archived.update(run.ledger.archived.values())
        lost += len(run.ledger.lost)
        snapshots += run.ledger.snapshots
        fenced += sum("fenced by owner" in what for _, _, what in run.world.trace)
    assert set(deaths) == {"query", "consumer", "coordinator"}
    errors = {"CoordinatorNotAvailable", "UnknownMemberId", "FencedMemberEpoch"}
    assert errors < set(answers)
    assert archived == {"the log's loss", "a failed trial", "rejected", "its tries are used up", "rejected by a sink"}
    assert lost > 100
    assert snapshots > 100
    assert fenced > 10
