"""Keeps who is signed in: sessions with their CSRF tokens, and the actions that wait for a confirmation.

Rule: the browser holds a random name of a session and nothing else. Sessions, their pending actions and the attempts to
sign in are bounded in number and in time.
"""

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
"""Up to this many sessions are open at once; the oldest one ends for a new one."""
MOST_OF_A_TOKEN = 40
"""One token has up to this many sessions; its oldest one ends for a new one, and those of others stay."""
MOST_PENDING = 20
"""Up to this many actions of a session wait for their confirmation, and as many answers are kept; the oldest one is
dropped for a new one."""
OVER = "This action was carried out already, or its numbers are too old. Ask for it anew."
PENDING_S = 600.0
"""The numbers of a dry run may be confirmed for this many seconds."""
MOST_FAILURES, FAILURES_S, DELAY_S = 20, 60.0, 3.0
"""Up to MOST_FAILURES wrong tokens from one address within FAILURES_S seconds are answered at once; a further one after
DELAY_S seconds."""
MOST_ADDRESSES = 1_000
"""The wrong tokens of up to this many addresses are counted."""
MOST_STREAMS, MOST_STREAMS_OF_ONE = 64, 8
"""Up to MOST_STREAMS event streams are open at once, up to MOST_STREAMS_OF_ONE of them for one session."""


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """A person with a token, and the admin client that speaks for the person. ``caller``: the token's name, rights and
    allow lists at the sign-in; ``owns_admin``: the client ends with the session."""

    caller: Caller
    admin: Admin = field(repr=False)
    owns_admin: bool = False

    @property
    def name(self) -> str:
        """The token's name; empty: it has none."""
        return self.caller.name

    @property
    def is_admin(self) -> bool:
        """Whether the token may act."""
        return Right.ADMIN in self.caller.rights

    def close(self) -> None:
        """Close the admin client if no other session uses it."""
        if self.owns_admin:
            self.admin.close()


@dataclass(frozen=True, kw_only=True)
class Pending:
    """An action whose dry run was shown, and that waits for its confirmation. ``kind``: the name of the action;
    ``values``: the fields of its form."""

    kind: str
    values: dict[str, Any]
    until_s: float


@dataclass(kw_only=True)
class Session:
    """One person's session. ``streams``: the event streams that are open; ``holder``: the hash of the token; ``kept``:
    what forms were answered, by random names."""

    visitor: Visitor
    until_s: float
    holder: bytes = field(default=b"", repr=False)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    pending: OrderedDict[str, Pending] = field(default_factory=OrderedDict, repr=False)
    kept: OrderedDict[str, dict[str, Any]] = field(default_factory=OrderedDict, repr=False)
    streams: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def is_csrf(self, text: str) -> bool:
        """Whether the text is the session's CSRF token."""
        return hmac.compare_digest(self.csrf.encode(), text.encode())

    def ask_confirmation(self, kind: str, values: dict[str, Any]) -> str:
        """Keep an action until it is confirmed. Returns the name to confirm it by."""
        name = secrets.token_urlsafe(16)
        with self.lock:
            self.pending[name] = Pending(kind=kind, values=values, until_s=time.monotonic() + PENDING_S)
            while len(self.pending) > MOST_PENDING:
                self.pending.popitem(last=False)
        return name

    def waiting(self, name: str) -> Pending | None:
        """The action of this name that waits for its confirmation; None: there is none, or it is too old."""
        with self.lock:
            found = self.pending.get(name)
        return found if found is not None and found.until_s >= time.monotonic() else None

    def keep(self, values: dict[str, Any]) -> str:
        """Keep the answer to a form, for the page that shows it. Returns its name."""
        name = secrets.token_urlsafe(16)
        with self.lock:
            self.kept[name] = values
            while len(self.kept) > MOST_PENDING:
                self.kept.popitem(last=False)
        return name

    def confirmed(self, name: str) -> Pending:
        """The action of this name, which can be confirmed once.

        Raises:
            BadRequest: it was confirmed before, or too much time has gone by.
        """
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
        """The session of this name; None: it ended, or there was none."""
        with self._lock:
            found = self._sessions.get(_hash(name)) if name else None
        if found is not None and found.until_s <= self._clock():
            self.end(name)
            return None
        return found

    def end(self, name: str) -> None:
        """End the session of this name, if there is one."""
        with self._lock:
            found = self._sessions.pop(_hash(name), None)
        if found is not None:
            found.until_s = 0.0
            found.visitor.close()

    def close(self) -> None:
        """End the sessions of all."""
        with self._lock:
            ended, self._sessions = list(self._sessions.values()), OrderedDict()
        for session in ended:
            session.visitor.close()

    # --- limits

    def failed(self, address: str) -> float:
        """Records a failed login from this address. Returns the delay in seconds before the reply."""
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
        """Count an event stream of the session.

        Raises:
            TooManyOpen: there are too many.
        """
        with self._lock:
            if session.streams >= MOST_STREAMS_OF_ONE:
                raise TooManyOpen(what="Event streams of a session", most=MOST_STREAMS_OF_ONE)
            if sum(each.streams for each in self._sessions.values()) >= MOST_STREAMS:
                raise TooManyOpen(what="Event streams", most=MOST_STREAMS)
            session.streams += 1

    def close_stream(self, session: Session) -> None:
        """Count one event stream less."""
        with self._lock:
            session.streams -= 1


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()
