"""The two ends of the requests between hosts, without threads, brokers and time: what an owner replies to a record, and
what an asker makes of the replies, or of silence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from types import SimpleNamespace
from typing import Any

from coordinator.protocol.host_records import (
    REQUESTS,
    VERSION,
    Alive,
    Ask,
    Echo,
    Headers,
    Moved,
    Probe,
    Reply,
    Tick,
    headers_of_reply,
    headers_of_request,
    id_of_request,
    read_reply,
    read_request,
)
from coordinator.protocol.messages import Done, Heartbeat
from coordinator.protocol.wire import encode
from coordinator.service.hosts.gateway import Gateway
from coordinator.service.hosts.owner_requests import AnswerTo, OwnerRequests
from coordinator.service.hosts.topics import request_partition_of
from coordinator.service.requests.asker import Asker as Asking
from coordinator.state_log.owner_record import Owner

GROUP, KEY = "billing", b"k" * 32
BEGIN_S = 100.0
A_REQUEST = encode(Heartbeat(group_id=GROUP, member_id="m", member_epoch=1))


def owner_of(host: str, process: str = "p1", **fields: Any) -> Owner:
    """A coordinator on demand of that host, as an owner of the group."""
    return Owner(**{"installation_id": host, "process": process, "host": host, "pid": 1, "answers": VERSION, **fields})


def record(
    headers: Headers, body: bytes = b"", *, key: str = "", topic: str = "share-group-requests", offset: int = 0
) -> Any:
    """A record as confluent_kafka gives it."""
    return SimpleNamespace(
        headers=lambda: headers,
        value=lambda: body,
        key=key.encode,
        topic=lambda: topic,
        partition=lambda: request_partition_of(GROUP),
        offset=lambda: offset,
    )


def probe(**fields: Any) -> Probe:
    """A question to the process p1 in its tenure t1."""
    given = {"id": "q1", "asker": "asker", "process": "p1", "tenure": "t1", **fields}
    return Probe(group_id=GROUP, reply_to=0, reply_key=KEY, **given)


def ask(**fields: Any) -> Ask:
    """A request to the process p1 in its tenure t1, up to 1,000 on its clock: A_REQUEST, unless ``id`` is another."""
    request_id = id_of_request("r1", "Heartbeat", A_REQUEST)
    given = {"id": request_id, "asker": "asker", "process": "p1", "tenure": "t1", "not_after_ms": 1_000, **fields}
    given = {"name": "Heartbeat", "protocol": "4", **given}
    return Ask(group_id=GROUP, reply_to=0, reply_key=KEY, host="two", **given)


class Groups:
    """The one group of an owner."""

    def __init__(self, owner: AskedOwner) -> None:
        self._owner = owner
        self.clock: Any = SimpleNamespace(now_ms=lambda: owner.now_ms)

    def held_groups(self) -> set[str]:
        return {GROUP} if self._owner.held else set()

    def tenure(self, group_id: str) -> str:
        return self._owner.tenure

    def holds(self, group_id: str) -> bool:
        return self._owner.held

    def stuck_s(self, group_id: str) -> float:
        return self._owner.stuck

    def unheard(self, group_ids: Iterable[str], ms: int) -> None:
        self._owner.unheard_ms.append(ms)


class AskedOwner:
    """The owner's end. ``tenure``: the group's here; empty: it is not served. ``holds``: it is, or is loaded again
    soon. ``replies`` has what was written to askers, ``answers`` their bodies; ``handled`` what was carried out.
    ``answer``: what answers requests in its place."""

    def __init__(
        self,
        *,
        tenure: str = "t1",
        holds: bool = True,
        leaving: bool = False,
        now_ms: int = 500,
        answer: AnswerTo | None = None,
    ) -> None:
        self.tenure, self.held, self.now_ms, self.stuck = tenure, holds, now_ms, 0.0
        self.replies: list[Reply] = []
        self.answers: list[bytes] = []
        self.handled: list[bytes] = []
        self.askers: list[Asking] = []
        self.answer = encode(Done())
        self.unheard_ms: list[int] = []
        self.time_s = BEGIN_S
        transport: Any = SimpleNamespace(
            now_s=lambda: self.time_s,
            event=lambda: None,
            start=lambda *given: None,
            pool=lambda *given: SimpleNamespace(submit=lambda work, *values: work(*values)),
        )
        self.requests = OwnerRequests(transport, Groups(self), owner_of("one"), answer or self._handle)
        self.requests._writer = SimpleNamespace(write=self._write)  # type: ignore[assignment]
        if leaving:
            self.requests.leave()

    def reads(self, request: Probe | Ask | Tick, body: bytes = A_REQUEST, topic: str = REQUESTS) -> list[Reply]:
        """The replies to the record."""
        before = len(self.replies)
        self.requests._on_record(record(headers_of_request(request), body, topic=topic))
        return self.replies[before:]

    def looks_later(self, seconds: float) -> list[int]:
        """The times that count against no member, in ms, after a look so much later at a partition that is read."""
        before, where = len(self.unheard_ms), (REQUESTS, request_partition_of(GROUP))
        for times in (self.requests._last_s, self.requests._ticks_s):
            times.setdefault(where, self.time_s)
        self.time_s += seconds
        self.requests._tick([GROUP])
        return self.unheard_ms[before:]

    def _handle(self, name: str, body: Any, asker: Asking) -> bytes:
        self.handled.append(body.to_pybytes())
        self.askers.append(asker)
        return self.answer

    def _write(self, topic: str, partition: int, key: str, headers: Headers, body: bytes = b"", **_: Any) -> None:
        reply = read_reply(headers)
        if reply is not None:
            self.replies.append(reply)
            self.answers.append(body)


class Asker:
    """The asker's end, and its transport. ``takes``: the brokers take questions. ``reply``: what the owner writes to
    each question, "alive" or "moved"; empty: nothing. ``is_late``: the asker has not read it when the patience is over.
    ``reads``: it can read its replies. ``key``: that of the reply's proof; empty: the question's. ``is_anew``: the
    replies' topic is made anew before the echo. ``drawn``: the number that it draws."""

    drawn = 0

    def __init__(
        self,
        reply: str = "",
        *,
        is_late: bool = False,
        takes: bool = True,
        reads: bool = True,
        key: bytes = b"",
        is_anew: bool = False,
    ) -> None:
        self._end, self._is_anew = 5, is_anew
        self.reply, self.is_late, self.takes, self.reads, self.key = reply, is_late, takes, reads, key
        self.time_s, self.echoes, self.ensured = BEGIN_S, 0, 0
        self._unread: list[Any] = []
        self._on_record: Callable[[Any], None] = lambda message: None
        self.gateway = Gateway(self, owner_of("two", "asker"))  # type: ignore[arg-type]

    def look(self, asked: Owner) -> str:
        """How the question whether the owner lives ends: the name of the error; empty: it lives."""
        try:
            self.gateway.check_lives(GROUP, asked)
        except Exception as error:  # noqa: BLE001 - the caller compares it
            return type(error).__name__
        return ""

    # --- as the transport

    def now_s(self) -> float:
        return self.time_s

    def event(self) -> Any:
        """An event; who waits for it makes the time pass."""
        found = SimpleNamespace(is_set=False)

        def wait(timeout_s: float) -> bool:
            self.time_s += 0.0 if found.is_set else timeout_s
            return bool(found.is_set)

        return SimpleNamespace(wait=wait, set=lambda: setattr(found, "is_set", True), is_set=lambda: found.is_set)

    def any_below(self, end: int) -> int:
        return min(self.drawn, end - 1)

    def ensure(self, needed: Any) -> None:
        self.ensured += 1

    def lacking(self, needed: Any) -> list[str]:
        return []

    def ends(self, partitions: Any, timeout_s: float = inf) -> dict[Any, int]:
        return dict.fromkeys(partitions, self._end)

    def log_end(self, group_id: str) -> int:
        return 1

    def writer(self) -> Any:
        return self

    def reader(self, on_record: Callable[[Any], None], name: str) -> Any:
        self._on_record = on_record
        return SimpleNamespace(add=lambda offsets: None, begin_anew=lambda: None)

    # --- as the writer

    def write(
        self, topic: str, partition: int, key: str, headers: Headers, body: bytes = b"", written: Any = None
    ) -> None:
        written(self.takes)
        request, echo = read_request(headers), read_reply(headers)
        if isinstance(echo, Echo):
            self.echoes += 1
            self._end = 0 if self._is_anew else self._end
            self._append(headers, key)
            self._read(self.reads)
        elif isinstance(request, Probe) and self.takes:
            if self.reply:
                self._tell(request)
            self._read(self.reads and not self.is_late)

    def _tell(self, request: Probe) -> None:
        who = {"id": request.id, "asker": request.asker}
        reply = Alive(**who, tenure=request.tenure, clock_ms=0) if self.reply == "alive" else Moved(**who)
        self._append(headers_of_reply(reply, self.key or request.reply_key), request.asker)

    def _append(self, headers: Headers, key: str) -> None:
        self._unread.append(record(headers, key=key, offset=self._end))
        self._end += 1

    def _read(self, may: bool) -> None:
        while may and self._unread:
            self._on_record(self._unread.pop(0))
