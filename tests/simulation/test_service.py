"""The service among crashes and faults: nothing is lost, forgotten or held twice, and each known mistake is found.

Longer: ``python -m tests.simulation service --seeds 10000 --seed 0``, and with ``--faults KIND``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

import pytest

from coordinator.service.runtime import snapshots
from coordinator.service.runtime.snapshots import SnapshotInSteps
from tests.mistakes.catalogue import MISTAKES
from tests.mistakes.durability import start_without_appending
from tests.mistakes.long_searches import name_of, search
from tests.mistakes.mistake import WITH_SINKS, Make, Patch, Seeds
from tests.simulation.administration import BY_HAND
from tests.simulation.service import ServiceRun
from tests.simulation.service_play import finish, play, trace
from tests.simulation.service_query import QueryProcess
from tests.simulation.service_scenario import KINDS, ServiceScenario
from tests.simulation.simulated_world import BrokenPromise

SEEDS_THAT_MEET_ALL, SEEDS, SOAK_SEEDS, AT_ONCE = 40, 60, 400, 20
SEEDS_TO_FIND_A_MISTAKE = 400
OF_THE_MISTAKE_ITSELF = re.compile(r"\b(TypeError|AttributeError|NameError)\b")
"""Errors of a mistake whose code no longer fits the product: they would be found, whatever the product does."""
SCENARIOS = {**KINDS, "sinks": ServiceScenario.of_sinks, "stopped drivers": ServiceScenario.of_stopped_drivers}
FOUND_HERE = [
    search("simulator", name_of(mistake, seeds), mistake.make, seeds)
    for mistake in MISTAKES.values()
    for seeds in mistake.simulator
]


def few_or_many(few: int, few_met: object, many: int, many_met: object) -> pytest.MarkDecorator:
    """How many seeds a test plays, and how much it then meets at least: in `make test-all`, and in `make soak`."""
    forms = [pytest.param(few, few_met, id="short"), pytest.param(many, many_met, id="long", marks=pytest.mark.soak)]
    return pytest.mark.parametrize(("seeds", "least"), forms)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.soak] if first >= SEEDS else [])
        for first in range(SEEDS_THAT_MEET_ALL, SOAK_SEEDS, AT_ONCE)
    ],
)
def test_every_record_ends_and_no_answer_is_forgotten(first: int) -> None:
    """The seeds before the first one are played by the test that says what they meet."""
    print(f"seeds {first} to {first + AT_ONCE - 1}")
    for seed in range(first, first + AT_ONCE):
        play(ServiceScenario.of(seed))


@pytest.mark.slow
@few_or_many(6, 30, 20, 100)
def test_snapshots_in_steps_lose_nothing_among_crashes(seeds: int, least: int, monkeypatch: Patch) -> None:
    """Each run of records is a step, and the members go on between the steps."""
    met: Counter[str] = Counter()
    appended, write_step = SnapshotInSteps.appended, SnapshotInSteps.write_step

    def count_appended(self: SnapshotInSteps, records: Sequence[bytes]) -> None:
        met["appends during a snapshot"] += 1
        appended(self, records)

    def count_step(self: SnapshotInSteps) -> bool:
        is_whole = write_step(self)
        met["snapshots" if is_whole else "steps"] += 1
        return is_whole

    monkeypatch.setattr(snapshots, "STEPS_FROM_RUNS", 1)
    monkeypatch.setattr(snapshots, "RUNS_A_STEP", 1)
    monkeypatch.setattr(SnapshotInSteps, "appended", count_appended)
    monkeypatch.setattr(SnapshotInSteps, "write_step", count_step)
    for seed in range(seeds):
        play(ServiceScenario.of(seed))
        play(ServiceScenario.of_signals(seed))
    assert met["appends during a snapshot"] > least
    assert met["steps"] > met["snapshots"] > least


@pytest.mark.slow
@few_or_many(10, 1, 40, 3)
def test_a_stopped_drivers_late_plan_in_sparks_log_stops_no_query(seeds: int, least: int) -> None:
    logged_late = sum(play(ServiceScenario.of_stopped_drivers(seed)).ledger.logged_late for seed in range(seeds))
    assert logged_late >= least


def test_the_runs_with_sinks_meet_vetoes_stale_rows_and_doubled_dead_letters() -> None:
    """Attempts disagree, rows are stale, and dead letters are written twice."""
    vetoed, stale, letters, records = 0, 0, 0, 0
    for seed in range(WITH_SINKS + 5, WITH_SINKS + 37):
        run = play(ServiceScenario.of_sinks(seed))
        vetoed += run.ledger.vetoed
        stale += run.witness.stale
        letters, records = letters + sum(run.broker.letters.values()), records + len(run.broker.letters)
    assert vetoed > 10
    assert stale > 2
    assert letters > records > 10


@pytest.mark.slow
def test_topics_get_partitions_between_any_two_steps_and_each_is_read() -> None:
    added, begun, read = set(), set(), set()
    for seed in range(8):
        run = play(ServiceScenario.of_topics(seed))
        added |= {(seed, log) for log in run.broker.added}
        begun |= {(seed, log) for log in run.ledger.starts if log in run.broker.added}
        read |= {(seed, log) for log, _, _ in run.ledger.delivered if log in run.broker.added}
    assert len(added) > 10
    assert len(begun) > 10, "the group reads them"
    assert len(read) > 5


@few_or_many(4, 5, 12, 20)
def test_brokers_stand_still_between_any_two_steps_and_no_query_fails(seeds: int, least: int) -> None:
    """Reads, questions, and the state topic's loads and appends meet it."""
    told: Counter[str] = Counter()
    for seed in range(seeds):
        run = play(ServiceScenario.of_stalls(seed))
        told.update(what for _, _, what in run.world.trace)
        told["stops"] += run.brokers.times
        assert not run.deaths["query"]
    assert told["stops"] > least
    assert told["gets no answer from the state topic"] > least // 4
    assert told["answer no question"] > least // 4
    assert told["waits for records"] > least // 4


@pytest.mark.slow
def test_sinks_are_opened_between_any_two_steps_and_change_configs() -> None:
    """Of the queries in these runs some set a mode themselves, and some take the group's."""
    opened, modes = 0, set()
    for seed in range(4):
        run = play(ServiceScenario.of_opened_sinks(seed))
        opened += run.sinks.opened
        modes |= {member.own_mode for member in run.members if isinstance(member, QueryProcess)}
    assert opened > 10
    assert modes == {"", "implicit", "explicit"}


@few_or_many(6, (5, 1, 1), 25, (30, 3, 3))
def test_members_that_never_return_are_forgotten_and_late_members_refused(seeds: int, least: tuple[int, ...]) -> None:
    forgotten = returned = refused = 0
    for seed in range(seeds):
        run = play(ServiceScenario.of_members(seed))
        forgotten += len(run.ledger.forgotten_plans)
        returned += len(set(run.ledger.forgotten_plans) - run.ledger.away)
        refused += run.witness.answers["refused, was forgotten"]
    assert forgotten > least[0]
    assert returned >= least[1]
    assert refused >= least[2]


@few_or_many(5, (20, 8, 12, 0), 15, (80, 30, 50, 2))
def test_work_in_progress_is_lost_and_taken_over_and_its_signals_refused(seeds: int, least: tuple[int, ...]) -> None:
    taken = refused = lost = long_locks = 0
    for seed in range(seeds):
        run = play(ServiceScenario.of_signals(seed))
        taken, refused = taken + run.witness.signals.taken, refused + run.witness.signals.refused
        lost += run.ledger.lost_in_progress
        long_locks += run.witness.lock_ms > run.witness.session_ms
    assert taken > least[0]
    assert refused > least[1]
    assert lost > least[2]
    assert long_locks > least[3]


@few_or_many(4, (5, 5, 1), 12, (20, 100, 3))
def test_an_administrator_resets_decides_and_releases_during_other_faults(seeds: int, least: tuple[int, ...]) -> None:
    resets = skipped = refused = by_hand = 0
    for seed in range(seeds):
        run = play(ServiceScenario.of_administration(seed))
        resets, skipped = resets + run.ledger.actions.resets, skipped + run.ledger.actions.skipped
        refused += run.witness.answers["GroupNotEmpty"] + run.witness.answers["RecordsHeld"]
        by_hand += list(run.ledger.archived.values()).count(BY_HAND)
    assert resets > least[0]
    assert skipped > least[1]
    assert refused > least[2]
    assert by_hand > 0


@few_or_many(8, 20, 60, 200)
def test_what_kafka_removes_between_any_two_steps_counts_as_removed(seeds: int, least: int) -> None:
    """Some batches go on without records that were removed between their start and their reading."""
    runs = [play(ServiceScenario.of_removals(seed)) for seed in range(seeds)]
    assert sum(len(unread) for run in runs for unread in run.witness.unread.values()) > least
    assert sum(counts["removed"] for run in runs for counts in run.ledger.counts.values()) > 5 * least


@few_or_many(8, 100, 80, 2_000)
def test_a_group_in_order_has_one_holder_and_skips_nothing(seeds: int, least: int) -> None:
    """Each append is judged, and at the end the outputs."""
    assert sum(play(ServiceScenario.of_order(seed)).ledger.order.deliveries for seed in range(seeds)) > least


@few_or_many(8, 5, 80, 50)
def test_a_group_with_limits_never_exceeds_one_and_comes_to_its_end(seeds: int, least: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(seeds):
        met += play(ServiceScenario.of_flow(seed)).ledger.flow.met
    assert all(met[what] >= least for what in ("rate", "in flight", "paused")), met


@few_or_many(8, 2, 60, 50)
def test_only_what_waits_is_given_up_for_its_age(seeds: int, least: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(seeds):
        met += play(ServiceScenario.of_ttl(seed)).ledger.ttl.met
    assert all(met[what] >= least for what in ("fresh", "released", "lost")), met


@pytest.mark.slow
@few_or_many(4, (200, 2, 3), 40, (2_000, 40, 30))
def test_deferred_records_come_again_and_use_up_no_try(seeds: int, least: tuple[int, ...]) -> None:
    """Some are deferred more often than a record may be released; half of the groups are in order."""
    deferred = often = slowed = 0
    for seed in range(4, 4 + seeds):
        run = play(ServiceScenario.of_deferrals(seed))
        times = run.ledger.deferrals.times
        deferred, slowed = deferred + len(times), slowed + run.ledger.deferrals.slowed
        often += sum(times[record] > run.ledger.limit for record in run.ledger.done_by)
    assert deferred > least[0]
    assert often > least[1]
    assert slowed > least[2]


@pytest.mark.slow
@few_or_many(2, (20, 50), 12, (200, 400))
def test_owners_that_crash_once_a_session_cost_queries_no_delivery(seeds: int, least: tuple[int, ...]) -> None:
    """The queries go on meanwhile, and each record is delivered once."""
    crashes = commits = 0
    for seed in range(seeds):
        run = play(ServiceScenario.of_crashing_owners(seed))
        told = [what for _, _, what in run.world.trace]
        commits += sum(what.startswith("commits batch") for what in told[: told.index("peace")])
        crashes += run.deaths["coordinator"]
        assert not run.deaths["query"]
        assert not run.ledger.archived
        assert not run.ledger.lost
        assert {count for _, _, count in run.ledger.delivered} == {1}
    assert crashes > least[0]
    assert commits > least[1]


@few_or_many(8, {"silent": 1, "carried out": 100}, 60, {"silent": 20, "released": 5})
def test_a_living_owner_stays_the_owner_and_requests_are_carried_out_once(seeds: int, least: dict[str, int]) -> None:
    """Two or three hosts ask each other by records that are lost, late, doubled and reordered."""
    met: Counter[str] = Counter()
    for seed in range(seeds):
        met += play(ServiceScenario.of_hosts(seed)).log.hosts.met
    assert all(met[what] >= count for what, count in least.items())


@few_or_many(6, 20, 40, 200)
def test_the_loss_of_most_records_between_hosts_changes_no_owner(seeds: int, least: int) -> None:
    carried_out = 0
    for seed in range(seeds):
        met = play(ServiceScenario.of_packet_loss(seed)).log.hosts.met
        assert not met["silent"]
        carried_out += met["carried out"]
    assert carried_out > least


@pytest.mark.parametrize("kind", ["configs", pytest.param("outages", marks=pytest.mark.slow)])
@pytest.mark.parametrize("seeds", [2, pytest.param(5, marks=pytest.mark.soak)])
def test_no_record_is_lost_or_stuck_while_configs_change_or_sinks_fail(kind: str, seeds: int) -> None:
    for seed in range(seeds):
        play(KINDS[kind](seed))


@pytest.mark.slow
@pytest.mark.parametrize(("mistake", "seeds"), FOUND_HERE)
def test_the_mistake_is_found(mistake: Make, seeds: Seeds, monkeypatch: Patch) -> None:
    """Within the bounded number of seeds."""
    mistake(monkeypatch)
    for seed in range(seeds.first, seeds.first + SEEDS_TO_FIND_A_MISTAKE):
        try:
            play(SCENARIOS[seeds.scenario](seed))
        except BrokenPromise as found:
            print(found)
            told = str(found).partition("\n")[0]
            assert not OF_THE_MISTAKE_ITSELF.search(told), "the mistake does not run, so that nothing finds it"
            return
    pytest.fail(f"{mistake.__name__} was not found in {SEEDS_TO_FIND_A_MISTAKE} seeds")


TRACE_OF_A_SEED = """
import hashlib, sys
from tests.simulation.service_play import play, trace
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


def test_a_failure_names_its_seed_and_repeats_its_trace(monkeypatch: Patch) -> None:
    start_without_appending(monkeypatch)
    told = []
    for _ in range(2):
        run = ServiceRun(ServiceScenario.of(0))
        with pytest.raises(BrokenPromise, match=r"^seed 0: ") as found:
            finish(run)
        told.append((str(found.value), trace(run)))
    assert told[0] == told[1]


def test_the_bounded_run_meets_every_kind_of_trouble() -> None:
    """All kinds of trouble happen in it, so that a clean run says something."""
    deaths, answers, archived, lost, snapshots, fenced = {}, {}, set(), 0, 0, 0
    for seed in range(SEEDS_THAT_MEET_ALL):
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
