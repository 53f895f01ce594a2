"""Coordinators under the calls of many queries, on the simulated clock, with measured costs of each call.

It is a model of the time and not of the state: a coordinator has one interpreter, which serves one call at a time, and
an event loop for each state partition with a group of its own, which works in rounds. A round decides all that waits,
appends each group's records in a transaction of its own, eight at a time, and answers when the slowest one is durable.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.client.endpoints import in_order
from coordinator.config.resolved import ServerConfig
from coordinator.service.runtime.runtime import MAX_ROUND
from coordinator.service.stores.kafka.kafka_store import MEMORY_ANSWER_S, PARALLEL_APPENDS
from coordinator.state_log.placement import state_partition_of
from tests.simulation.load_costs import ENDS, HEARTBEAT, NEXT, START, UnitCosts
from tests.simulation.simulated_world import World

STATE_PARTITIONS = 50
HEARTBEAT_MS = 5_000.0
SESSION_MS = 45_000.0
REQUESTS_AT_ONCE = ServerConfig.parse().queued_max_requests
RETRY_MS, LONGEST_RETRY_MS = 50.0, 2_000.0
"""A refused call is sent again after a random time of up to the first number, in ms; it doubles up to the second."""
BEFORE, VIEW, DECISION = 0.5, 0.2, 0.3
"""The parts of a call's CPU time: to receive and answer it, to view the group, and to decide. They are not measured:
all of it is time of the same interpreter."""
INTERPRETER, BROKERS, TRANSACTIONS = "a coordinator's CPU", "the brokers' CPU", "a state partition's appends"

Act = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Load:
    """Queries of groups, and when they have a batch. ``trigger_ms`` 0: as soon as the one before is done.
    ``spark_ms``: Spark's own time of a batch, half of it between a plan and its start. ``ends_every_ms``: how often a
    query asks for the logs' ends, for its progress, at most."""

    queries: int = 1_000
    in_a_group: int = 10
    partitions: int = 50
    trigger_ms: float = 1_000.0
    spark_ms: float = 120.0
    ends_every_ms: float = 1_000.0


@dataclass(frozen=True, kw_only=True)
class Machines:
    """``coordinators`` have a machine each, with a core for the interpreter and others beside it; ``broker_cores`` are
    those of all brokers. ``shared_cores``: all of it, and the clients, run on one machine of this number of cores;
    other programs leave ``left`` of their time."""

    coordinators: int = 1
    broker_cores: int = 12
    shared_cores: int = 0
    left: float = 1.0


class Server:
    """A number of places in which jobs run, in the order in which they come. ``left``: the part of the time in which a
    place works."""

    def __init__(self, world: World, places: int, left: float = 1.0) -> None:
        self._world, self.places, self._left = world, places, left
        self._free, self._waiting = places, deque[tuple[float, Act]]()
        self.busy_ms = 0.0

    def run(self, ms: float, then: Act) -> None:
        """Runs a job of ``ms`` milliseconds, and ``then`` when it is done."""
        if self._free:
            self._begin(ms, then)
        else:
            self._waiting.append((ms, then))

    def _begin(self, ms: float, then: Act) -> None:
        self._free -= 1
        self.busy_ms += ms
        self._world.after(ms / self._left, lambda: self._end(then))

    def _end(self, then: Act) -> None:
        self._free += 1
        if self._waiting:
            self._begin(*self._waiting.popleft())
        then()


class Interpreter:
    """Runs one job at a time, on the cores of its machine."""

    def __init__(self, world: World, cores: Server) -> None:
        self._turn, self._cores = Turn(), cores
        self.busy_ms = 0.0

    def run(self, ms: float, then: Act) -> None:
        """Runs a job of ``ms`` milliseconds, and ``then`` when it is done."""

        def begin() -> None:
            self.busy_ms += ms
            self._cores.run(ms, done)

        def done() -> None:
            self._turn.give_back()
            then()

        self._turn.take(begin)


class Turn:
    """A lock, which those that wait get in their order."""

    def __init__(self) -> None:
        self._taken, self._waiting = False, deque[Act]()

    def take(self, then: Act) -> None:
        """Call ``then`` with the lock held, as soon as it is free."""
        if self._taken:
            self._waiting.append(then)
        else:
            self._taken = True
            then()

    def give_back(self) -> None:
        """Pass the lock on."""
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._taken = False


@dataclass(slots=True)
class Group:
    """A group: where it is served, and when it appended last."""

    coordinator: Coordinator
    loop: Loop
    appended_ms: float = -math.inf


@dataclass(slots=True)
class Work:
    """A transaction that waits for its round."""

    group: Group
    python_ms: float
    native_ms: float
    appends: bool
    then: Act


class Loop:
    """The event loop of a state partition. ``appending_ms``: how long its transactions would have taken it without any
    other load at the brokers."""

    def __init__(self, parts: Coordinators, coordinator: Coordinator) -> None:
        self._all, self._coordinator = parts, coordinator
        self._waiting: deque[Work] = deque()
        self._runs = False
        self.appending_ms = 0.0
        self.rounds = 0

    def submit(self, work: Work) -> None:
        """Do the work in the next round."""
        self._waiting.append(work)
        if not self._runs:
            self._begin()

    def _begin(self) -> None:
        self._runs = True
        self.rounds += 1
        round_ = [self._waiting.popleft() for _ in range(min(MAX_ROUND, len(self._waiting)))]
        self._coordinator.interpreter.run(sum(work.python_ms for work in round_), lambda: self._append(round_))

    def _append(self, round_: list[Work]) -> None:
        now_ms = self._all.world.now_ms
        proved_ms = now_ms - 1_000 * MEMORY_ANSWER_S
        native_ms: dict[int, float] = {}
        groups: dict[int, Group] = {}
        for work in round_:
            if work.appends or work.group.appended_ms < proved_ms:
                groups[id(work.group)] = work.group
                native_ms[id(work.group)] = native_ms.get(id(work.group), 0.0) + work.native_ms
        if not groups:
            self._finish(round_)
            return
        left, running, alone_ms = deque(groups.values()), [0], list[float]()

        def begin() -> None:
            running[0] += 1
            group = left.popleft()
            group.appended_ms = now_ms
            alone_ms.append(self._all.transaction(self._coordinator, native_ms[id(group)], ended))

        def ended() -> None:
            running[0] -= 1
            if left:
                begin()
            elif not running[0]:
                self.appending_ms += max(max(alone_ms), sum(alone_ms) / PARALLEL_APPENDS)
                self._finish(round_)

        for _ in range(min(PARALLEL_APPENDS, len(left))):
            begin()

    def _finish(self, round_: list[Work]) -> None:
        for work in round_:
            work.then()
        self._runs = False
        if self._waiting:
            self._begin()


class Coordinator:
    """One process. ``running``: the requests that it handles now; ``refused``: those above its limit."""

    def __init__(self, parts: Coordinators, cores: Server) -> None:
        self._all, self.cores = parts, cores
        self.interpreter = Interpreter(parts.world, cores)
        self.running = self.refused = 0
        self.answered: Counter[str] = Counter()

    def call(self, group: Group, kind: str, then: Act, tries: int = 0) -> None:
        """Handle a call of a query, and answer it with ``then``. A call above the limit is refused and comes again."""
        if self.running >= REQUESTS_AT_ONCE and kind != HEARTBEAT:
            self.refused += 1
            pause_ms = self._all.world.chance.uniform(0, min(LONGEST_RETRY_MS, RETRY_MS * 2**tries))
            self._all.world.after(pause_ms, lambda: self.call(group, kind, then, tries + 1))
            return
        self.running += 1
        cost = self._all.costs.calls[kind]
        python_ms = cost.python_ms + cost.partition_ms * self._all.load.partitions

        def answer() -> None:
            self.running -= 1
            self.answered[kind] += 1
            then()

        def decide() -> None:
            group.loop.submit(Work(group, DECISION * python_ms, cost.native_ms, cost.appends, answer))

        def ask() -> None:
            if cost.asks:
                self._all.ask(decide if cost.appends else answer)
            else:
                decide()

        def look() -> None:
            if kind == HEARTBEAT:
                decide()
            else:
                group.loop.submit(Work(group, VIEW * python_ms, 0.0, False, ask))

        left = DECISION * (kind == ENDS) + VIEW * (kind == HEARTBEAT)
        self.interpreter.run((BEFORE + left) * python_ms, look)


class Query:
    """A query: its batches, its heartbeats, and its questions for the logs' ends. It makes a batch at each trigger, or
    at the next one after the batch before."""

    def __init__(self, parts: Coordinators, group: Group) -> None:
        self._all, self._group, self._world = parts, group, parts.world
        self._call = group.coordinator.call
        self._ends_ms = -parts.load.ends_every_ms

    def begin(self, at_ms: float) -> None:
        """Have the first batch at that time."""
        self._world.at(at_ms, self._batch)
        self._world.at(at_ms + HEARTBEAT_MS, self._beat)

    def _batch(self) -> None:
        parts, load, begun_ms = self._all, self._all.load, self._world.now_ms
        if begun_ms - self._ends_ms >= load.ends_every_ms:
            self._ends_ms = begun_ms
            parts.sent[ENDS] += 1
            self._call(self._group, ENDS, lambda: None)

        def acquired() -> None:
            next_ms = self._world.now_ms - begun_ms
            self._world.after(load.spark_ms / 2, lambda: start(next_ms))

        def start(next_ms: float) -> None:
            sent_ms = self._world.now_ms
            parts.sent[START] += 1
            self._call(self._group, START, lambda: started(next_ms + self._world.now_ms - sent_ms))

        def started(took_ms: float) -> None:
            parts.note_plan(took_ms)
            self._world.after(load.spark_ms / 2, again)

        def again() -> None:
            now_ms = self._world.now_ms
            triggers = math.ceil((now_ms - begun_ms) / load.trigger_ms) if load.trigger_ms else 0
            self._world.at(begun_ms + triggers * load.trigger_ms, self._batch)

        parts.sent[NEXT] += 1
        parts.client(lambda: self._call(self._group, NEXT, acquired))

    def _beat(self) -> None:
        sent_ms = self._world.now_ms

        def heard() -> None:
            took_ms = self._world.now_ms - sent_ms
            self._all.longest_beat_ms = max(self._all.longest_beat_ms, took_ms)
            self._world.at(max(sent_ms + HEARTBEAT_MS, self._world.now_ms), self._beat)

        self._all.sent[HEARTBEAT] += 1
        self._call(self._group, HEARTBEAT, heard)


@dataclass(frozen=True, kw_only=True)
class Carried:
    """The load that coordinators carried. ``plan_ms``: of each batch, its plan's acquisition and start, ascending.
    ``used``: of each resource the share of the time in which the busiest one of its kind was busy."""

    load: Load
    machines: Machines
    seconds: float
    plan_ms: list[float] = field(repr=False)
    calls: int
    refused: int
    used: dict[str, float]
    longest_beat_ms: float

    @property
    def calls_per_s(self) -> float:
        return self.calls / self.seconds

    @property
    def batches_per_s(self) -> float:
        return len(self.plan_ms) / self.seconds

    def quantile_ms(self, part: float) -> float:
        """The latency that this part of the plans had at most; endless if there was none."""
        return self.plan_ms[min(len(self.plan_ms) - 1, int(part * len(self.plan_ms)))] if self.plan_ms else math.inf

    @property
    def bottleneck(self) -> str:
        """The resource that is used most."""
        return max(self.used, key=lambda name: self.used[name])

    @property
    def sessions_end(self) -> bool:
        """Whether a heartbeat took so long that a session may have ended."""
        return self.longest_beat_ms + HEARTBEAT_MS > SESSION_MS


class Coordinators:
    """The coordinators, their brokers and the queries. ``play`` runs it."""

    def __init__(self, load: Load, machines: Machines, costs: UnitCosts | None = None, seed: int = 0) -> None:
        self.world = World(seed)
        self.world.now_ms = 0
        self.load, self.machines, self.costs = load, machines, costs or UnitCosts()
        self._sigma = math.log(self.costs.transaction_p99_ms / self.costs.transaction_ms) / 2.326
        shared = Server(self.world, machines.shared_cores, machines.left) if machines.shared_cores else None
        self.brokers = shared or Server(self.world, machines.broker_cores)
        self._clients = shared
        self.coordinators = [Coordinator(self, shared or Server(self.world, 4)) for _ in range(machines.coordinators)]
        self.loops: dict[tuple[int, int], Loop] = {}
        self.sent: Counter[str] = Counter()
        self.longest_beat_ms = 0.0
        self._plans: list[float] = []
        self._queries = list(self._made())

    def play(self, seconds: float, warm_up_s: float = 3.0) -> Carried:
        """Run it for so long, and count what happens after the first seconds."""
        every_ms = self.load.trigger_ms or 1_000.0
        for query in self._queries:
            query.begin(self.world.chance.uniform(0, every_ms))
        self.world.run_until(1_000 * warm_up_s)
        before = self._totals()
        self._plans.clear()
        self.longest_beat_ms = 0.0
        self.world.run_until(1_000 * (warm_up_s + seconds))
        spent = {key: after - before[key] for key, after in self._totals().items()}
        return Carried(
            load=self.load,
            machines=self.machines,
            seconds=seconds,
            plan_ms=sorted(self._plans),
            calls=int(spent["calls", 0]),
            refused=int(spent["refused", 0]),
            used=self._used(spent, 1_000 * seconds),
            longest_beat_ms=self.longest_beat_ms,
        )

    # --- called by the others

    def transaction(self, coordinator: Coordinator, native_ms: float, then: Act) -> float:
        """Append in a transaction: the brokers' time, librdkafka's beside it, and the latency of both. Returns the
        milliseconds that it takes without other load at the brokers."""
        waits_ms = self.world.chance.lognormvariate(math.log(self.costs.transaction_ms), self._sigma)
        coordinator.cores.run(native_ms, lambda: None)
        at_brokers_ms = self.costs.broker_ms
        waits_ms = max(waits_ms, at_brokers_ms)
        self.brokers.run(at_brokers_ms, lambda: self.world.after(waits_ms - at_brokers_ms, then))
        return waits_ms

    def ask(self, then: Act) -> None:
        """Ask the brokers a question."""
        left_ms = max(0.0, self.costs.ask_ms - self.costs.ask_broker_ms)
        self.brokers.run(self.costs.ask_broker_ms, lambda: self.world.after(left_ms, then))

    def client(self, then: Act) -> None:
        """Take the CPU time of a batch in the query's own process, where that is on the same machine."""
        if self._clients is None:
            then()
        else:
            self._clients.run(self.costs.client_ms, then)

    def note_plan(self, took_ms: float) -> None:
        """Take in that a plan was acquired and started in so long."""
        self._plans.append(took_ms)

    # --- inside

    def _made(self) -> list[Query]:
        groups = []
        for _ in range(-(-self.load.queries // self.load.in_a_group)):
            group_id = f"{self.world.chance.getrandbits(64):016x}"
            _, number = in_order(group_id, [("coordinator", number) for number in range(len(self.coordinators))])[0]
            owner, where = self.coordinators[number], (number, state_partition_of(group_id, STATE_PARTITIONS))
            groups.append(Group(owner, self.loops.setdefault(where, Loop(self, owner))))
        return [Query(self, groups[number // self.load.in_a_group]) for number in range(self.load.queries)]

    def _totals(self) -> dict[tuple[str, int], float]:
        found: dict[tuple[str, int], float] = {
            ("calls", 0): sum(sum(each.answered.values()) for each in self.coordinators),
            ("refused", 0): sum(each.refused for each in self.coordinators),
            (BROKERS, 0): self.brokers.busy_ms / self.brokers.places,
        }
        found |= {(INTERPRETER, n): each.interpreter.busy_ms for n, each in enumerate(self.coordinators)}
        return found | {(TRANSACTIONS, n): loop.appending_ms for n, loop in enumerate(self.loops.values())}

    def _used(self, spent: dict[tuple[str, int], float], whole_ms: float) -> dict[str, float]:
        used: dict[str, float] = {}
        for (what, _), ms in spent.items():
            if what in (BROKERS, INTERPRETER, TRANSACTIONS):
                used[what] = max(used.get(what, 0.0), min(1.0, ms / whole_ms))
        return used
