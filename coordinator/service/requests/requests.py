"""What happens to every request, whether a client or another host sent it: checks, the owner of its group, the audit
log, the count of running requests, its handler.

Rule: no body, however malformed, and no error ends the service; every error is returned as a named error. These checks
are made in this order: the protocol version, the right, the size of the body; then, by the group's owner, the JSON, the
rows, and the token's allow lists. Arrow rows come in the body: a stream of Flight would be decompressed before this
code could look at it (37 kB took 1.2 GB)."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from typing import Any, Protocol, TypeAlias

import msgspec
import pyarrow as pa

from coordinator.config.resolved import ServerConfig
from coordinator.protocol.admin_messages import Action, ListGroups
from coordinator.protocol.errors import (
    CoordinatorNotAvailable,
    CoordinatorOverloaded,
    CoordinatorVersionMismatch,
    GroupNotAllowed,
    InternalError,
    InvalidRequest,
    NotAllowed,
    RequestTooLarge,
    ShareGroupError,
    TopicNotAllowed,
)
from coordinator.protocol.format_versions import PROTOCOL
from coordinator.protocol.messages import Done, Heartbeat, Message, Request
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.rights import Right
from coordinator.protocol.wire import Health, Healthy, StepDown, TokenHolder, WhoAmI, encode, encode_error, request_name
from coordinator.service.requests.allow_lists import check_allowed, limited, shown_to
from coordinator.service.requests.asker import Asker
from coordinator.service.requests.audit import Refusals, begun, ended
from coordinator.service.requests.decoding import Head, head_of, request_of
from coordinator.service.runtime.transaction import ORIGIN

Handle: TypeAlias = Callable[[Request[Any]], Message]
Counting: TypeAlias = Callable[[Request[Any]], contextlib.AbstractContextManager[object]]

_log = logging.getLogger(__name__)


class Owners(Protocol):
    """The owners of groups, on this host and on others."""

    def answered(self, name: str, body: pa.Buffer, head: Head, asker: Asker, here: Callable[[], bytes]) -> bytes:
        """The answer of the group's owner. ``here`` answers as this process."""


class Requests:
    """Answers the requests of clients and of other hosts, from any thread. Those that need a handler are refused before
    :meth:`begin` and after :meth:`end`.

    ``step_down`` is called with the reason why this coordinator shall leave; None: it refuses to. ``open_keys``: as in
    TokenHolder."""

    def __init__(
        self,
        *,
        version: str = "",
        limits: ServerConfig | None = None,
        open_keys: tuple[str, ...] = (),
        once: LogOnce | None = None,
        step_down: Callable[[str], None] | None = None,
    ) -> None:
        limits = limits or ServerConfig.parse()
        self._version, self._open_keys, self._step_down = version, open_keys, step_down
        self._max_requests, self._max_bytes = limits.queued_max_requests, limits.socket_request_max_bytes
        self._once = once or LogOnce(_log)
        self._refusals = Refusals()
        self._handle: Handle | None = None
        self._owners: Owners | None = None
        self._measured: Counting = contextlib.nullcontext
        self._counting = threading.Lock()
        self._running: Counter[frozenset[Right] | None] = Counter()
        """How many requests of this host (None) are handled, and of other hosts by right."""
        self._last_request_s = time.monotonic()

    def begin(
        self, handle: Handle, owners: Owners | None = None, measured: Counting = contextlib.nullcontext
    ) -> Requests:
        """Start to serve. ``handle`` answers all requests but those about the process, each in the context
        ``measured``. ``owners`` None: this process owns every group that it is asked for."""
        self._owners, self._measured, self._handle = owners, measured, handle
        return self

    def end(self) -> None:
        """Refuse requests that are not yet being handled."""
        self._handle = None

    @property
    def idle_s(self) -> float:
        """Seconds since the last request of this host; 0 while any runs. Health does not count."""
        with self._counting:
            return 0.0 if self._running.total() else time.monotonic() - self._last_request_s

    def answer(self, name: str, body: pa.Buffer, asker: Asker) -> bytes:
        """Returns the reply, or an encoded named error."""
        try:
            self._check_protocol(asker.protocol, name)
            with self._telling(asker, name):
                asker.caller.check(name)
            if body.size > self._max_bytes:
                raise RequestTooLarge(name=request_name(name), size_bytes=body.size, limit_bytes=self._max_bytes)
            if self._owners is None or asker.origin is not None:
                return self._here(name, body, asker)
            return self._by_owner(self._owners, name, body, asker)
        except ShareGroupError as error:
            self._say_refused(error)
            return encode_error(error)
        except Exception as error:  # noqa: BLE001 - our mistake in one request must reach its caller by name
            _log.exception("request failed: %s", request_name(name))
            return encode_error(InternalError(what=request_name(name), reason=type(error).__name__))

    def _by_owner(self, owners: Owners, name: str, body: pa.Buffer, asker: Asker) -> bytes:
        head = head_of(name, body)
        if not head.group_id:
            return self._here(name, body, asker)
        here = partial(self._here, name, body, asker)
        if asker.caller.is_bound:  # checked here, since an owner on another host does not know the token
            request = request_of(name, body)
            bound = self._check_allowed(asker, request)
            here = partial(self._allowed, bound, asker)
            if isinstance(request, ListGroups) and not request.group_ids:  # such a request is about all groups
                return here()
            body = body if bound is request else pa.py_buffer(encode(bound))
        return owners.answered(name, body, head, asker, here)

    def _here(self, name: str, body: pa.Buffer, asker: Asker) -> bytes:
        return self._allowed(self._check_allowed(asker, request_of(name, body)), asker)

    def _allowed(self, request: Request[Any], asker: Asker) -> bytes:
        if isinstance(request, Health):
            ready = self._handle is not None
            return encode(Healthy(pid=os.getpid(), protocol=PROTOCOL, version=self._version, ready=ready))
        if isinstance(request, WhoAmI):
            rights = tuple(sorted(right.value for right in asker.caller.rights))
            caller, topics = asker.caller, asker.caller.topics
            return encode(
                TokenHolder(
                    name=caller.name,
                    rights=rights,
                    open_keys=self._open_keys,
                    groups=caller.groups,
                    topics=topics.source,
                    dead_letters=topics.dead_letters,
                )
            )
        if isinstance(request, StepDown) and self._step_down is not None and asker.origin is None:
            self._step_down(request.reason)
            return encode(Done())
        if isinstance(request, Action):
            return encode(self._audited(request, asker))
        return encode(shown_to(asker.caller, self._handled(request, asker)))

    def _check_protocol(self, protocol: str, name: str) -> None:
        """Check the client's version. Another version may send Health alone, whose answer names this one. Raises
        CoordinatorVersionMismatch if the client speaks another version of the protocol, or names none."""
        if protocol != str(PROTOCOL) and name != Health.__name__:
            theirs = f"{PROTOCOL} (sharegroup {self._version})"
            raise CoordinatorVersionMismatch(pid=os.getpid(), theirs=theirs, ours=protocol[:20] or "of no version")

    def _check_allowed(self, asker: Asker, request: Request[Any]) -> Request[Any]:
        """Check that the allow lists of the asker's token have the group and the topics of the request. Returns the
        request with the limits of its dead letter topic. Raises GroupNotAllowed or TopicNotAllowed if they do not."""
        if not asker.caller.is_bound:
            return request
        with self._telling(asker, type(request).__name__):
            check_allowed(asker.caller, request)
        return limited(asker.caller, request)

    @contextlib.contextmanager
    def _telling(self, asker: Asker, name: str) -> Iterator[None]:
        """A context that logs refusals of the asker's token, in the audit log and the log."""
        try:
            yield
        except (NotAllowed, GroupNotAllowed, TopicNotAllowed) as error:
            self._refusals.log(asker.caller, asker.peer, name, error)
            self._once.warn("right", f"a request was refused: {error}")
            raise

    def _audited(self, request: Action[Any], asker: Asker) -> Message:
        caller = asker.caller
        begun(caller, asker.peer, request)
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        try:
            by = f"{caller} from {asker.peer} at {now}"
            answer = self._handled(msgspec.structs.replace(request, by=by, name=caller.name), asker)
        except Exception as error:
            ended(caller, asker.peer, request, error)
            raise
        ended(caller, asker.peer, request, answer)
        return answer

    def _say_refused(self, error: ShareGroupError) -> None:
        """Log a refusal that points to a faulty client or an overload of this process."""
        if isinstance(error, (InvalidRequest, RequestTooLarge, CoordinatorOverloaded, CoordinatorVersionMismatch)):
            self._once.warn(type(error).__name__, f"a request was refused: {type(error).__name__}: {str(error)[:200]}")

    def _handled(self, request: Request[Any], asker: Asker) -> Message:
        """Handle the request unless too many requests run. A heartbeat is never refused: a full queue must end no
        session. Other hosts' requests are counted separately for each right, and may be half as many."""
        of = None if asker.origin is None else asker.caller.rights
        limit = self._max_requests if of is None else max(1, self._max_requests // 2)
        with self._counting:
            if self._running[of] >= limit and not isinstance(request, Heartbeat):
                raise CoordinatorOverloaded(limit=limit)
            self._running[of] += 1
        before = ORIGIN.set(asker.origin)
        try:
            if (handle := self._handle) is None:
                raise CoordinatorNotAvailable(group_id=getattr(request, "group_id", ""), reason="it is not ready")
            with self._measured(request):
                return handle(request)
        finally:
            ORIGIN.reset(before)
            with self._counting:
                self._running[of] -= 1
                if of is None:
                    self._last_request_s = time.monotonic()
