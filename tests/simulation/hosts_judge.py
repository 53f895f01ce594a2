"""The judge of several hosts: a living owner stays the owner, and each request is carried out once, in its time, by the
owner that it names.

It sees the records between the hosts, the claims, and what owners decide, and knows nothing of how hosts decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from coordinator.protocol.host_records import Alive, Ask, Headers, Moved, Probe, Reply, Request, is_proven, shown_id
from coordinator.protocol.messages import JoinGroup
from coordinator.protocol.wire import asks_again
from coordinator.service.hosts.gateway import JOIN_S, PASS_ON_S
from coordinator.state_log.owner_record import Owner
from tests.simulation.simulated_world import Process, World

NEVER_MS = 10**15


@dataclass
class _Question:
    """A probe of a process to the owner with the tenure. ``log_end``: the end of the state partition when a broker had
    taken the probe; -1: none has."""

    id: str
    asker: str
    tenure: str
    taken_ms: int = 0
    log_end: int = -1
    alive_ms: int = NEVER_MS
    """The time at which the topic had an answer to this probe, or to a later one."""
    was_silent: bool = False
    """The owner's patience passed without an answer, up to a time up to which the asker has read its replies."""


@dataclass
class HostsJudge:
    """``owner``: the newest owner record. ``log_end``: returns the end of the state partition."""

    world: World
    log_end: Callable[[], int]
    owner: Owner | None = None
    met: Counter[str] = field(default_factory=Counter)
    is_calm: bool = False
    """All hosts have heard each other for a while: no owner is silent."""
    _questions: list[_Question] = field(default_factory=list)
    told_moved: set[tuple[str, str]] = field(default_factory=set)
    """Askers that have read Moved, with the tenure that they asked."""
    _asked: dict[str, dict[bytes, tuple[str, str, str]]] = field(default_factory=dict)
    """By id of a probe, or shown id of a request, and by reply key, its asker, the tenure and the process that it
    names."""
    _until_ms: dict[str, int] = field(default_factory=dict)
    """By the client's id of a request, the time at which its last asker waits no longer."""
    _tenures: dict[str, set[str]] = field(default_factory=dict)
    _running: set[tuple[str, str]] = field(default_factory=set)
    _done: set[tuple[str, str]] = field(default_factory=set)

    # --- the records between hosts

    def sent(self, by: Process, message: Request | Reply, headers: Headers, body: bytes) -> None:
        if isinstance(message, Ask):
            client_id = message.id.rpartition(".")[0]
            self._tenures.setdefault(client_id, set()).add(message.tenure)
            if message.reply_key not in self._asked.get(shown_id(message.id), ()):
                waits_s = JOIN_S if message.name == JoinGroup.__name__ else PASS_ON_S
                self._until_ms[client_id] = self.world.now_ms + int(waits_s * 1000)
            self.met["asks"] += 1
        if isinstance(message, Probe):
            self._questions.append(_Question(message.id, message.asker, message.tenure))
        if isinstance(message, Probe | Ask):
            shown = shown_id(message.id) if isinstance(message, Ask) else message.id
            self._asked.setdefault(shown, {})[message.reply_key] = message.asker, message.tenure, message.process
        if isinstance(message, Moved):
            self._moved(by, *self._question(message, headers, body)[1:])

    def taken(self, by: Process, request: Request) -> None:
        for question in self._questions:
            if question.id == getattr(request, "id", ""):
                question.taken_ms, question.log_end = self.world.now_ms, self.log_end()

    def appended(self, message: Request | Reply, headers: Headers) -> None:
        if isinstance(message, Alive):
            for question in self._up_to(message, headers):
                question.alive_ms = min(question.alive_ms, self.world.now_ms)

    def read(self, by: Process, reply: Reply, headers: Headers, body: bytes, appended_ms: int) -> None:
        for question in self._questions:
            if question.asker == by.name and self.owner is not None and question.tenure == self.owner.tenure:
                waited_ms = appended_ms - question.taken_ms
                is_over = question.log_end >= 0 and waited_ms >= int(self.owner.patience_s * 1000)
                question.was_silent |= is_over and question.alive_ms > appended_ms
        asker, tenure, _ = self._question(reply, headers, body)
        if isinstance(reply, Moved):
            self.told_moved.add((asker, tenure))
        if isinstance(reply, Alive):
            answered = self._up_to(reply, headers)
            self._questions = [each for each in self._questions if each not in answered or each.was_silent]

    def _up_to(self, reply: Alive, headers: Headers) -> list[_Question]:
        """The probe that the reply answers, and those before it: the owner lives, whichever was asked."""
        asker, tenure, _ = self._question(reply, headers, b"")
        ids = [question.id for question in self._questions]
        before = self._questions[: ids.index(reply.id) + 1] if reply.id in ids else []
        return [question for question in before if (question.asker, question.tenure) == (asker, tenure)]

    def _question(self, reply: Reply, headers: Headers, body: bytes) -> tuple[str, str, str]:
        """The asker of the record that the reply is to, and the tenure and the process that it names."""
        asked = self._asked.get(reply.id, {}).items()
        return next((question for key, question in asked if is_proven(headers, key, body)), ("", "", ""))

    def _moved(self, by: Any, tenure: str, process: str) -> None:
        self.met["moved"] += 1
        if process != by.name:
            self.world.fail(f"{by.name} says for {process} that the group has moved")
        if tenure in (by.store.tenure_now, by.store.loads) and not by.is_leaving:
            self.world.fail(f"{by.name} says that the group has moved, which it serves or loads")

    # --- claims

    def claims(self, by: Process, owner: Owner) -> None:
        """The process writes itself into the log as the owner."""
        before, self.owner = self.owner, owner
        if before is not None and before.process != owner.process:
            if before.released:
                self.met["released"] += 1
            elif before.installation_id == owner.installation_id:
                self.met["restarted"] += 1
            elif (by.name, before.tenure) in self.told_moved:
                self.met["said moved"] += 1
            elif self._is_silent(by, before) and not self.is_calm:
                self.met["silent"] += 1
            else:
                self.world.fail(f"{by.name} takes the group from {before.process}, which was not away")

    def _is_silent(self, by: Process, before: Owner) -> bool:
        """Whether a broker took a question to the owner, and its patience passed without an answer up to a time up to
        which the process has read its replies; and the log has not grown."""
        now = by.name, before.tenure, self.log_end()
        return any(q.was_silent and (q.asker, q.tenure, q.log_end) == now for q in self._questions)

    # --- requests of other hosts

    def begun(self, by: Any, request_id: str, tenure: str) -> None:
        """The owner begins to handle a request of another host."""
        key = request_id, tenure
        if key in self._running or key in self._done:
            self.world.fail(f"{by.name} carries out request {request_id} twice")
        self._running.add(key)

    def answered(self, request_id: str, tenure: str, answer: bytes) -> None:
        self._running.discard((request_id, tenure))
        if not asks_again(answer):
            self._done.add((request_id, tenure))
            self.met["carried out"] += 1

    def decided(self, by: Any, request_id: str) -> None:
        """A round decides a request of another host."""
        if by.store.tenure_now not in self._tenures[request_id]:
            self.world.fail(f"{by.name} carries out request {request_id}, which is for another owner")
        if by.decided_ms > self._until_ms[request_id]:
            late_ms = by.decided_ms - self._until_ms[request_id]
            self.world.fail(f"{by.name} carries out request {request_id} {late_ms} ms too late")
