"""Answers the requests of other hosts to the groups that this process owns.

Rule: a request of another host is carried out only by the owner that it names, and only in its time; a second record
with the id of an earlier request is answered as that one was, unless that was an error after which the client asks
again. "Moved" is said only of a group that this process does not serve and does not load: its asker may take the group.
One host alone reads nothing: the ends of the request topics are looked at, and a partition is read once a record has
come.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Protocol

from confluent_kafka import Message

from coordinator.protocol.errors import BrokerRefused, ShareGroupError
from coordinator.protocol.host_errors import HostTopicNotAuthorized
from coordinator.protocol.host_records import (
    ADMIN_REQUESTS,
    REPLIES,
    REQUESTS,
    Alive,
    Answer,
    Ask,
    Late,
    Moved,
    Probe,
    Reply,
    Tick,
    headers_of_reply,
    headers_of_request,
    parts_of,
    read_request,
)
from coordinator.protocol.rights import TOKEN_NAME, Caller, Right
from coordinator.protocol.wire import asks_again
from coordinator.service.hosts.records import Reader, Transport, Writer
from coordinator.service.hosts.topics import TO_ANSWER, request_partition_of
from coordinator.service.process.clock import Clock
from coordinator.service.runtime.transaction import ORIGIN, FromAnotherHost
from coordinator.state_log.owner import Owner

LOOKS_EVERY_S = 1.0
"""The ends of the request topics are looked at this often, in seconds."""
ALONE_S = 2.0
"""As long as no other host has made the request topics, they are asked for this often, in seconds."""
DEAF_S, MOST_DEAF_S = 2.0, 30.0
"""A reader that has read none of its ticks this many seconds after a broker took one begins anew: soon enough that
nobody finds the owner gone; each next time after twice as many, up to the second number."""
RESTS_AFTER_S = 60.0
"""A partition without a request for this process is read for this many seconds more."""
ANSWERS_KEPT_S = 300.0
"""An answer is kept for this many seconds, for the same request again: a client retries for as long by default
(share.broker.outage.timeout.ms)."""
PARTS_KEPT_S = 60.0
"""The parts of an unfinished request are dropped this many seconds after the last one."""
EACH_BYTES = 1_000
"""A request counts for this many bytes beside its body or answer."""
ANSWERS_KEPT_BYTES = 64 << 20
MOST_UNFINISHED_BYTES = 64 << 20
"""The parts of unfinished requests have up to this many bytes; what comes beyond them is dropped, and sent again."""
MOST_AT_ONCE = 1_000
"""Up to this many requests of other hosts are handled at the same time: each may wait for records."""
STUCK_S = 30.0
"""An owner whose event loop has run one round for this many seconds answers nobody: another host takes the group."""
TICK_LATE_S = 1.5
"""A tick that is read up to this many seconds after the one before is in time. What is beyond counts as time in which
no member of another host could be heard."""
UNHEARD_AT_MOST_S = 45.0
"""Up to this many seconds in a row count against no member; then those of other hosts end."""
SAYS_MOVED_S = 2.0
"""A process that leaves answers for this many seconds that its groups have moved, so that nobody waits for it."""
OF_MEMBERS = Caller(frozenset({Right.MEMBER, Right.READ}))
OF_ADMINISTRATORS = Caller()

Handle = Callable[[str, bytes, Caller, str, str], bytes]
"""Answers a request: its name, its body, the rights and the host that it came with, and the client's protocol."""

_log = logging.getLogger(__name__)


class Groups(Protocol):
    """The groups that this process serves."""

    clock: Clock

    def held_groups(self) -> Collection[str]:
        """The groups that are served, or loaded now or soon."""

    def tenure(self, group_id: str) -> str:
        """The tenure of this process as the owner; empty: it does not serve the group."""

    def holds(self, group_id: str) -> bool:
        """Whether the group is served, or loaded again soon."""

    def unheard(self, group_ids: Iterable[str], ms: int) -> None:
        """Apply that members of these groups could not be heard for so long."""

    def hand_over(self, group_id: str, tenure: str) -> None:
        """Give the group up, if this process still owns it with this tenure."""

    def stuck_s(self, group_id: str) -> float:
        """For how many seconds the round that the group's event loop runs now has lasted."""


@dataclass
class _Received:
    """A request that has come, in part or as a whole. ``ask``: its last record, whose asker gets the answer. ``answer``
    None: it is being handled, or a part is missing. ``since_s``: the time of the answer, or of the last part."""

    ask: Ask
    caller: Caller
    parts: dict[int, bytes] = field(default_factory=dict)
    is_running: bool = False
    answer: bytes | None = None
    since_s: float = 0.0


class OwnerRequests:
    """Reads and answers them until :meth:`close`."""

    def __init__(self, transport: Transport, groups: Groups, me: Owner, handle: Handle) -> None:
        self._transport, self._groups, self._me, self._handle = transport, groups, me, handle
        self._are_there, self._asked_s = False, -inf
        self._ends: dict[tuple[str, int], int] = {}
        self._last_s: dict[tuple[str, int], float] = {}
        self._ticks_s: dict[tuple[str, int], float] = {}
        self._unheard_s: dict[tuple[str, int], float] = {}
        self._unread_s: dict[tuple[str, int], float] = {}
        self._deaf_s = DEAF_S
        self._reader: Reader | None = None
        self._writer: Writer | None = None
        self._threads = transport.pool(MOST_AT_ONCE, "share-host-request")
        self._received: OrderedDict[str, _Received] = OrderedDict()
        self._receiving = threading.Lock()
        self._kept_bytes = 0
        self._is_leaving = False
        self._is_closed = transport.event()
        self._last_request_s, self._told = -inf, ""
        self._thread = transport.start(self._run, "share-host-requests")

    def __repr__(self) -> str:
        return f"<OwnerRequests reading={sorted(self._last_s)} received={len(self._received)}>"

    @property
    def idle_s(self) -> float:
        """Seconds since the last request of another host; infinite if none has come."""
        return self._transport.now_s() - self._last_request_s

    def leave(self) -> None:
        """Answer from now on that the groups have moved: they are given up."""
        self._is_leaving = True

    def close(self) -> None:
        """End the threads. Where other hosts have asked lately, they hear for SAYS_MOVED_S more that the groups have
        moved."""
        self._is_leaving = True
        if self.idle_s < RESTS_AFTER_S:
            self._is_closed.wait(SAYS_MOVED_S)
        self._is_closed.set()
        self._thread.join(2 * LOOKS_EVERY_S)
        self._threads.shutdown(wait=False, cancel_futures=True)
        for part in (self._reader, self._writer):
            if part is not None:
                part.close()

    # --- the thread that looks at the ends

    def _run(self) -> None:
        while not self._is_closed.wait(LOOKS_EVERY_S):
            try:
                self._look()
                self._told = ""
            except ShareGroupError as error:
                self._tell(error)
            except Exception:  # noqa: BLE001 - the next look may work
                _log.exception("the requests of other hosts could not be looked for")

    def _tell(self, error: ShareGroupError) -> None:
        """Log, once for each reason, why other hosts are not heard: a host alone needs no ACL for them."""
        if isinstance(error, BrokerRefused):
            try:
                self._check_rights()
            except ShareGroupError as named:
                error = named
        if str(error) != self._told:
            self._told = str(error)
            _log.warning("other hosts are not answered: %s", error)

    def _check_rights(self) -> None:
        if denied := self._transport.lacking(TO_ANSWER):
            raise HostTopicNotAuthorized(what="answer other hosts by it", topic=", ".join(denied))

    def _look(self) -> None:
        held = self._groups.held_groups()
        mine = {request_partition_of(group_id) for group_id in held}
        wanted = {(topic, number) for topic in (REQUESTS, ADMIN_REQUESTS) for number in mine} - set(self._last_s)
        for where in self._ends.keys() - wanted - self._last_s.keys():
            del self._ends[where]  # what comes until a group of it is held again concerns other owners
        if not (held or self._last_s):
            return
        ends = self._known_ends(wanted)
        for where in sorted(wanted):
            if where not in ends:
                self._ends[where] = 0
            elif (end := ends[where]) != (known := self._ends.setdefault(where, end)):
                self._read(where, known if known < end else 0)  # a shorter one is of a topic that was made anew
        self._rest()
        self._tick(held)

    def _known_ends(self, wanted: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The ends of these partitions; empty as long as no other host has made the topics: then one topic is asked
        for, since what asks for offsets of a missing topic lists all topics."""
        if not self._are_there:
            now = self._transport.now_s()
            if now - self._asked_s < ALONE_S:
                return {}
            self._asked_s = now
            if not self._transport.has_requests():
                return {}
        ends = self._transport.ends(wanted)
        self._are_there = len(ends) == len(wanted)
        return ends

    def _tick(self, held: Iterable[str]) -> None:
        """Write a tick to each partition of members' requests that is read. Sessions do not end while their heartbeats
        lie there unread. Who owns groups need not be allowed to write administrators' requests."""
        now = self._transport.now_s()
        for where in [each for each in self._last_s if each[0] == REQUESTS]:
            unheard_s = min(now - self._ticks_s[where] - TICK_LATE_S, UNHEARD_AT_MOST_S)
            grown_s = unheard_s - self._unheard_s.get(where, 0.0)
            self._unheard_s[where] = max(0.0, unheard_s)
            if unheard_s > 0 and grown_s > 0:
                self._groups.unheard([g for g in held if request_partition_of(g) == where[1]], int(grown_s * 1000))
            assert self._writer is not None
            written = partial(self._tick_written, where, now)
            self._writer.write(
                *where, self._me.process, headers_of_request(Tick(process=self._me.process)), written=written
            )
        if any(now - unread_s > self._deaf_s for unread_s in list(self._unread_s.values())):
            self._deaf_s = min(2 * self._deaf_s, MOST_DEAF_S)
            self._unread_s.clear()
            assert self._reader is not None
            self._reader.begin_anew()

    def _tick_written(self, where: tuple[str, int], at_s: float, ok: bool) -> None:
        if ok and self._ticks_s[where] < at_s and where in self._last_s:
            self._unread_s.setdefault(where, self._transport.now_s())

    def _read(self, where: tuple[str, int], offset: int) -> None:
        if self._reader is None:
            self._check_rights()
            self._writer = self._transport.writer()
            self._reader = self._transport.reader(self._on_record, "share-host-request-reader")
        _log.info("another host asks: reading %s-%d from %d", *where, offset)
        self._last_s[where] = self._ticks_s[where] = self._transport.now_s()
        self._reader.add({where: offset})

    def _rest(self) -> None:
        now = self._transport.now_s()
        with self._receiving:
            resting = {where for where, last_s in self._last_s.items() if now - last_s > RESTS_AFTER_S}
            for where in resting:
                del self._last_s[where]
                self._unheard_s.pop(where, None)
                self._unread_s.pop(where, None)
            for key, received in list(self._received.items()):
                kept_s = PARTS_KEPT_S if received.answer is None else ANSWERS_KEPT_S
                if not received.is_running and now - received.since_s > kept_s:
                    self._drop(key)
        if resting and self._reader is not None:
            self._reader.remove(resting)

    # --- the reader's thread

    def _on_record(self, message: Message) -> None:
        where = (str(message.topic()), message.partition() or 0)
        self._ends[where] = (message.offset() or 0) + 1
        self._unread_s.pop(where, None)
        request = read_request(message.headers())
        if request is None or request.process != self._me.process:
            return
        now = self._transport.now_s()
        if isinstance(request, Tick):
            self._ticks_s[where], self._deaf_s = now, DEAF_S
            return
        with self._receiving:
            self._last_request_s = now
            if where in self._last_s:  # else it is read no more
                self._last_s[where] = now
        if self._groups.stuck_s(request.group_id) > STUCK_S:
            return
        tenure = "" if self._is_leaving else self._groups.tenure(request.group_id)
        is_loading = not (tenure or self._is_leaving) and self._groups.holds(request.group_id)
        caller = OF_ADMINISTRATORS if where[0] == ADMIN_REQUESTS else OF_MEMBERS
        if isinstance(request, Ask) and (self._is_of_another(request, caller) or self._is_known(request)):
            return
        if tenure != request.tenure and not is_loading:
            self._reply(request, Moved(id=request.id, asker=request.asker))
        elif isinstance(request, Probe):
            self._reply(request, self._alive(request))
        elif is_loading:
            return  # the asker hears that it is unknown, and sends it again
        elif self._groups.clock.now_ms() > request.not_after_ms:
            self._reply(request, Late(id=request.id, asker=request.asker, clock_ms=self._groups.clock.now_ms()))
        else:
            self._receive(request, message.value() or b"", caller)

    def _alive(self, probe: Probe) -> Alive:
        with self._receiving:
            running = {each for each in probe.waiting if each in self._received and self._received[each].is_running}
        return Alive(
            id=probe.id,
            asker=probe.asker,
            tenure=probe.tenure,
            clock_ms=self._groups.clock.now_ms(),
            unknown=tuple(each for each in probe.waiting if each not in running),
        )

    def _is_of_another(self, ask: Ask, caller: Caller) -> bool:
        """Whether a request with this id has come with other rights: who has fewer can't add a part to it."""
        with self._receiving:
            received = self._received.get(ask.id)
            return received is not None and received.caller is not caller

    def _is_known(self, ask: Ask) -> bool:
        """Whether the request has come as a whole before. If it is answered, the answer is written again."""
        with self._receiving:
            received = self._received.get(ask.id)
            if received is None or not (received.is_running or received.answer is not None):
                return False
            received.ask, answer = ask, received.answer
        if answer is not None and not ask.part:
            self._write_answer(ask, answer)
        return True

    def _receive(self, ask: Ask, body: bytes, caller: Caller) -> None:
        with self._receiving:
            received = self._received.get(ask.id)
            if received is None:
                if self._kept_bytes + len(body) > MOST_UNFINISHED_BYTES + ANSWERS_KEPT_BYTES:
                    return
                received = self._received[ask.id] = _Received(ask, caller)
                self._kept_bytes += EACH_BYTES
            received.ask, received.since_s = ask, self._transport.now_s()
            if ask.part not in received.parts:
                received.parts[ask.part] = body
                self._kept_bytes += len(body)
            if len(received.parts) < ask.parts:
                return
            received.is_running = True
        self._threads.submit(self._carry_out, received)

    def _drop(self, request_id: str) -> None:
        received = self._received.pop(request_id)
        self._kept_bytes -= EACH_BYTES + sum(map(len, received.parts.values())) + len(received.answer or b"")

    # --- the threads of the requests

    def _carry_out(self, received: _Received) -> None:
        ask = received.ask
        ORIGIN.set(FromAnotherHost(tenure=ask.tenure, not_after_ms=ask.not_after_ms, group_id=ask.group_id))
        try:
            body = b"".join(received.parts[number] for number in range(ask.parts))
            named = replace(received.caller, name=ask.by if TOKEN_NAME.fullmatch(ask.by) else "")
            answer = self._handle(ask.name, body, named, ask.host, ask.protocol)
        except Exception:
            _log.exception("a request of host %s failed: %s", ask.host, ask.name)
            with self._receiving:
                self._drop(ask.id)
            raise
        finally:
            ORIGIN.set(None)
        with self._receiving:
            self._kept_bytes += len(answer) - sum(map(len, received.parts.values()))
            received.parts.clear()
            received.is_running = False
            received.answer, received.since_s = answer, self._transport.now_s()
            if asks_again(answer):
                self._drop(ask.id)
            while self._kept_bytes > ANSWERS_KEPT_BYTES and len(self._received) > 1:
                oldest = next((k for k, each in self._received.items() if each.answer is not None), None)
                if oldest is None or oldest == ask.id:
                    break
                self._drop(oldest)
            last = received.ask
        self._write_answer(last, answer)

    def _write_answer(self, ask: Ask, answer: bytes) -> None:
        written = uuid.uuid4().hex
        for part, parts, data in parts_of(answer):
            self._reply(ask, Answer(id=ask.id, asker=ask.asker, written=written, part=part, parts=parts), data)

    def _reply(self, request: Probe | Ask, reply: Reply, body: bytes = b"") -> None:
        assert self._writer is not None
        headers = headers_of_reply(reply, request.reply_key, body)
        self._writer.write(REPLIES, request.reply_to, request.asker, headers, body)
