"""The same with hosts that have nothing in common but the brokers, and coordinators on demand: beside the members, two
ShareConsumers with explicit acknowledgements, whole hosts that vanish, and topics between the hosts that are deleted.

A host is a runtime folder. On the first one live the members that are left alone; its coordinator is harmed as others.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import msgspec
import psutil

from coordinator.client.client import CoordinatorClient
from coordinator.protocol.host_records import ADMIN_REQUESTS, REPLIES, REQUESTS
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from tests.chaos.audit import audited
from tests.chaos.chaos_world import DRAIN_S, MEMBER_SESSION_MS, STATE, STATE_PARTITIONS, TOPIC, Reckoning, World
from tests.chaos.processes import Victim, consumer
from tests.support.coordinator_process import coordinator_pids
from tests.support.kafka_broker import KafkaBroker
from tests.support.state_topics import state_topic

RUNTIME = "SHAREGROUP_RUNTIME_DIR"
HOSTS = {"h1": ("b1", "s1"), "h2": ("b2", "k2"), "h3": ("s2", "k3")}
"""The members of each host; those of ``CALLS`` are ShareConsumers."""
CALLS, CALLERS = "calls", ("k2", "k3")
CHANCES = {"one": 0.55, "topics": 0.05, "coordinators": 0.1, "host": 0.3}
"""The shares of faults: of one process, or the broker; the deletion of the topics; SIGKILL of all coordinators at once;
and a whole host."""


class OnDemand:
    """The coordinator of a host, as something to harm. Members start it again."""

    def __init__(self, name: str, runtime: Path) -> None:
        self.name, self._runtime = name, runtime
        self.deaths: list[tuple[int, str]] = []
        self._stopped: set[int] = set()

    def __repr__(self) -> str:
        return f"<OnDemand {self.name} {coordinator_pids(self._runtime)} stopped={self._stopped}>"

    @property
    def runs(self) -> bool:
        return bool(coordinator_pids(self._runtime) - self._stopped)

    lives = True

    def kill(self) -> None:
        """Sends SIGKILL to it, and to those that stand still."""
        self._signal(signal.SIGKILL, coordinator_pids(self._runtime) | self._stopped)
        self._stopped.clear()

    def pause(self) -> None:
        """Sends SIGSTOP to it."""
        pids = coordinator_pids(self._runtime)
        self._signal(signal.SIGSTOP, pids)
        self._stopped |= pids

    def resume(self) -> None:
        """Sends SIGCONT to those that stand still; members may have started another one meanwhile."""
        self._signal(signal.SIGCONT, self._stopped)
        self._stopped.clear()

    def revive(self) -> None:
        """Does nothing: members do it."""

    def said(self) -> str:
        """The end of its log."""
        return "".join(log.read_text()[-3_000:] for log in self._runtime.glob("coordinator-*.log"))

    def _signal(self, number: int, pids: set[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class HostsWorld(World):
    """Made, run, drained, reckoned with, as a World."""

    def __init__(self, folder: Path, seed: int, broker: KafkaBroker, *, harm_s: tuple[float, float]) -> None:
        self._runtimes = {host: folder / host for host in (*HOSTS, "observer")}
        super().__init__(folder, seed, broker, harm_s=harm_s, member_session_ms=3 * MEMBER_SESSION_MS)
        self.consumers = [self._consumer(name) for name in CALLERS]

    def close(self) -> None:
        super().close()
        mine = {str(path) for path in self._runtimes.values()}
        for process in psutil.process_iter():  # coordinators that were replaced stand in no endpoint file
            with contextlib.suppress(psutil.Error):
                if process.environ().get(RUNTIME) in mine and process.pid != os.getpid():
                    process.kill()

    def drain(self) -> None:
        super().drain()
        for each in self.consumers:
            each.tell()
            if (status := each.wait(DRAIN_S)) != 0:
                self.result.problems.append(f"{each.name} ended with {status}: {each.said()}")

    def reckon(self) -> Reckoning:
        """As in World; and each record came to a consumer, and was accepted once: one was told so, or none."""
        result = super().reckon()
        audit = result.audits[CALLS] = audited(state_topic(self.broker, STATE_TOPIC, STATE_PARTITIONS), CALLS)
        result.problems += [f"{CALLS}: {problem}" for problem in audit.problems[:10]]
        said = [line.split() for name in CALLERS for line in (self.folder / f"{name}.log").read_text().splitlines()]
        accepted = Counter(tuple(line[1:3]) for line in said if len(line) == 4 and line[0] == "accepted")
        if twice := [where for where, count in accepted.items() if count > 1]:
            result.problems.append(f"{CALLS}: accepted twice: {twice[:10]}")
        got = {tuple(line[1:3]) for line in said if len(line) == 4 and line[0] == "got"}
        if len(got) < result.produced or audit.archived:
            result.problems.append(f"{CALLS}: {len(got)} of {result.produced} records came, archived: {audit.archived}")
        result.acked[CALLS] = len(accepted)
        return result

    # --- inside

    def _start_coordinators(self) -> None:
        self.endpoints, self.configs = "", STATE
        for number, host in enumerate(self._runtimes, 1):
            self._runtimes[host].mkdir()
            if host in HOSTS:
                self.victims.append(OnDemand(f"c{number}", self._runtimes[host]))  # type: ignore[arg-type]

    @contextlib.contextmanager
    def _client(self) -> Iterator[CoordinatorClient]:
        with mock.patch.dict(os.environ, {RUNTIME: str(self._runtimes["observer"])}), super()._client() as client:
            yield client

    def _member(self, group: str, name: str, **more: str) -> Victim:
        return super()._member(group, name, **self._there(name))

    def _consumer(self, name: str) -> Victim:
        config = {
            "bootstrap.servers": self.broker.bootstrap,
            "group.id": CALLS,
            "share.auto.offset.reset": "earliest",
            "max.poll.records": 50,
            **self._group_configs,
            **STATE,
        }
        arguments = msgspec.json.encode({"config": config, "topic": TOPIC, "together": 1 << 40}).decode()
        return self._victim(consumer(name, arguments, self.folder / f"{name}.log", **self._there(name)))

    def _there(self, name: str) -> dict[str, str]:
        (host,) = (host for host, members in HOSTS.items() if name in members)
        return {RUNTIME: str(self._runtimes[host])}

    def _harm(self, resume: list[tuple[float, Victim | None]]) -> None:
        (kind,) = self.chance.choices([*CHANCES], [*CHANCES.values()])
        if kind == "one":
            super()._harm(resume)
        elif kind == "topics":
            self.broker.admin.delete_topics([REQUESTS, ADMIN_REQUESTS, REPLIES])
            self._note("delete", "topics")
        elif kind == "coordinators":
            for each in (victim for victim in self.victims if victim.name.startswith("c")):
                self._note("kill", each.name)
                each.kill()
        else:
            number = self.chance.choice((2, 3))
            names = (f"c{number}", *HOSTS[f"h{number}"])
            whole = [victim for victim in self.victims if victim.name in names and victim.runs]
            stops, until_s = self.chance.random() < 0.5, time.monotonic() + self._stop_s(MEMBER_SESSION_MS)
            for victim in whole:
                self._note("stop" if stops else "kill", victim.name)
                if stops:
                    victim.pause()
                    resume.append((until_s, victim))
                else:
                    victim.kill()

    def _is_allowed(self, victim: Victim, status: int, last_words: str) -> bool:
        """As in World; a consumer may fail by name, as where the coordinator that it has just started is killed. The
        brokers refuse nothing here, and no error is a bug."""
        if victim.name in CALLERS:
            is_named = last_words.startswith("cimpl.KafkaException: ")
            return status == 0 or (is_named and not re.search("BrokerRefused|InternalError", last_words))
        return super()._is_allowed(victim, status, last_words)

    def _is_drained(self, client: CoordinatorClient, group: str) -> bool:
        for each in self.consumers:
            each.revive()
        groups = (group, CALLS)
        return all(super(HostsWorld, self)._is_drained(client, each) for each in groups)
