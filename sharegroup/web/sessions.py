"""Keeps who is signed in: sessions with their CSRF tokens, and the actions that wait for a confirmation.

Rule: the browser has only the random name of its session. Sessions, their pending actions and sign-in attempts are
limited in number and in time."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coordinator.protocol.rights import Caller, Right
from sharegroup.web.errors import BadRequest, TooManyOpen

if TYPE_CHECKING:
    from coordinator.admin.admin import Admin

LONGEST_S = 86_400.0
"""A session lasts this many seconds: a day."""
MOST_SESSIONS = 200
"""Up to this many sessions are open at once. A new one ends the oldest one."""
MOST_OF_A_TOKEN = 40
"""A token has up to this many sessions. A new one ends the token's oldest one, and no other token's."""
MOST_PENDING = 20
"""Up to this many actions of a session wait for their confirmation, and as many answers are kept. A new one replaces
the oldest one."""
OVER = "This action was carried out already, or its numbers are too old. Ask for it anew."
PENDING_S = 600.0
"""The numbers of a dry run can be confirmed for this many seconds."""
MOST_FAILURES, FAILURES_S, DELAY_S = 20, 60.0, 3.0
"""Up to MOST_FAILURES wrong tokens from one address within FAILURES_S seconds are answered at once, and further ones
after DELAY_S seconds."""
MOST_ADDRESSES = 1_000
"""Wrong tokens are counted for up to this many addresses."""
MOST_STREAMS, MOST_STREAMS_OF_ONE = 64, 8
"""Up to MOST_STREAMS event streams are open at once, up to MOST_STREAMS_OF_ONE of them for one session."""


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """A person with a token, and the admin client for the person's calls. ``caller``: the token's name, rights and
    allow lists at the sign-in; ``owns_admin``: the client is closed with the session."""

    caller: Caller
    admin: Admin = field(repr=False)
    owns_admin: bool = False

    @property
    def name(self) -> str:
        return self.caller.name

    @property
    def is_admin(self) -> bool:
        return Right.ADMIN in self.caller.rights

    def close(self) -> None:
        if self.owns_admin:
            self.admin.close()


@dataclass(frozen=True, kw_only=True)
class Pending:
    """An action whose dry run was shown, and that waits for its confirmation. ``values``: the fields of its form."""

    kind: str
    values: dict[str, Any]
    until_s: float


@dataclass(kw_only=True)
class Session:
    """One person's session. ``streams``: how many event streams are open; ``holder``: the hash of the token; ``kept``:
    the answers to forms, by random names."""

    visitor: Visitor
    until_s: float
    holder: bytes = field(default=b"", repr=False)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    pending: OrderedDict[str, Pending] = field(default_factory=OrderedDict, repr=False)
    kept: OrderedDict[str, dict[str, Any]] = field(default_factory=OrderedDict, repr=False)
    streams: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def is_csrf(self, text: str) -> bool:
        return hmac.compare_digest(self.csrf.encode(), text.encode())

    def ask_confirmation(self, kind: str, values: dict[str, Any]) -> str:
        """Keep an action until it is confirmed. Returns the name to confirm it by."""
        return self._put(self.pending, Pending(kind=kind, values=values, until_s=time.monotonic() + PENDING_S))

    def waiting(self, name: str) -> Pending | None:
        """Returns the action of this name if it waits for its confirmation and is not too old."""
        with self.lock:
            found = self.pending.get(name)
        return found if found is not None and found.until_s >= time.monotonic() else None

    def keep(self, values: dict[str, Any]) -> str:
        """Keep the answer to a form for the page that shows it. Returns its name."""
        return self._put(self.kept, values)

    def _put(self, kept: OrderedDict[str, Any], value: object) -> str:
        name = secrets.token_urlsafe(16)
        with self.lock:
            kept[name] = value
            while len(kept) > MOST_PENDING:
                kept.popitem(last=False)
        return name

    def confirmed(self, name: str) -> Pending:
        """Remove and return the pending action of this name: it can be confirmed only once. Raises BadRequest if it was
        confirmed already, or is too old."""
        with self.lock:
            found = self.pending.pop(name, None)
        if found is None or found.until_s < time.monotonic():
            raise BadRequest(what=OVER)
        return found


class Sessions:
    """All sessions of the page, by the hashes of their names."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, visitor: Visitor, token: str) -> str:
        """Begin a session. Returns its name, which the browser keeps."""
        name, holder = secrets.token_urlsafe(32), _hash(token)
        ended = []
        with self._lock:
            of_token = [key for key, each in self._sessions.items() if each.holder == holder]
            ended += [self._sessions.pop(key) for key in of_token[: max(0, len(of_token) + 1 - MOST_OF_A_TOKEN)]]
            self._sessions[_hash(name)] = Session(visitor=visitor, until_s=self._clock() + LONGEST_S, holder=holder)
            while len(self._sessions) > MOST_SESSIONS:
                ended.append(self._sessions.popitem(last=False)[1])
        for session in ended:
            session.visitor.close()
        return name

    def find(self, name: str) -> Session | None:
        """Returns the session of this name if it has not ended."""
        with self._lock:
            found = self._sessions.get(_hash(name)) if name else None
        if found is not None and found.until_s <= self._clock():
            self.end(name)
            return None
        return found

    def end(self, name: str) -> None:
        with self._lock:
            found = self._sessions.pop(_hash(name), None)
        if found is not None:
            found.until_s = 0.0
            found.visitor.close()

    def close(self) -> None:
        with self._lock:
            ended, self._sessions = list(self._sessions.values()), OrderedDict()
        for session in ended:
            session.visitor.close()

    # --- limits

    def failed(self, address: str) -> float:
        """Record a failed sign-in from this address. Returns the delay before the reply, in seconds."""
        now_s = self._clock()
        with self._lock:
            failed = self._failures.setdefault(address, deque(maxlen=MOST_FAILURES))
            is_late = len(failed) == MOST_FAILURES and now_s - failed[0] < FAILURES_S
            failed.append(now_s)
            self._failures.move_to_end(address)
            while len(self._failures) > MOST_ADDRESSES:
                self._failures.popitem(last=False)
        return DELAY_S if is_late else 0.0

    def open_stream(self, session: Session) -> None:
        """Count an event stream of the session. Raises TooManyOpen if there are too many."""
        with self._lock:
            if session.streams >= MOST_STREAMS_OF_ONE:
                raise TooManyOpen(what="Event streams of a session", most=MOST_STREAMS_OF_ONE)
            if sum(each.streams for each in self._sessions.values()) >= MOST_STREAMS:
                raise TooManyOpen(what="Event streams", most=MOST_STREAMS)
            session.streams += 1

    def close_stream(self, session: Session) -> None:
        with self._lock:
            session.streams -= 1


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()
