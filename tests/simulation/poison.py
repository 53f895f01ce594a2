"""Poison among good records: a whole run of it, from a seed, until every record is accepted or archived.

One or two queries fail at poison records and are restarted by a scheduler, seconds apart or longer than a session
apart, streaming or as AvailableNow runs, with a coordinator that dies each time or never, and with an outage of the
data path, in which every batch that holds a record fails.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from coordinator.protocol.messages import PlanReply
from tests.simulation.spark_query import ProcessDied, Record, SimulatedCoordinator, SparkQuery
from tests.support.group_driver import SESSION_MS

BATCH_MS = 500
HEARTBEAT_MS = 10_000


@dataclass(frozen=True)
class Scenario:
    """The scenario of a seed; its repr is printed with a failure."""

    seed: int
    records: int
    partitions: int
    poison: tuple[Record, ...]
    limit: int
    mode: str
    queries: int
    max_records: int | None
    available_now: bool
    coordinator_dies: bool
    restart_ms: tuple[int, int]
    outage_after_batches: int | None
    outage_restarts: int
    deaths: int
    trigger_ms: int = 0

    @classmethod
    def of(cls, seed: int) -> Scenario:
        chance = random.Random(seed)
        partitions = chance.choice((1, 1, 1, 3))
        records = max(1, int(4_000 ** chance.random()) // partitions)
        many = chance.choice((0, 1, 1, 1, 2, 3))
        places = {(chance.randrange(partitions), _place(chance, records)) for _ in range(many)}
        outage = chance.random() < 0.3
        return cls(
            seed=seed,
            records=records,
            partitions=partitions,
            poison=tuple(sorted(places)),
            limit=chance.choice((2, 3, 4, 5, 5, 5, 6, 7, 8, 9, 10)),
            mode=chance.choice(("batch_optimized", "record_limit")),
            queries=chance.choice((1, 2)),
            max_records=chance.choice((None, 10, 100, 1_000, 4_000)),
            available_now=chance.random() < 0.3,
            coordinator_dies=chance.random() < 0.4,
            restart_ms=chance.choice(((2_000, 5_000), (50_000, 120_000), (1_000, 120_000))),
            outage_after_batches=chance.choice((0, 0, 1, 2, 5)) if outage else None,
            outage_restarts=chance.randint(1, 150) if outage else 0,
            # A kill at a good record's last try, then an outage at its trial: two mishaps, more than the rules carry.
            deaths=0 if outage else chance.choice((0, 0, 1)),
            trigger_ms=chance.choice((0, 0, 0, 60_000)),
        )


def _place(chance: random.Random, records: int) -> int:
    return chance.choice((0, records - 1, chance.randrange(records), chance.randrange(records)))


@dataclass
class Run:
    """A scenario under way."""

    scenario: Scenario
    chance: random.Random = field(init=False)
    coordinator: SimulatedCoordinator = field(init=False)
    queries: list[SparkQuery] = field(init=False)
    due: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    failures: int = 0
    outage_failures: int = 0
    steps: int = 0
    fed: int = 0
    archived_in_outage: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        s = self.scenario
        self.chance = random.Random(s.seed + 1)
        self.coordinator = SimulatedCoordinator(
            records=s.records,
            partitions=s.partitions,
            **{"share.delivery.count.limit": str(s.limit), "share.acquire.mode": s.mode},
        )
        self.queries = []
        for index in range(s.queries):
            query = SparkQuery(
                self.coordinator,
                f"q{index + 1}",
                self.can_process,
                self.chance,
                max_records=s.max_records,
                available_now=s.available_now,
                doubled=0.05,
            )
            query.deaths, query.deaths_left = 0.02, s.deaths
            self.queries.append(query)
            self.due[query.name] = self.coordinator.now_ms + index * self.chance.randint(0, 1_000)

    @property
    def in_outage(self) -> bool:
        s = self.scenario
        if s.outage_after_batches is None or self.batches < s.outage_after_batches:
            return False
        return self.outage_failures < s.outage_restarts

    def can_process(self, query: SparkQuery, taken: PlanReply) -> bool:
        held = [(p.partition, r.first, r.last) for p in taken.plan.partitions for r in p.ranges]
        if held and self.in_outage:
            self.outage_failures += 1
            return False
        bad = any(p == partition and f <= offset <= last for p, f, last in held for partition, offset in self.poison)
        return not bad

    @property
    def poison(self) -> tuple[Record, ...]:
        return self.scenario.poison

    # --- the clock

    def turn(self) -> None:
        """Runs the query that is due next."""
        query = min(self.queries, key=lambda q: (self.due[q.name], q.name))
        self.steps += 1
        self._live_until(self.due[query.name])
        before, outage = len(self.coordinator.archived), self.in_outage
        self._turn_of(query)
        if outage:
            self.archived_in_outage += self.coordinator.archived[before:]

    def _live_until(self, until_ms: int) -> None:
        """Time goes by: the living say that they live, sessions of the others end."""
        while self.coordinator.now_ms < until_ms:
            self.coordinator.now_ms = min(until_ms, self.coordinator.now_ms + HEARTBEAT_MS)
            for each in self.queries:
                each.heartbeat()
            self.coordinator.expire()

    def _turn_of(self, query: SparkQuery) -> None:
        now_ms = self.coordinator.now_ms
        try:
            if not query.alive:
                query.start()
            if query.step():
                self.batches += 1
                self.due[query.name] = now_ms + BATCH_MS + self.chance.choice((0, self.scenario.trigger_ms))
            elif self.scenario.available_now:
                query.die()
                self.due[query.name] = now_ms + self.chance.randint(*self.scenario.restart_ms)
            else:
                self.due[query.name] = now_ms + 1_000
        except ProcessDied:
            query.die()
            self.failures += 1
            self.due[query.name] = now_ms + self.chance.randint(*self.scenario.restart_ms)
            if self.scenario.coordinator_dies:
                self.coordinator.crash()

    # --- the end

    def good(self) -> int:
        return sum(self.coordinator.ends.values()) - len(self.poison)

    def good_done(self) -> bool:
        return len(self.coordinator.accepted) >= self.good()

    def all_done(self) -> bool:
        return self.good_done() and len(self.coordinator.archived) >= len(self.poison)

    def until(self, done: str, most_failures: int) -> None:
        """Turn by turn until it is so."""
        most = self.failures + most_failures
        while not getattr(self, done)():
            self.turn()
            assert self.failures <= most, f"{self.failures} restarts, and {done} is not so: {self.report()}"
            assert self.steps < 200_000, f"no end: {self.report()}"
            self.check()

    def check(self) -> None:
        wrong = set(self.coordinator.archived) - set(self.poison)
        assert not wrong, f"archived, and not poison: {sorted(wrong)[:5]}: {self.report()}"

    def feed(self) -> None:
        """Another record comes, in every partition."""
        self.fed += 1
        for partition in self.coordinator.ends:
            self.coordinator.ends[partition] += 1

    def report(self) -> str:
        dumps = [line for p in self.coordinator.ends for line in self.coordinator.dump(p)][:12]
        return f"{self.scenario} failures={self.failures} now={self.coordinator.now_ms} {dumps}"


def play(scenario: Scenario) -> Run:
    """The whole run; AssertionError when it does not end as the design promises."""
    run = Run(scenario)
    run.until("good_done", scenario.outage_restarts + 100 * (1 + len(scenario.poison)) * scenario.queries)
    for _ in range(4 * len(scenario.poison)):
        for _ in range(200):
            if run.all_done():
                break
            run.turn()
            run.check()
        if run.all_done():
            break
        run.feed()
    run.until("all_done", 50 + scenario.outage_restarts)  # the outage may have begun only now
    run.check()
    assert sorted(run.coordinator.archived) == sorted(run.poison), run.report()
    for partition, end in run.coordinator.ends.items():
        assert run.coordinator.partition(partition).start_offset == end, run.report()
    _check_outputs(run)
    return run


def _check_outputs(run: Run) -> None:
    """Every good record is in the output of a (query, batch); in exactly one if no session ended on the way."""
    written: list[Record] = []
    for query in run.queries:
        for ranges in query.outputs.values():
            written += [(p, offset) for p, first, last in ranges for offset in range(first, last + 1)]
    assert len(set(written)) == run.good(), run.report()
    assert not set(written) & set(run.poison), run.report()
    if run.scenario.restart_ms[1] < SESSION_MS and not run.scenario.available_now:
        assert len(written) == len(set(written)), f"written twice: {run.report()}"
