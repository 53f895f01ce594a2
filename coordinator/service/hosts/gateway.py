"""Passes requests of this host's clients on to the owners of groups on other hosts, and finds out whether an owner is
gone.

Rule: an owner counts as gone only if a broker has taken a question to it, and its patience has passed without an answer
that this process could have read. To prove that, the process writes a record to its own reply partition and reads it
back; and the replies' topic must not have been created again meanwhile. When the group is taken, its log must have no
newer record of the owner."""

from __future__ import annotations

import logging
import secrets
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from confluent_kafka import Message

from coordinator.kafka.record_headers import headers_of
from coordinator.protocol.errors import CoordinatorNotAvailable, RequestTooLarge
from coordinator.protocol.host_errors import GroupOfAnotherVersion, OwnerMissing, RequestTooLate
from coordinator.protocol.host_records import (
    ADMIN_REQUESTS,
    MOST_BODY_BYTES,
    PARTITIONS,
    REPLIES,
    REQUESTS,
    VERSION,
    Alive,
    Answer,
    Ask,
    Echo,
    Moved,
    Probe,
    Reply,
    headers_of_reply,
    headers_of_request,
    id_of_request,
    is_proven,
    parts_of,
    read_reply,
    shown_id,
)
from coordinator.protocol.messages import JoinGroup
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.wire import naming_host
from coordinator.service.hosts.topic_clients import Reader, Transport, Writer
from coordinator.service.hosts.topics import TO_ADMINISTER, TO_ASK, WRITE, request_partition_of
from coordinator.state_log.owner_record import Owner
from coordinator.state_log.owner_state import OwnerState

QUIET_S = 1.0
"""An owner that has not answered for this many seconds is asked whether it lives, and again after as many seconds. If
its last answer took longer, up to twice that time is waited first."""
PASS_ON_S = 20.0
"""A request is passed on for this many seconds, in addition to the time that it may wait for records."""
JOIN_S = 5.0
"""A join is passed on for this many seconds: a late join would end the session of the member's next process."""
FIRST_S = 10.0
"""The brokers have this many seconds to take the first question to an owner."""
APART_MS = 500
"""A silent owner is waited for by up to this many milliseconds more. Each host draws its own number: hosts that ask an
owner at the same time take its groups one after the other, and the second host finds the first one's owner record."""
MOST_ASKED = 1_000
"""A question names up to this many requests that wait for the owner, the oldest first."""

_log = logging.getLogger(__name__)


class OwnerAway(Exception):
    """The owner has not answered the request. ``found``: what was found out about the owner. None: nothing yet, so read
    the group's log. ``end``: the end of the state partition before the owner was asked."""

    def __init__(self, found: OwnerState | None = None, end: int = 0) -> None:
        super().__init__(found, end)
        self.found, self.end = found, end


class _Route(NamedTuple):
    """An owner that answered, last as ``alive`` at ``heard_s``. Its clock is ahead of ours by up to ``ahead_ms``."""

    owner: Owner
    ahead_ms: int
    heard_s: float
    alive: Alive


@dataclass
class _Waiting:
    """A record to an owner that waits for its reply, or an echo. ``shown``: the id that the reply names. ``is_asked``:
    the record is a client's request."""

    id: str
    group_id: str
    transport: Transport
    is_asked: bool = False
    reply_key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    shown: str = field(init=False)
    done: threading.Event = field(init=False)
    reply: Reply | None = None
    heard_s: float = 0.0
    parts_of: str = ""
    parts: dict[int, bytes] = field(default_factory=dict)
    body: bytes = b""
    is_written: bool | None = None
    asked_s: float = field(init=False)
    written_s: float = 0.0

    def __post_init__(self) -> None:
        self.shown = shown_id(self.id) if self.is_asked else self.id
        self.done, self.asked_s = self.transport.event(), self.transport.now_s()

    def written(self, ok: bool) -> None:
        """Record whether a broker has taken a record. Of several records of a request, a single failure counts."""
        self.is_written, self.written_s = ok and self.is_written is not False, self.transport.now_s()


class Gateway:
    """Asks owners on other hosts. Thread-safe. Nothing is read or written before the first question."""

    def __init__(self, transport: Transport, me: Owner) -> None:
        self._transport, self._me = transport, me
        self._starting, self._changing = threading.Lock(), threading.Lock()
        self._is_closed = False
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._reply_to = transport.any_below(PARTITIONS)
        self._waiting: dict[str, _Waiting] = {}
        self._routes: dict[str, _Route] = {}
        self._took_s: dict[str, float] = {}
        self._once = LogOnce(_log)
        self._next_reply, self._replies_lost_s = 0, -inf

    def owner_of(self, group_id: str) -> Owner | None:
        """Returns the owner that answered last; None if there was none, or it did not serve the group any more."""
        route = self._routes.get(group_id)
        return None if route is None else route.owner

    def forget(self, group_id: str) -> None:
        """Record that the group may have another owner now."""
        self._routes.pop(group_id, None)

    def pass_on(
        self,
        group_id: str,
        owner: Owner,
        name: str,
        body: bytes,
        *,
        request_id: str,
        protocol: str,
        is_action: bool,
        waits_s: float,
        is_patient: bool,
        is_gone: Callable[[], bool] = lambda: False,
        by: str = "",
    ) -> bytes:
        """Pass the request ``name`` on to the owner, and return the owner's answer. ``waits_s``: the request may wait
        this long for records. ``is_patient``: the owner may be silent for as long as its patience; if false, for one
        question. ``is_gone``: whether the client has ceased to wait; the owner's silence is still found out. ``by``:
        the name of the client's token. An error about the owner itself names its host.

        Raises:
            GroupOfAnotherVersion: the owner lives, and can't be asked.
            OwnerAway: the owner does not answer. If the group has moved, the request was not carried out; else the
                outcome is unknown.
            CoordinatorNotAvailable: no answer came in time.
            OwnerMissing: it does not answer, and this process lacks the ACLs to find out whether it is gone.
            HostTopicNotAuthorized, HostTopicUnfit, BrokerNotReachable: the owner can't be asked.
            RequestTooLarge: it takes no such request from another host."""
        if len(body) > MOST_BODY_BYTES:
            raise RequestTooLarge(name=name, size_bytes=len(body), limit_bytes=MOST_BODY_BYTES)
        writer = self._started(group_id)
        if owner.answers != VERSION:
            self._look(group_id, owner, is_patient=is_patient)
            raise GroupOfAnotherVersion(group_id=group_id, owner=str(owner))
        if is_action:
            self._transport.ensure(TO_ADMINISTER)
        route = self._routes.get(group_id)
        if route is None or route.owner.tenure != owner.tenure:
            route = self._route_to(group_id, owner, is_patient=is_patient)
        until_s = self._transport.now_s() + (JOIN_S if name == JoinGroup.__name__ else PASS_ON_S) + waits_s
        waiting = self._await(id_of_request(request_id, name, body), group_id, is_asked=True)
        topic = ADMIN_REQUESTS if is_action else REQUESTS
        asked = {**self._to(owner, waiting), "protocol": protocol, "name": name, "host": self._me.host, "by": by}
        asked["not_after_ms"] = int(until_s * 1000) + route.ahead_ms
        try:
            asks = [(Ask(**asked, part=part, parts=parts), data) for part, parts, data in parts_of(body)]
            self._send(writer, topic, asks, waiting)
            while not self._is_done(waiting, self._quiet_s(owner)):
                if self._transport.now_s() > until_s:
                    raise _no_answer(group_id, f"{owner} gave no answer in time")
                alive = self._alive(group_id, owner, is_patient=is_patient)
                if is_gone() or self._waiting.get(waiting.shown) is not waiting:
                    raise _no_answer(group_id, "its client waits no longer, or has asked again")
                is_lost = waiting.is_written is False or waiting.shown in alive.unknown
                if is_lost and not waiting.done.is_set():
                    self._send(writer, topic, asks, waiting)
        finally:
            self._forget(waiting)
        if isinstance(waiting.reply, Answer):
            # Measured on each request, since the first question may have waited for the owner's next look.
            took_s = waiting.heard_s - waiting.asked_s
            self._took_s[owner.process] = min(took_s, self._took_s.get(owner.process, took_s))
            return naming_host(waiting.body, f"{owner.host} (process {owner.pid})")
        if isinstance(waiting.reply, Moved):
            self.forget(group_id)
            raise OwnerAway(OwnerState.MOVED, self._transport.log_end(group_id))
        self.forget(group_id)  # one of the two clocks was stopped: compare them anew
        raise RequestTooLate(group_id=group_id)

    def check_lives(self, group_id: str, owner: Owner) -> None:
        """Check that the owner, which the group's log has just shown, serves the group.

        Raises:
            OwnerAway: it does not.
            CoordinatorNotAvailable: the brokers do not take the question, or give back no replies."""
        self._look(group_id, owner, is_patient=True)

    def close(self) -> None:
        """Close the clients and wait for their threads. Callers that wait for an answer get an error."""
        self._is_closed = True
        for waiting in list(self._waiting.values()):
            waiting.done.set()
        with self._starting:
            for part in (self._reader, self._writer):
                if part is not None:
                    part.close()

    def _started(self, group_id: str) -> Writer:
        with self._starting:
            if self._is_closed:
                raise CoordinatorNotAvailable(group_id=group_id, reason="it is leaving")
            if self._writer is None:
                self._transport.ensure(TO_ASK)
                where = (REPLIES, self._reply_to)
                end = self._transport.ends([where]).get(where, 0)
                self._next_reply = end
                self._reader = self._transport.reader(self._on_record, "share-host-replies")
                self._reader.add({where: end})
                self._writer = self._transport.writer()
            return self._writer

    def _await(self, record_id: str, group_id: str, *, is_asked: bool = False) -> _Waiting:
        waiting = _Waiting(record_id, group_id, self._transport, is_asked)
        with self._changing:
            self._waiting[waiting.shown] = waiting
        return waiting

    def _forget(self, waiting: _Waiting) -> None:
        """Stop waiting for this reply. A later try of the same request goes on waiting."""
        with self._changing:
            if self._waiting.get(waiting.shown) is waiting:
                del self._waiting[waiting.shown]

    def _is_done(self, waiting: _Waiting, seconds: float) -> bool:
        is_done = waiting.done.wait(seconds)
        if self._is_closed:
            raise _no_answer(waiting.group_id, "it is leaving")
        return is_done

    def _quiet_s(self, owner: Owner) -> float:
        """For how many seconds the owner may be silent before it is asked whether it lives."""
        return max(QUIET_S, min(2 * self._took_s.get(owner.process, 0.0), owner.patience_s / 2))

    def _send(self, writer: Writer, topic: str, asks: list[tuple[Ask, bytes]], waiting: _Waiting) -> None:
        waiting.is_written, waiting.parts = None, {}
        for ask, data in asks:
            self._write(writer, topic, ask, data, waiting)

    def _to(self, owner: Owner, waiting: _Waiting) -> dict[str, Any]:
        return {
            "id": waiting.id,
            "asker": self._me.process,
            "group_id": waiting.group_id,
            "reply_to": self._reply_to,
            "reply_key": waiting.reply_key,
            "tenure": owner.tenure,
            "process": owner.process,
        }

    def _write(self, writer: Writer, topic: str, request: Probe | Ask, body: bytes, waiting: _Waiting) -> None:
        group_id = request.group_id
        partition = request_partition_of(group_id)
        writer.write(topic, partition, group_id, headers_of_request(request), body, waiting.written)

    def _route_to(self, group_id: str, owner: Owner, *, is_patient: bool) -> _Route:
        self._look(group_id, owner, is_patient=is_patient)
        route = self._routes.get(group_id)
        if route is None or route.owner.tenure != owner.tenure:
            raise CoordinatorNotAvailable(group_id=group_id, reason="its owner changed just now")
        return route

    def _alive(self, group_id: str, owner: Owner, *, is_patient: bool) -> Alive:
        """The owner's answer to :meth:`_look`: the last one if it is new. A group's requests share one question."""
        route = self._routes.get(group_id)
        if route is None or route.owner.tenure != owner.tenure or self._transport.now_s() - route.heard_s > QUIET_S:
            return self._look(group_id, owner, is_patient=is_patient)
        return route.alive

    def _look(self, group_id: str, owner: Owner, *, is_patient: bool) -> Alive:
        """The owner's answer to the question whether it lives, and which of the requests for it are not under way.

        Raises:
            OwnerAway: it has moved, or not answered for its patience; or the first question, if not ``is_patient``.
            CoordinatorNotAvailable: the brokers do not take the question, or give back no replies."""
        writer, end = self._started(group_id), self._transport.log_end(group_id)
        probes: list[_Waiting] = []
        began_s, taken_s = self._transport.now_s(), 0.0
        try:
            while True:
                probe = self._await(uuid.uuid4().hex, group_id)
                probes.append(probe)
                with self._changing:
                    asked = [of.shown for of in self._waiting.values() if of.is_asked and of.group_id == group_id]
                request = Probe(**self._to(owner, probe), waiting=tuple(asked[:MOST_ASKED]))
                self._write(writer, REQUESTS, request, b"", probe)
                self._is_done(probe, self._quiet_s(owner))
                if (found := self._heard(group_id, owner, probes, end, began_s)) is not None:
                    return found
                if not is_patient:
                    self.forget(group_id)
                    raise OwnerAway
                if not probe.is_written:
                    self._transport.ensure(TO_ASK)  # the topics, or an ACL, may have been deleted
                taken_s = taken_s or next((each.written_s for each in probes if each.is_written), 0.0)
                if taken_s and self._transport.now_s() - taken_s > owner.patience_s:
                    break
                if not taken_s and self._transport.now_s() - began_s > FIRST_S:
                    reason = f"{owner} owns it, and the brokers do not take requests to it ({REQUESTS})"
                    raise CoordinatorNotAvailable(group_id=group_id, reason=reason)
            self._is_done(probe, self._transport.any_below(APART_MS) / 1000)
            self._echo(writer, group_id, owner)
            if (found := self._heard(group_id, owner, probes, end, began_s)) is not None:
                return found
            if self._replies_lost_s >= began_s:
                reason = f"{owner} owns it, and {REPLIES} was made anew while it was asked"
                raise CoordinatorNotAvailable(group_id=group_id, reason=reason)
        finally:
            for probe in probes:
                self._forget(probe)
        self.forget(group_id)
        _log.warning("owner gone: %s, owner of group=%s, has not answered for %d s", owner, group_id, owner.patience_s)
        raise OwnerAway(OwnerState.SILENT, end)

    def _heard(self, group_id: str, owner: Owner, probes: list[_Waiting], end: int, began_s: float) -> Alive | None:
        """The owner's answer to one of the probes, or its answer to another request's probe since ``began_s``."""
        route = self._routes.get(group_id)
        if route is not None and route.owner.tenure == owner.tenure and route.heard_s > began_s:
            return route.alive
        for probe in probes:
            if isinstance(probe.reply, Alive) and probe.reply.tenure == owner.tenure:
                ahead_ms = probe.reply.clock_ms - int(probe.heard_s * 1000) - 1
                self._routes[group_id] = _Route(owner, ahead_ms, probe.heard_s, probe.reply)
                self._took_s[owner.process] = probe.heard_s - probe.asked_s
                return probe.reply
            if isinstance(probe.reply, Moved):
                self.forget(group_id)
                raise OwnerAway(OwnerState.MOVED, end)
        return None

    def _echo(self, writer: Writer, group_id: str, owner: Owner) -> None:
        """Write a record to this process's reply partition, and return once it is read, after every earlier reply."""
        echo = self._await(uuid.uuid4().hex, group_id)

        def written(ok: bool) -> None:
            if not ok:
                echo.done.set()

        try:
            message = Echo(id=echo.id, asker=self._me.process)
            headers = headers_of_reply(message, echo.reply_key)
            writer.write(REPLIES, self._reply_to, self._me.process, headers, written=written)
            self._is_done(echo, FIRST_S)
            if echo.reply is None:
                self._replies_lost_s = self._transport.now_s()
                if self._transport.lacking({REPLIES: WRITE}):
                    raise OwnerMissing(group_id=group_id, owner=str(owner), what=f"write to {REPLIES}")
                self._transport.ensure(TO_ASK)  # this topic alone may have been deleted
                assert self._reader is not None
                self._reader.begin_anew()
                reason = f"{owner} owns it, and this host can't read {REPLIES}-{self._reply_to}"
                raise CoordinatorNotAvailable(group_id=group_id, reason=reason)
        finally:
            self._forget(echo)

    def _on_record(self, message: Message) -> None:
        offset = message.offset() or 0
        if offset < self._next_reply:  # the topic was created again, and earlier replies are lost
            self._replies_lost_s = self._transport.now_s()
        self._next_reply = offset + 1
        if message.key() != self._me.process.encode():
            return
        headers = headers_of(message)
        reply = read_reply(headers)
        waiting = None if reply is None else self._waiting.get(reply.id)
        if reply is None or waiting is None or waiting.done.is_set():
            return
        body = message.value() or b""
        if not is_proven(headers, waiting.reply_key, body):
            text = (
                f"passed over: a reply to group={waiting.group_id} for an earlier try of the request, or without proof"
            )
            self._once.warn("proof", text)
            return
        waiting.heard_s = self._transport.now_s()
        if isinstance(reply, Answer):
            if waiting.parts_of != reply.written:
                waiting.parts_of, waiting.parts = reply.written, {}
            parts = waiting.parts
            parts[reply.part] = body
            if len(parts) < reply.parts:
                return
            waiting.body = b"".join(parts[number] for number in range(reply.parts))
        waiting.reply = reply
        waiting.done.set()


def _no_answer(group_id: str, reason: str) -> CoordinatorNotAvailable:
    return CoordinatorNotAvailable(group_id=group_id, reason=reason, outcome_unknown=True)
