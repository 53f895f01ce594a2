"""The service's whole life from a seed: members and coordinators that die, a store and a network that fail, then peace.

While there is trouble anything may happen to anybody; what must never happen, the ledger and the witness say at once.
Then the faults stop, and the run has to come to its end: every record accepted or archived, each in an output that
holds it, the log's state the same as the memory's.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator

from coordinator.client.connection import HEALTH_TIMEOUT_S
from coordinator.core.commands.forget import SWEEP_MS
from tests.simulation.administration import begin_administration
from tests.simulation.broker import TOPIC, Broker, Record
from tests.simulation.changes_judge import REJECT, USED_UP
from tests.simulation.faults import LOGS_AT_MOST, RETENTION_MS, SHORTEST_SESSION_MS, configs_of_now
from tests.simulation.host_process import HostProcess
from tests.simulation.host_topics import HostTopics
from tests.simulation.ledger import Ledger
from tests.simulation.memory import check_group, check_rebuilt
from tests.simulation.network import Network
from tests.simulation.opened_sinks import OpenedSinks
from tests.simulation.outputs import check_outputs
from tests.simulation.service_process import ServiceProcess
from tests.simulation.service_query import Checkpoint, QueryOptions, QueryProcess
from tests.simulation.service_scenario import ServiceScenario
from tests.simulation.service_sink import Judge, row, staging
from tests.simulation.session import ANSWER_TIMEOUT_MS, GROUP
from tests.simulation.share_consumer import ConsumerProcess
from tests.simulation.signals import SignallingProcess
from tests.simulation.simulated_coordinator import CoordinatorProcess
from tests.simulation.simulated_store import StateLog
from tests.simulation.simulated_world import Process, World
from tests.simulation.stopped_brokers import StoppedBrokers
from tests.simulation.witness import Witness

HEALTH_TIMEOUT_MS = int(HEALTH_TIMEOUT_S * 1000)
PEACE_MS = 3_600_000
"""A run fails if it takes longer than this many ms after the faults have stopped. A record that is alone on trial for
ten minutes, and that sinks then release up to the limit, takes over half an hour."""
CALM_AFTER_MS = 150_000
"""After this many ms of peace every owner that was gone has been found gone, also with the longest patience."""
PEACEFUL_BATCH_MS = (100, 2_000)


class ServiceRun:
    """A scenario under way."""

    def __init__(self, scenario: ServiceScenario) -> None:
        self.scenario = s = scenario
        self.world = World(s.seed)
        self.peace = False
        self.broker = Broker(s.partitions, s.records)
        self.broker.clock = lambda: self.world.now_ms
        self.network = Network(self.world, lost=s.lost, doubled=s.doubled, late=s.late)
        self.judge = None if s.sinks is None else Judge(s.sinks, modes_change=s.faults.configs)
        self.dead_letters = s.sinks is not None and (s.sinks.dead_letters or s.faults.configs)
        self.ledger = Ledger(self.world, self.broker)
        self.log = StateLog(self.world, self.ledger, fence=s.fence, fault_rate=s.store_faults)
        self.brokers = StoppedBrokers(self.world, self.broker, self.log)
        self.log.slow_ms = s.faults.slow_appends_ms
        self.log.slow_loads_ms = s.faults.slow_loads_ms
        self.topics = HostTopics(
            self.world,
            self.log.hosts,
            lost=s.faults.records_lost,
            doubled=s.faults.records_doubled,
            late=s.faults.records_late,
        )
        self.witness = self.ledger.evidence = Witness(
            self.world,
            self.ledger,
            lock_ms=int(s.configs["share.record.lock.duration.ms"]),
            session_ms=SHORTEST_SESSION_MS if s.faults.configs else int(s.configs["share.session.timeout.ms"]),
            sure_locks=s.fence == "owner",
            steady=bool(s.faults.stalls_ms),
            configs_change=s.faults.configs or bool(s.faults.administration_ms),
        )
        self.ledger.flow.skew_ms = lambda: 0 if self.log.writer is None else self.log.writer.process.skew_ms
        self.coordinators: list[CoordinatorProcess] = []
        self.members: list[Process] = []
        self.checkpoints = [Checkpoint(f"q{index + 1}") for index in range(s.queries)]
        self.put_away: list[tuple[int, Checkpoint]] = []
        """Checkpoints that are not in use, and perhaps never again, each with the index of its query."""
        self.rest_until_ms = 0
        self.deaths: Counter[str] = Counter()
        for host in range(s.faults.hosts):
            self._start_coordinator(host)
        for index in range(s.queries):
            self._start_query(index)
        for index in range(s.consumers):
            self._start_consumer(index, f"c{index + 1}")

    # --- processes

    def _newest(self, host: int = 0) -> CoordinatorProcess:
        return next(c for c in reversed(self.coordinators) if (c.host or 0) == host)

    def find(self, host: int = 0) -> CoordinatorProcess | None:
        """The coordinator that the host's endpoint file names."""
        newest = self._newest(host)
        if newest.stopped and self.scenario.faults.stalls_ms:  # whoever connects finds it silent, and starts another
            self.world.after(HEALTH_TIMEOUT_MS, self._start_coordinator)
            return None
        return newest if newest.alive else None

    def _start_coordinator(self, host: int = 0) -> None:
        before = [c for c in self.coordinators if (c.host or 0) == host]
        if before and before[-1].alive and not before[-1].stopped:
            return
        name = f"coordinator-{len(self.coordinators) + 1}"
        faults = self.scenario.faults
        start: Callable[..., CoordinatorProcess] = ServiceProcess if faults.real_service else CoordinatorProcess
        if faults.hosts > 1:
            start = functools.partial(HostProcess, topics=self.topics)
        started = start(
            self.world,
            name,
            self.log,
            self.broker,
            self.witness,
            snapshot_after=self.scenario.snapshot_after,
            writes_dead_letters=self.dead_letters,
            far_clocks=not faults.signals,
            host=host,
        )
        if self.scenario.sinks is not None and not self.peace:
            started.dead_letters_fail = self.scenario.sinks.dead_letters_fail
        self.world.note(name, "starts")
        started.death_rate = 0.0 if self.peace else self.scenario.coordinator_steps_die
        starts_ms = 3_000 if faults.hosts == 1 else 20_000
        started.on_death = lambda: self._after_death(
            "coordinator",
            lambda: self.world.after(self.world.between(50, starts_ms), lambda: self._start_coordinator(host)),
        )
        self.coordinators.append(started)

    def _after_death(self, kind: str, start_again: Callable[[], None]) -> None:
        self.deaths[kind] += 1
        start_again()

    @property
    def rests(self) -> bool:
        """Whether nobody starts anything now."""
        return self.world.now_ms < self.rest_until_ms and not self.peace

    def _later(self, ms: int, act: Callable[[], None]) -> None:
        """``act`` after that time, and not before the rest is over."""

        def act_unless_rest() -> None:
            if self.rests:
                self.world.at(self.rest_until_ms + self.world.between(0, 20_000), act)
            else:
                act()

        self.world.after(ms, act_unless_rest)

    def _restart_ms(self) -> int:
        return self.world.between(1_000, 10_000) if self.peace else self.world.between(*self.scenario.restart_ms)

    def _configs(self) -> dict[str, str]:
        """The group's, as who starts now has them."""
        changed = configs_of_now(self.world.chance) if self.scenario.faults.configs else {}
        return {**self.scenario.configs, **changed}

    def _start_query(self, index: int) -> None:
        checkpoint, host = self.checkpoints[index], self._any_host()
        others = [m for m in self.members if isinstance(m, QueryProcess) and m.mine is checkpoint and m.alive]
        process = QueryProcess(
            self.world,
            checkpoint,
            self.scenario.query_options[index],
            self.witness,
            self.broker,
            self.network,
            lambda: self.find(host),
            self._configs(),
            self.judge,
            self.scenario.faults,
        )
        process.was_second = bool(others)
        if self.peace:
            process.batch_ms = PEACEFUL_BATCH_MS
        process.death_rate = 0.0 if self.peace else self.scenario.steps_die
        process.stop_rate = 0.0 if self.peace else self.scenario.queries_stop
        process.sink_death_rate = 0.0 if self.peace or self.scenario.sinks is None else self.scenario.sinks.dies
        process.on_death = lambda: self._after_death("query", lambda: self._query_died(process, index))
        process.on_stop = lambda: self._stop(process, 120_000, 60_000)
        self.members.append(process)

    def _any_host(self) -> int:
        return self.world.chance.randrange(self.scenario.faults.hosts) if self.scenario.faults.hosts > 1 else 0

    def _query_died(self, process: QueryProcess, index: int) -> None:
        self.witness.died.add(process.session.member_id)
        if process.mine is self.checkpoints[index] and not self._is_alive(process.mine):
            self._later(self._restart_ms(), lambda: self._start_query_unless_alive(index))

    def _is_alive(self, checkpoint: Checkpoint) -> bool:
        return any(isinstance(m, QueryProcess) and m.mine is checkpoint and m.alive for m in self.members)

    def _start_query_unless_alive(self, index: int) -> None:
        if not self._is_alive(self.checkpoints[index]):
            self._change_checkpoint(index)
            self._start_query(index)

    def _change_checkpoint(self, index: int) -> None:
        """Now and then the query goes on from another one; always where its own one was refused."""
        before = self.checkpoints[index]
        changes = not self.peace and self.world.happens(self.scenario.faults.checkpoints_change)
        if not (before.refused or changes):
            return
        others = [each for of, each in self.put_away if of == index and not (each.refused or self._is_alive(each))]
        another = None
        if others and self.world.happens(0.5):
            another = self.world.chance.choice(others)
            self.put_away.remove((index, another))
        self.checkpoints[index] = another or Checkpoint(f"q{index + 1}.{len(self.put_away)}")
        self.put_away.append((index, before))
        self.world.note(before.query, f"is put away, and {self.checkpoints[index].query} is used")

    def every_checkpoint(self) -> Iterator[tuple[Checkpoint, QueryOptions]]:
        """The checkpoints of all queries, with those that are not used any more."""
        for index, checkpoint in (*enumerate(self.checkpoints), *self.put_away):
            yield checkpoint, self.scenario.query_options[index]

    def _start_consumer(self, index: int, member_id: str) -> None:
        name, host = f"{member_id}-{len(self.members)}", self._any_host()
        process = (SignallingProcess if self.scenario.faults.signals else ConsumerProcess)(
            self.world,
            name,
            member_id,
            self.witness,
            self.broker,
            self.network,
            lambda: self.find(host),
            self._configs(),
            self.scenario.starting_offsets,
        )
        process.gentle = self.peace
        process.death_rate = 0.0 if self.peace else self.scenario.steps_die
        process.on_death = lambda: self._after_death("consumer", lambda: self._consumer_died(index, member_id))
        self.members.append(process)

    def _consumer_died(self, index: int, member_id: str) -> None:
        """The next one has its id, or one of its own."""
        if member_id in self.witness.left or self.world.happens(0.5):
            member_id = f"c{index + 1}.{len(self.members)}"
        self._later(self._restart_ms(), lambda: self._start_consumer(index, member_id))

    # --- trouble

    def _now_and_then(self, mean_ms: int, act: Callable[[], None]) -> None:
        """``act`` at random times, until there is peace, and rarely while everybody rests."""

        def again() -> None:
            if not self.peace:
                if not self.rests or self.world.happens(0.02):
                    act()
                self._now_and_then(mean_ms, act)

        self.world.after(1 + int(self.world.chance.expovariate(1 / mean_ms)), again)

    def _begin_trouble(self) -> None:
        s = self.scenario
        self._now_and_then(s.member_dies_ms, self._kill_a_member)
        self._now_and_then(s.member_stops_ms, self._stop_a_member)
        self._now_and_then(s.coordinator_dies_ms, self._kill_a_coordinator)
        self._now_and_then(s.coordinator_stops_ms, self._stop_the_coordinator)
        self._now_and_then(s.log_moves_ms, self._move_a_log)
        self._now_and_then(10_000, self._produce)
        if s.sinks is not None:
            self._now_and_then(20_000, self._stage_from_before)
        if s.faults.stalls_ms:
            self._now_and_then(s.faults.stalls_ms, self._stall_the_coordinator)
        if s.faults.brokers_stop:
            self.brokers.stop_from_now_on(s.faults.brokers_stop, self.witness.session_ms)
        if s.faults.cuts_ms:
            self._now_and_then(s.faults.cuts_ms, self._cut_a_host_off)
        if s.faults.topics_ms:
            self._now_and_then(s.faults.topics_ms, self._change_topics)
        if s.faults.topics_at_steps:
            self.world.between_steps = self._change_topics_now_and_then
        if s.faults.removed_at_steps:
            self.world.between_steps = self._remove_now_and_then
        if s.faults.sinks_at_steps:
            self.sinks = OpenedSinks(self.network, lambda: None if self.peace else self.find(), s.faults.sinks_at_steps)
            self.world.between_steps = self.sinks.open_now_and_then
        if s.faults.administration_ms:
            begin_administration(self)
        for _ in range(s.poison):
            self.world.after(self.world.between(0, s.trouble_ms // 2), self._poison)

    def _kill_a_member(self) -> None:
        if alive := [m for m in self.members if m.alive]:
            self.world.chance.choice(alive).die("killed")

    def _stop_a_member(self) -> None:
        if alive := [m for m in self.members if m.alive and not m.stopped]:
            self._stop(self.world.chance.choice(alive), 90_000, 20_000)

    def _stop(self, member: Process, most_ms: int, successor_ms: int) -> None:
        """As by SIGSTOP; for a query, its scheduler may think that it is gone and start another process."""
        member.stop_for(self.world.between(1_000, most_ms))
        if isinstance(member, QueryProcess) and member.mine in self.checkpoints and self.world.happens(0.7):
            index = self.checkpoints.index(member.mine)
            self._later(self.world.between(0, successor_ms), lambda: self._start_a_second(index, member.mine))

    def _start_a_second(self, index: int, checkpoint: Checkpoint) -> None:
        if not self.peace and self.checkpoints[index] is checkpoint:
            self._start_query(index)

    def _rest(self) -> None:
        """Everybody is gone, or stands still, for a while that may be longer than members are kept."""
        longest_ms = RETENTION_MS * 9 // 8 + 2 * SWEEP_MS
        rest_ms = self.world.chance.choice((600_000, RETENTION_MS, longest_ms, longest_ms, 2 * longest_ms))
        self.rest_until_ms = self.world.now_ms + rest_ms
        self.world.note("world", f"rests for {rest_ms} ms")
        for member in [m for m in self.members if m.alive]:
            if self.world.happens(0.3):
                member.stop_for(rest_ms + self.world.between(0, 20_000))
            else:
                member.die("rests")
        self.world.run_until(self.rest_until_ms)

    def _kill_a_coordinator(self) -> None:
        if alive := [c for c in self.coordinators if c.alive]:
            self.world.chance.choice(alive).die("killed")

    def _stop_the_coordinator(self) -> None:
        """Another one takes its place; when it goes on, it does not know."""
        newest = self.coordinators[-1]
        if newest.alive and not newest.stopped:
            newest.stop_for(self.world.between(500, 40_000))
            self.world.after(self.world.between(0, 10_000), lambda: self._start_coordinator(newest.host or 0))

    def _cut_a_host_off(self) -> None:
        """Any coordinator reads nothing of other hosts, or can write nothing to them, or stands still, or leaves."""
        alive = [c for c in self.coordinators if c.alive and not c.stopped]
        if not alive:
            return
        cut, how = self.world.chance.choice(alive), self.world.chance.choice(("deaf", "mute", "stops", "leaves"))
        ms = self.world.between(1_000, 40_000)
        if how == "stops":
            cut.stop_for(ms)
        elif how == "leaves":
            assert isinstance(cut, HostProcess)
            cut.leave()
        else:
            self.world.note(cut.name, f"is {how} for {ms} ms")
            (self.topics.deaf if how == "deaf" else self.topics.mute)[cut.name] = self.world.now_ms + ms

    def _stall_the_coordinator(self) -> None:
        """It stands still, and goes on, sooner or very late. Meanwhile another program may look for a coordinator."""
        newest = self.coordinators[-1]
        if newest.alive and not newest.stopped:
            sessions = 3 if self.world.happens(0.7) else 30
            stopped_ms = self.world.between(500, sessions * self.witness.session_ms)
            newest.stop_for(stopped_ms)
            looks_ms = self.world.between(1, 1_000)
            self.world.after(stopped_ms + looks_ms, lambda: self._leave_if_replaced(newest, looks_ms))
            if self.world.happens(0.5):
                self.world.after(self.world.between(0, 20_000), self.find)

    def _leave_if_replaced(self, coordinator: CoordinatorProcess, looks_ms: int) -> None:
        """A coordinator that goes on looks whether the endpoint file names another one by now."""
        if coordinator.stopped:
            self.world.after(looks_ms, lambda: self._leave_if_replaced(coordinator, looks_ms))
        elif coordinator.alive and self._newest(coordinator.host or 0) is not coordinator:
            coordinator.die("another one has taken its place")

    def _move_a_log(self) -> None:
        log = self._any_log()
        offset = self.broker.starts[log] + self.world.between(1, 12)
        self.world.note("broker", f"deletes log {log} up to {offset}")
        self.broker.delete_up_to(log, offset)

    def _produce(self) -> None:
        if self.brokers.are_stopped:
            return
        if self.world.happens(0.05) and len(self.broker.logs()) < 4 and TOPIC in self.broker.topics:
            self.broker.add_partition(now_ms=self.world.now_ms)
        self.broker.append(self._any_log(), self.world.between(1, 15))

    def _change_topics(self) -> None:
        """A topic of the pattern comes, or one goes, for good or until it is created anew."""
        if not self.broker.topics:
            return
        names = list(self.broker.topics)
        name = self.world.chance.choice(names)
        if len(names) < 3 and self.world.happens(0.5):
            self._create_topic(f"{TOPIC}-{len(self.broker.names)}")
        elif len(names) > 1 or self.world.happens(0.5):
            self.world.note("broker", f"deletes topic {name}: {self.broker.topics[name].topic_id}")
            self.broker.delete(name)
            if self.world.happens(0.7) or not self.broker.topics:
                self.world.after(self.world.chance.choice((0, 100, 30_000)), lambda: self._create_topic(name))

    def _change_topics_now_and_then(self) -> None:
        """Before any step: a topic gets another partition, or comes, or goes."""
        if self.peace or self.rests or not self.world.happens(self.scenario.faults.topics_at_steps):
            return
        if self.world.happens(0.2):
            self._change_topics()
        elif self.broker.topics and len(self.broker.logs()) < LOGS_AT_MOST:
            name = self.world.chance.choice(list(self.broker.topics))
            log = self.broker.add_partition(name, self.world.between(0, 10), self.world.now_ms)
            self.world.note("broker", f"adds log {log} to topic {name}")

    def _remove_now_and_then(self) -> None:
        """Before any step: Kafka removes the oldest records of a log, mostly of what is being worked on."""
        if not self.peace and self.broker.topics and self.world.happens(self.scenario.faults.removed_at_steps):
            self._move_a_log()

    def _create_topic(self, name: str) -> None:
        if name not in self.broker.topics:
            topic = self.broker.create(name, self.world.between(1, 2), self.world.between(0, 20), self.world.now_ms)
            self.world.note("broker", f"creates topic {name}: {topic.topic_id}")

    def _stage_from_before(self) -> None:
        """A sink that was opened in an earlier life of the group rejects what was delivered then."""
        coordinator = self.find()
        if coordinator is not None and 0 not in self.broker.gone:
            said = {(0, offset, 1): row((0, offset, 1), REJECT) for offset in range(self.broker.ends[0])}
            rows = staging("before", "", said)
            self.network.ask(coordinator, rows, ANSWER_TIMEOUT_MS)

    def _any_log(self) -> int:
        if not self.broker.topics:
            self._create_topic(TOPIC)
        return self.world.chance.choice(self.broker.logs())

    def _poison(self) -> None:
        """A record comes that no query can process."""
        log = self._any_log()
        self.broker.poison.add((log, self.broker.ends[log]))
        self.broker.append(log, 1)

    # --- peace

    def _make_peace(self) -> None:
        self.peace = True
        self.world.note("world", "peace")
        if self.judge is not None:
            self.judge.peace = self.scenario.faults.configs
        self.network.heal()
        self.log.fault_rate = 0.0
        self.brokers.go_on()
        self.topics.heal()
        self.world.after(CALM_AFTER_MS, lambda: setattr(self.log.hosts, "is_calm", True))
        newest = [self._newest(host) for host in range(self.scenario.faults.hosts)]
        for coordinator in self.coordinators:
            if coordinator not in newest:
                coordinator.die("peace")
        for last in newest:
            last.death_rate = last.dead_letters_fail = 0.0
            if last.stopped:
                last.die("peace")
        for member in self.members:
            if isinstance(member, QueryProcess):
                member.batch_ms = PEACEFUL_BATCH_MS
                member.stop_rate = member.sink_death_rate = 0.0
            if isinstance(member, QueryProcess | ConsumerProcess):
                member.death_rate = 0.0
            if isinstance(member, ConsumerProcess):
                member.gentle = True
            member.stopped_until_ms = min(member.stopped_until_ms, self.world.now_ms + 1_000)
        self._feed()

    def _feed(self) -> None:
        """Appends new records now and then, since quarantined records wait until others complete."""
        if not self.is_done():
            for log in self.broker.logs():
                self.broker.append(log, 1)
        self.world.after(60_000, self._feed)

    def records(self) -> Iterator[Record]:
        """Those that there are, and, of logs that are gone, those that the group knew."""
        yield from (record for record in self.ledger.runs if record[0] in self.broker.gone)
        for log, end in self.broker.ends.items():
            if log not in self.broker.gone:
                yield from ((log, offset) for offset in range(end))

    def is_done(self) -> bool:
        return all(self.ledger.is_done(record) for record in self.records())

    # --- the whole

    def play(self) -> None:
        s = self.scenario
        self._begin_trouble()
        for _ in range(s.faults.rests):
            self.world.run_until(self.world.now_ms + s.trouble_ms // (s.faults.rests + 1))
            self._rest()
        self.world.run_until(self.world.now_ms + s.trouble_ms // (s.faults.rests + 1))
        self._make_peace()
        until_ms = self.world.now_ms + PEACE_MS
        while not self.is_done():
            if self.world.now_ms >= until_ms:
                stuck = [record for record in self.records() if not self.ledger.is_done(record)]
                self.world.fail(f"no end: {[(r, self.ledger.runs.get(r)) for r in stuck[:5]]} and so on: {len(stuck)}")
            self.world.run_until(self.world.now_ms + 5_000)
        self._check_memory()
        self._check_tries()
        check_outputs(self)

    def _check_tries(self) -> None:
        """An outage of the service behind the sinks uses up no record's tries."""
        used_up = [record for record, why in self.ledger.archived.items() if why == USED_UP]
        if self.scenario.faults.outage_ms and used_up:
            self.world.fail(f"{len(used_up)} records used up their tries in an outage: {sorted(used_up)[:5]}")

    def _check_memory(self) -> None:
        alive = [coordinator for coordinator in self.coordinators if coordinator.alive]
        owner = next((coordinator for coordinator in alive if coordinator.serves), self._newest())
        group = owner.look_in(GROUP)
        # What a dead one had decided may never have been written; and of two that take turns, one finds out at its next
        # append what the other has written.
        if group is not None and owner.serves and self.scenario.fence == "owner":
            check_group(self.ledger, group)
            check_rebuilt(self.ledger, group, self.log.logs[GROUP])
