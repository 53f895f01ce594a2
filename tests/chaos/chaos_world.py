"""The whole: a broker, three coordinators, four members in two groups, a producer, and the killer; then peace, and the
reckoning. One of the groups is in order; the members of both defer some records.

One member of each group is left alone: whatever happens to coordinators, broker and the other member, it loses no lock.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer

from coordinator.client.client import CoordinatorClient
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import DescribeGroup, GroupDescription
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from coordinator.state_log.owner_record import PATIENCE_S
from tests.chaos.audit import Audit, acked, audited, delivered, doubled, journal, out_of_order
from tests.chaos.member_program import FAILED_BY_NAME, Settings
from tests.chaos.processes import Victim, coordinator, member
from tests.support.kafka_broker import KafkaBroker
from tests.support.ports import free_ports, listens
from tests.support.standalone import TOKEN, write_properties, write_secret
from tests.support.state_topics import state_topic
from tests.support.waiting import wait_until

COORDINATORS, PARTITIONS, STATE_PARTITIONS = 3, 4, 8
GROUPS = {"billing": ("b1", "b2"), "shipping": ("s1", "s2")}
LEFT_ALONE = frozenset({"b1", "s1"})
TOPIC = "orders"
PATIENCE_MS = int(1_000 * PATIENCE_S)
MEMBER_SESSION_MS = 10_000
BROKER_DIES_EVERY_S = 300.0
BROKER_STOPS = 0.1
"""The share of faults that stop the broker."""
STOPS_LAST = (0.5, 3.0)
"""The stopped process stands still for a random time between these, in times of patience or sessions."""
RECORDS_PER_S = 200
DRAIN_S = 240.0
STATE = {
    "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
    "share.coordinator.state.topic.prune.interval.ms": "86400000",  # the audit reads all of it
}
IN_ORDER = "shipping"
GROUP_CONFIGS = {"share.heartbeat.interval.ms": "1000", "share.delivery.count.limit": "10"}


@dataclass
class Reckoning:
    """The result of a run. ``takeovers_ms``: from a coordinator's death, or stop, to the first answer of another;
    ``several_harmed_ms``: where another coordinator was harmed at about the same time."""

    seed: int
    produced: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    audits: dict[str, Audit] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    archived: dict[str, int] = field(default_factory=dict)
    takeovers_ms: list[float] = field(default_factory=list)
    several_harmed_ms: list[float] = field(default_factory=list)
    twice: dict[str, int] = field(default_factory=dict)
    failed_by_name: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        appends = sum(audit.appends for audit in self.audits.values())
        owners = sum(len(audit.owners) for audit in self.audits.values())
        longest_ms = max(self.takeovers_ms, default=0)
        p95 = (
            statistics.quantiles(self.takeovers_ms, n=20, method="inclusive")[-1]
            if len(self.takeovers_ms) > 1
            else longest_ms
        )
        parts = [
            f"seed {self.seed}: {self.produced} records, {self.kills}",
            f"{appends} appends, {owners} takings",
            f"members failed by name {self.failed_by_name} times",
            f"acknowledged plans {self.acked}, archived {self.archived}",
            f"deferred { ({group: len(audit.deferred) for group, audit in self.audits.items()}) }",
            f"written twice after a lost lock {self.twice}",
            f"takeovers {len(self.takeovers_ms)}, p95 {p95 / 1000:.1f} s, longest {longest_ms / 1000:.1f} s",
            f"with several coordinators harmed {len(self.several_harmed_ms)}, "
            f"longest {max(self.several_harmed_ms, default=0) / 1000:.1f} s",
            f"problems: {self.problems or 'none'}",
        ]
        return "; ".join(parts)


class World:
    """Made, run, drained, reckoned with; `close` ends all that it started."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        broker: KafkaBroker,
        *,
        harm_s: tuple[float, float] = (2.0, 6.0),
        member_session_ms: int = MEMBER_SESSION_MS,
    ) -> None:
        """Returns when all members have joined. ``harm_s``: seconds between two faults."""
        self.folder, self.seed, self.broker, self._harm_s = folder, seed, broker, harm_s
        self._group_configs = {**GROUP_CONFIGS, "share.session.timeout.ms": str(member_session_ms)}
        self._broker_is_stopped = False
        self.chance = random.Random(seed)
        self.result = Reckoning(seed=seed)
        self.events: list[tuple[int, str, str]] = []
        broker.create_topic(TOPIC, PARTITIONS)
        self.token = write_secret(folder / "token", TOKEN)
        self.victims: list[Victim] = []
        try:
            self._start_coordinators()
            self.members = [self._member(group, name) for group, names in GROUPS.items() for name in names]
            with self._client() as client:
                for group, names in GROUPS.items():
                    has_all = lambda group=group, names=names: active_members(client, group) == set(names)  # noqa: E731
                    wait_until(has_all, timeout_s=DRAIN_S, what=f"all members of {group} have joined")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for victim in self.victims:
            victim.kill()

    # --- its life

    def run(self, seconds: float) -> None:
        """Chaos for so long. The broker dies in the middle of it, and of each five minutes."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 5, "log_level": 0})
        began = time.monotonic()
        broker_at = began + min(seconds, BROKER_DIES_EVERY_S) * self.chance.uniform(0.3, 0.7)
        next_at = began + 5.0
        resume: list[tuple[float, Victim | None]] = []
        while (now := time.monotonic()) < began + seconds:
            self._produce(producer, int((now - began) * RECORDS_PER_S))
            for at, victim in [each for each in resume if each[0] <= now]:
                resume.remove((at, victim))
                self._resume(victim)
            if now >= next_at:
                next_at = now + self.chance.uniform(*self._harm_s)
                self._harm(resume)
            if now >= broker_at and not self._broker_is_stopped:
                broker_at += BROKER_DIES_EVERY_S
                self._note("kill", "broker")
                self.broker.kill()
                self.broker.start()
            for victim in self.victims:
                if not victim.lives and self.chance.random() < 0.02:
                    self._note("start", victim.name)
                    victim.revive()
            producer.poll(0.05)
        for _, victim in resume:
            self._resume(victim)
        for victim in self.victims:
            victim.revive()
        assert not producer.flush(60), "the producer could not get rid of its records"

    def drain(self) -> None:
        """Peace: until every group has no lag; then the members end."""
        with self._client() as client:
            for group in GROUPS:
                wait_until(
                    lambda group=group: self._is_drained(client, group), timeout_s=DRAIN_S, what=f"{group} drained"
                )
            (self.folder / "stop").touch()
            for each in self.members:
                if (status := each.wait(DRAIN_S)) not in (0, FAILED_BY_NAME):
                    self.result.problems.append(f"{each.name} ended with {status}: {each.said()}")
            for group in GROUPS:
                described = client.call(DescribeGroup(group_id=group))
                self.result.archived[group] = sum(p.archived_total for p in described.partitions)

    def reckon(self) -> Reckoning:
        """Every record accepted or archived; nothing that was answered forgotten; never two holders."""
        result = self.result
        ends = self._cluster().offsets([(TOPIC, p) for p in range(PARTITIONS)], -1)
        everything = {(p, offset) for (_, p), end in ends.items() for offset in range(end)}
        result.produced = len(everything)
        for group, names in GROUPS.items():
            audit = result.audits[group] = audited(state_topic(self.broker, STATE_TOPIC, STATE_PARTITIONS), group)
            journals = [journal(self.folder / f"{name}.jsonl") for name in names]
            result.problems += [f"{group}: {problem}" for problem in audit.problems[:10]]
            answered = set().union(*map(acked, journals))
            result.acked[group] = len(answered)
            if forgotten := answered - audit.completed:
                result.problems.append(f"{group}: answered and forgotten: {sorted(forgotten)[:10]}")
            result.twice[group], unexcused = doubled(audit, itertools.chain(*journals))
            result.problems += [f"{group}: {problem}" for problem in unexcused[:10]]
            if audit.released:
                result.problems.append(f"{group}: nobody releases a record: {sorted(audit.released)[:10]}")
            if group == IN_ORDER:
                late = out_of_order(itertools.chain(*journals))
                result.problems += [f"{group}: {problem}" for problem in late[:10]]
            for name in LEFT_ALONE.intersection(names):
                lost = sorted(each for each in audit.lost_locks if audit.holders[each[2]] == name)
                if lost:
                    result.problems.append(f"{name} lived all the time, and lost its locks of {lost[:10]}")
            missing = everything - set().union(*map(delivered, journals)) - audit.archived
            if missing:
                result.problems.append(f"{group}: {len(missing)} records lost: {sorted(missing)[:10]}")
            self._measure_takeovers(journals)
        for victim in self.victims:
            result.failed_by_name += sum(status == FAILED_BY_NAME for status, _ in victim.deaths)
            if victim.name in LEFT_ALONE and any(status for status, _ in victim.deaths):
                result.problems.append(f"{victim.name}, left alone, ended by itself: {victim.deaths}")
            if strange := [death for death in victim.deaths if not self._is_allowed(victim, *death)]:
                result.problems.append(f"{victim.name} ended by itself with {strange}: {victim.said()}")
        return result

    # --- inside

    def _start_coordinators(self) -> None:
        ports = free_ports(COORDINATORS)
        self.endpoints = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.configs = {"share.coordinator.token.file": str(self.token)}
        for number, port in enumerate(ports, 1):
            self._coordinator(f"c{number}", port)
        # A member gives up where nothing listens, and the machine may be busy.
        wait_until(lambda: all(map(listens, ports)), what="the coordinators listen")

    def _client(self) -> contextlib.AbstractContextManager[CoordinatorClient]:
        return contextlib.closing(
            CoordinatorClient.connect(
                self.broker.bootstrap, endpoint=self.endpoints, configs=self.configs, retry_timeout_s=DRAIN_S
            )
        )

    def _coordinator(self, name: str, port: int) -> Victim:
        config = write_properties(
            self.folder / f"{name}.properties",
            {
                "bootstrap.servers": self.broker.bootstrap,
                "share.coordinator.listener": f"127.0.0.1:{port}",
                "share.coordinator.token.file": self.token,
                **STATE,
            },
        )
        return self._victim(coordinator(name, config, self.folder / f"{name}.log"))

    def _member(self, group: str, name: str, **more: str) -> Victim:
        settings = Settings(
            bootstrap=self.broker.bootstrap,
            endpoints=self.endpoints,
            coordinator=self.configs,
            group=group,
            member=name,
            topic=TOPIC,
            folder=str(self.folder),
            configs=self._group_configs | ({"share.order": "partition"} if group == IN_ORDER else {}),
        )
        arguments = msgspec.json.encode(settings).decode()
        return self._victim(member(name, arguments, self.folder / f"{name}.log", **more))

    def _victim(self, victim: Victim) -> Victim:
        self.victims.append(victim)
        return victim

    def _harm(self, resume: list[tuple[float, Victim | None]]) -> None:
        if self.chance.random() < BROKER_STOPS and not self._broker_is_stopped:
            self._note("stop", "broker")
            self.broker.pause()
            self._broker_is_stopped = True
            resume.append((time.monotonic() + self._stop_s(PATIENCE_MS), None))
            return
        running = [victim for victim in self.victims if victim.runs and victim.name not in LEFT_ALONE]
        if not running:
            return
        victim = self.chance.choice(running)
        if self.chance.random() < 0.5:
            self._note("kill", victim.name)
            victim.kill()
        else:
            self._note("stop", victim.name)
            victim.pause()
            session_ms = MEMBER_SESSION_MS if victim in self.members else PATIENCE_MS
            resume.append((time.monotonic() + self._stop_s(session_ms), victim))

    def _stop_s(self, session_ms: int) -> float:
        return self.chance.uniform(*STOPS_LAST) * session_ms / 1000

    def _resume(self, victim: Victim | None) -> None:
        """Resumes the victim; ``None`` is the broker."""
        if victim is None:
            self._note("resume", "broker")
            self.broker.resume()
            self._broker_is_stopped = False
        elif victim.lives:
            self._note("resume", victim.name)
            victim.resume()

    def _note(self, what: str, name: str) -> None:
        self.events.append((time.time_ns() // 1_000_000, what, name))
        if what in ("kill", "stop"):
            kind = "broker" if name == "broker" else "coordinator" if name.startswith("c") else "member"
            self.result.kills[f"{kind} {what}"] = self.result.kills.get(f"{kind} {what}", 0) + 1

    def _produce(self, producer: Producer, until: int) -> None:
        for number in range(self.result.produced, until):
            try:
                producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
            except BufferError:
                return
            self.result.produced = number + 1

    def _is_allowed(self, victim: Victim, status: int, last_words: str) -> bool:
        """A member may fail by name; a coordinator may, by this one, that begins while the broker is away."""
        if victim in self.members:
            return status in (0, FAILED_BY_NAME)
        return status == 0 or last_words.startswith("sharegroup: BrokerNotReachable")

    def _is_drained(self, client: CoordinatorClient, group: str) -> bool:
        for each in self.members:
            each.revive()  # one that was fenced by its own successor, or had ended
        try:
            described = client.call(DescribeGroup(group_id=group))
        except ShareGroupError:
            return False
        assert isinstance(described, GroupDescription)
        return all(p.lag == 0 for p in described.partitions) and len(described.partitions) == PARTITIONS

    def _measure_takeovers(self, journals: list[list[dict[str, Any]]]) -> None:
        """Measures the time from the harm to a coordinator to the group's next answer, where none came within a second
        (the harmed one was the owner) and the broker was there. A harm with another one shortly before or meanwhile
        counts apart."""
        answers = sorted(line["at_ms"] for lines in journals for line in lines if line["what"] in ("done", "acked"))
        harmed = [at_ms for at_ms, what, name in self.events if what in ("kill", "stop") and name.startswith("c")]
        for before, after in itertools.pairwise(answers):
            inside = [at_ms for at_ms in harmed if before - 1_000 <= at_ms <= after]
            outage = any(name == "broker" and before <= at_ms <= after for at_ms, _, name in self.events)
            if inside and after - before > 1_000 and not outage:
                near = [at_ms for at_ms in harmed if inside[0] - PATIENCE_MS <= at_ms <= after]
                found = self.result.takeovers_ms if len(near) == 1 else self.result.several_harmed_ms
                found.append(after - inside[0])

    def _cluster(self) -> KafkaCluster:
        return KafkaCluster(self.broker.bootstrap, {}, 15_000)


def active_members(client: CoordinatorClient, group: str) -> set[str]:
    """The members of the group that have a session."""
    try:
        described = client.call(DescribeGroup(group_id=group))
    except ShareGroupError:  # nobody has joined yet
        return set()
    return {member.member_id for member in described.members if member.active}
