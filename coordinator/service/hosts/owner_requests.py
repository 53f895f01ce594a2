"""Answers the requests of other hosts to the groups that this process owns; ``gateway.py`` passes requests on to other
owners.

Rules: only the owner that a request names carries it out, and only in its time. A second record of a request gets the
first one's answer, unless that was an error after which the client asks again. Requests of members and of
administrators come in different topics, and share neither ids nor memory. The answer "moved" lets the asker take the
group, so it is given only if this process neither serves nor loads the group. A host that is alone reads nothing: it
looks at the ends of the request topics, and reads a partition once a record has come."""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from confluent_kafka import Message

from coordinator.kafka.record_headers import headers_of
from coordinator.protocol.errors import BrokerRefused, ShareGroupError
from coordinator.protocol.host_errors import HostTopicNotAuthorized, HostTopicUnfit
from coordinator.protocol.host_records import (
    ADMIN_REQUESTS,
    MOST_BODY_BYTES,
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
    is_whole,
    parts_of,
    read_request,
    shown_id,
    size_of,
)
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.rights import TOKEN_NAME, Caller, Right
from coordinator.protocol.wire import asks_again
from coordinator.service.hosts.topic_clients import Reader, Transport, Writer
from coordinator.service.hosts.topics import TO_ANSWER, request_partition_of
from coordinator.service.requests.asker import Asker
from coordinator.service.runtime.event_loop import PartitionedRuntime
from coordinator.service.runtime.transaction import FromAnotherHost
from coordinator.state_log.owner_record import Owner

LOOKS_EVERY_S = 1.0
"""An owner looks at the ends of the request topics this often, in seconds."""
ENDS_S = 3.0
"""The brokers have this many seconds to tell the ends: far less than a session, because the tick comes after it."""
ALONE_S = 2.0
"""An owner looks for the request topics this often, in seconds, until another host has created them."""
DEAF_S, MOST_DEAF_S = 2.0, 30.0
"""A reader begins anew if it has read none of its ticks this many seconds after a broker took a tick: soon enough that
no host finds the owner gone. Each time it waits twice as long, up to MOST_DEAF_S."""
RESTS_AFTER_S = 60.0
"""An owner reads a partition of a request topic for this many seconds after the last request to it."""
ANSWERS_KEPT_S = 300.0
"""An answer is kept for this many seconds, in case the same request comes again: a client retries for the same time by
default (share.broker.outage.timeout.ms)."""
PARTS_KEPT_S = 60.0
"""The parts of an unfinished request are dropped this many seconds after its first part."""
EACH_BYTES = 1_000
"""Each part and each answer counts for this many bytes more than its body and its header have."""
MOST_RECEIVED_BYTES, MOST_KEPT_BYTES = MOST_BODY_BYTES + (4 << 20), 64 << 20
"""Requests of one right that are handled or unfinished have up to MOST_RECEIVED_BYTES bytes, their answers up to
MOST_KEPT_BYTES. Beyond that the oldest unfinished request, or answer, is dropped; its sender sends an unfinished
request again."""
MOST_AT_ONCE = 1_000
"""Up to this many requests of one right are handled at the same time: each may wait for records."""
STUCK_S = 30.0
"""An owner whose event loop has run one round for this many seconds answers no host, so another takes the group."""
TICK_LATE_S = 1.5
"""A tick is in time if it is read up to this many seconds after the tick before. During any longer time no member of
another host could be heard."""
UNHEARD_AT_MOST_S = 45.0
"""If other hosts' members can't be heard, up to this many seconds in a row count against none; then sessions end."""
SAYS_MOVED_S = 2.0
"""A process that leaves answers for this many seconds that its groups have moved, so that no host waits for it."""
OF_MEMBERS = Caller(frozenset({Right.MEMBER, Right.READ}))
OF_ADMINISTRATORS = Caller(frozenset({Right.ADMIN, Right.READ}))

LONGEST_NAME = 255
"""A host's name is shown up to this many characters, the most of DNS."""

AnswerTo: TypeAlias = Callable[[str, pa.Buffer, Asker], bytes]
"""Answers a request: its name, its body, and who asks."""

_log = logging.getLogger(__name__)


@dataclass
class _Received:
    """A request that is handled, or lacks a part. ``ask``: its last record, whose asker gets the answer."""

    ask: Ask
    since_s: float
    parts: dict[int, bytes] = field(default_factory=dict)
    is_running: bool = False
    size: int = 0

    def agrees_with(self, ask: Ask, body: bytes) -> bool:
        return ask.parts == self.ask.parts and self.parts.get(ask.part, body) == body


class _Kept(NamedTuple):
    """An answer, and its time."""

    since_s: float
    answer: bytes


class _Requests:
    """The requests that come with one right, by their shown ids. Requests of another right share no memory, threads or
    ids with them. Hold the lock of OwnerRequests during each call."""

    def __init__(self, caller: Caller, threads: Any) -> None:
        self.caller, self.threads = caller, threads
        self.received: OrderedDict[str, _Received] = OrderedDict()
        self.kept: OrderedDict[str, _Kept] = OrderedDict()
        self.running = self.received_bytes = self.kept_bytes = 0

    def is_running(self, shown: str) -> bool:
        return shown in self.received and self.received[shown].is_running

    def add(self, ask: Ask, body: bytes, now_s: float) -> _Received | None:
        """Add a part. Returns the request if it is to be handled now: all its parts are there, and a thread is free."""
        shown, size = shown_id(ask.id), len(body) + size_of(ask) + EACH_BYTES
        received = self.received.get(shown)
        if received is not None and not received.agrees_with(ask, body):
            self._drop(shown)  # one of the two records is not its asker's, who sends all parts again
            received = None
        if received is None or ask.part not in received.parts:
            if not self._has_room(shown, size):
                return None
            received = self.received.setdefault(shown, _Received(ask, now_s))
            received.parts[ask.part] = body
            received.size += size
            self.received_bytes += size
        received.ask = ask
        if len(received.parts) < ask.parts or self.running >= MOST_AT_ONCE:
            return None
        received.is_running = True
        self.running += 1
        return received

    def _has_room(self, shown: str, size: int) -> bool:
        """Whether there is room for ``size`` more bytes of this request. Drops the oldest unfinished ones for it."""
        while self.received_bytes + size > MOST_RECEIVED_BYTES:
            unfinished = (each for each, of in self.received.items() if each != shown and not of.is_running)
            if (oldest := next(unfinished, None)) is None:
                return False
            self._drop(oldest)
        return True

    def end(self, received: _Received, answer: bytes | None, now_s: float) -> None:
        """Record that the request was handled, and keep its answer, unless that is None."""
        shown = shown_id(received.ask.id)
        self.running -= 1
        self._drop(shown)
        if answer is not None:
            self.kept[shown] = _Kept(now_s, answer)
            self.kept_bytes += len(answer) + EACH_BYTES
            while self.kept_bytes > MOST_KEPT_BYTES and len(self.kept) > 1:
                self._forget_oldest()

    def expire(self, now_s: float) -> None:
        """Drop answers and unfinished requests whose time is over."""
        while self.kept and now_s - next(iter(self.kept.values())).since_s > ANSWERS_KEPT_S:
            self._forget_oldest()
        for shown, received in list(self.received.items()):
            if not received.is_running and now_s - received.since_s > PARTS_KEPT_S:
                self._drop(shown)

    def _drop(self, shown: str) -> None:
        self.received_bytes -= self.received.pop(shown).size

    def _forget_oldest(self) -> None:
        self.kept_bytes -= len(self.kept.popitem(last=False)[1].answer) + EACH_BYTES


class OwnerRequests:
    """Reads and answers the requests of other hosts until :meth:`close`."""

    def __init__(self, transport: Transport, groups: PartitionedRuntime, me: Owner, answer: AnswerTo) -> None:
        self._transport, self._groups, self._me, self._answer_to = transport, groups, me, answer
        self._are_there, self._asked_s = False, -inf
        self._ends: dict[tuple[str, int], int] = {}
        self._last_s: dict[tuple[str, int], float] = {}
        self._ticks_s: dict[tuple[str, int], float] = {}
        self._unheard_s: dict[tuple[str, int], float] = {}
        self._unread_s: dict[tuple[str, int], float] = {}
        self._deaf_s = DEAF_S
        self._reader: Reader | None = None
        self._writer: Writer | None = None
        self._requests = {
            REQUESTS: _Requests(OF_MEMBERS, transport.pool(MOST_AT_ONCE, "share-host-request")),
            ADMIN_REQUESTS: _Requests(OF_ADMINISTRATORS, transport.pool(MOST_AT_ONCE, "share-host-action")),
        }
        self._receiving = threading.Lock()
        self._secret = uuid.uuid4().hex
        self._once = LogOnce(_log)
        self._is_leaving = False
        self._is_closed = transport.event()
        self._last_request_s = -inf
        self._thread = transport.start(self._run, "share-host-requests")

    @property
    def idle_s(self) -> float:
        """Seconds since the last request of another host; infinite if none has come."""
        return self._transport.now_s() - self._last_request_s

    def leave(self) -> None:
        """Answer from now on that the groups have moved. Give the groups up next."""
        self._is_leaving = True

    def close(self) -> None:
        """End the threads. If other hosts have asked lately, answer for SAYS_MOVED_S that groups have moved."""
        self._is_leaving = True
        if self.idle_s < RESTS_AFTER_S:
            self._is_closed.wait(SAYS_MOVED_S)
        self._is_closed.set()
        self._thread.join(2 * LOOKS_EVERY_S)
        for requests in self._requests.values():
            requests.threads.shutdown(wait=False, cancel_futures=True)
        for part in (self._reader, self._writer):
            if part is not None:
                part.close()

    # --- the thread that looks at the ends

    def _run(self) -> None:
        while not self._is_closed.wait(LOOKS_EVERY_S):
            try:
                self._look()
                self._once.changes("look", "")
            except ShareGroupError as error:
                self._tell(error)
            except Exception:  # noqa: BLE001 - the next look may work
                _log.exception("the requests of other hosts could not be looked for")

    def _tell(self, error: ShareGroupError) -> None:
        if isinstance(error, BrokerRefused):
            try:
                self._check_rights()
            except ShareGroupError as named:
                error = named
        if self._once.changes("look", str(error)):
            _log.warning("requests of other hosts are not answered by this host: %s", error)

    def _check_rights(self) -> None:
        if denied := self._transport.lacking(TO_ANSWER):
            raise HostTopicNotAuthorized(what="use it to answer other hosts", topic=", ".join(denied))

    def _look(self) -> None:
        held = self._groups.held_groups()
        mine = {request_partition_of(group_id) for group_id in held}
        wanted = {(topic, number) for topic in (REQUESTS, ADMIN_REQUESTS) for number in mine} - set(self._last_s)
        for where in self._ends.keys() - wanted - self._last_s.keys():
            del self._ends[where]  # until a group of the partition is held again, its records concern other owners
        if not (held or self._last_s):
            return
        try:
            ends = self._known_ends(wanted)
            for where in sorted(wanted):
                if where not in ends:
                    self._ends[where] = 0
                elif (end := ends[where]) != (known := self._ends.setdefault(where, end)):
                    # A shorter log is that of a topic that was created again.
                    self._read(where, known if known < end else 0)
            self._rest()
        finally:
            self._tick(held)  # brokers that do not answer pass on no member's heartbeat, either

    def _known_ends(self, wanted: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The ends of these partitions; empty until another host has made the topics. Until then a single topic is
        asked for: a question for offsets of a missing topic lists all topics."""
        if not self._are_there:
            now = self._transport.now_s()
            if now - self._asked_s < ALONE_S:
                return {}
            self._asked_s = now
            if not self._transport.has_requests():
                return {}
        ends = self._transport.ends(wanted, ENDS_S)
        self._are_there = len(ends) == len(wanted)
        return ends

    def _tick(self, held: Iterable[str]) -> None:
        """Write a tick to each partition of members' requests that is read. While heartbeats lie there unread, no
        session ends. An owner need not be allowed to write administrators' requests."""
        now = self._transport.now_s()
        for where in [each for each in self._last_s if each[0] == REQUESTS]:
            unheard_s = min(now - self._ticks_s[where] - TICK_LATE_S, UNHEARD_AT_MOST_S)
            grown_s = unheard_s - self._unheard_s.get(where, 0.0)
            self._unheard_s[where] = max(0.0, unheard_s)
            if unheard_s > 0 and grown_s > 0:
                self._groups.unheard([g for g in held if request_partition_of(g) == where[1]], int(grown_s * 1000))
            assert self._writer is not None
            tick = headers_of_request(Tick(process=self._me.process, secret=self._secret))
            self._writer.write(*where, self._me.process, tick, written=partial(self._tick_written, where, now))
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
            try:
                self._transport.check_configs()
            except HostTopicUnfit as unfit:  # answer anyway: this owner lives
                _log.warning("requests of other hosts could be lost: %s", unfit)
            self._writer = self._transport.writer()
            self._reader = self._transport.reader(self._on_record, "share-host-request-reader")
        _log.info("another host sends requests: reading %s-%d from offset %d", *where, offset)
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
            for requests in self._requests.values():
                requests.expire(now)
        if resting and self._reader is not None:
            self._reader.remove(resting)

    # --- the reader's thread

    def _on_record(self, message: Message) -> None:
        where = (str(message.topic()), message.partition() or 0)
        self._ends[where] = (message.offset() or 0) + 1
        self._unread_s.pop(where, None)
        request = read_request(headers_of(message))
        if request is None or request.process != self._me.process:
            return
        now = self._transport.now_s()
        if isinstance(request, Tick):
            if request.secret == self._secret:  # a forged tick would hide that nothing is heard
                self._ticks_s[where], self._deaf_s = now, DEAF_S
            return
        with self._receiving:
            self._last_request_s = now
            if where in self._last_s:  # otherwise it is no longer read
                self._last_s[where] = now
        if self._groups.stuck_s(request.group_id) > STUCK_S:
            return
        tenure = "" if self._is_leaving else self._groups.tenure(request.group_id)
        is_loading = not (tenure or self._is_leaving) and self._groups.holds(request.group_id)
        requests = self._requests[where[0]]
        if isinstance(request, Ask) and self._is_known(requests, request):
            return
        if tenure != request.tenure and not is_loading:
            self._reply(request, Moved(id=_shown(request), asker=request.asker))
        elif isinstance(request, Probe):
            self._reply(request, self._alive(requests, request))
        elif is_loading:
            return  # the next answer to its asker says that the request is unknown, so it is sent again
        elif self._groups.clock.now_ms() > request.not_after_ms:
            late = Late(id=_shown(request), asker=request.asker, clock_ms=self._groups.clock.now_ms())
            self._reply(request, late)
        else:
            with self._receiving:
                received = requests.add(request, message.value() or b"", self._transport.now_s())
            if received is not None:
                requests.threads.submit(self._carry_out, requests, received)

    def _alive(self, requests: _Requests, probe: Probe) -> Alive:
        with self._receiving:
            unknown = tuple(each for each in probe.waiting if not requests.is_running(each))
        now_ms = self._groups.clock.now_ms()
        return Alive(id=probe.id, asker=probe.asker, tenure=probe.tenure, clock_ms=now_ms, unknown=unknown)

    def _is_known(self, requests: _Requests, ask: Ask) -> bool:
        """Whether the whole request has come before. If it was answered, the answer is written again."""
        shown = shown_id(ask.id)
        with self._receiving:
            kept = requests.kept.get(shown)
            if kept is None and not requests.is_running(shown):
                return False
            if kept is None:
                requests.received[shown].ask = ask
        if kept is not None and not ask.part:
            self._write_answer(ask, kept.answer)
        return True

    # --- the threads of the requests

    def _carry_out(self, requests: _Requests, received: _Received) -> None:
        answer: bytes | None = None
        try:
            answer = self._answer(requests, received)
        except Exception as error:
            self._once.warn("failed", f"a request of another host failed: {type(error).__name__}")
            raise
        finally:
            kept = None if answer is None or asks_again(answer) else answer
            with self._receiving:
                requests.end(received, kept, self._transport.now_s())
                ask = received.ask
        if answer is not None:
            self._write_answer(ask, answer)

    def _answer(self, requests: _Requests, received: _Received) -> bytes | None:
        """The answer to the request. None: the body does not match the request's id."""
        ask = received.ask
        body = b"".join(received.parts.get(number, b"") for number in range(ask.parts))
        received.parts.clear()
        if not is_whole(ask, body):
            self._once.warn("digest", "a request of another host was skipped, because its id has another digest")
            return None
        origin = FromAnotherHost(tenure=ask.tenure, not_after_ms=ask.not_after_ms, group_id=ask.group_id)
        named = replace(requests.caller, name=ask.by if TOKEN_NAME.fullmatch(ask.by) else "")
        # The host chose this name, which the log shows: a space could make it look like words of ours.
        host = re.sub(r"[^\w.:-]", "?", ask.host[:LONGEST_NAME])
        asker = Asker(named, f"host {host}", ask.protocol, origin=origin)
        return self._answer_to(ask.name, pa.py_buffer(body), asker)

    def _write_answer(self, ask: Ask, answer: bytes) -> None:
        written = uuid.uuid4().hex
        for part, parts, data in parts_of(answer):
            self._reply(ask, Answer(id=_shown(ask), asker=ask.asker, written=written, part=part, parts=parts), data)

    def _reply(self, request: Probe | Ask, reply: Reply, body: bytes = b"") -> None:
        assert self._writer is not None
        headers = headers_of_reply(reply, request.reply_key, body)
        self._writer.write(REPLIES, request.reply_to, request.asker, headers, body)


def _shown(request: Probe | Ask) -> str:
    """The id by which a reply names the record that it answers."""
    return shown_id(request.id) if isinstance(request, Ask) else request.id
