"""A member's session: it joins, sends heartbeats in the background, joins again after a lapse, and ends when fenced.

Rule: the next call of a fenced member raises FencedMemberEpoch, and the member never joins again by itself. If it did,
two processes would fence each other in turn."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypedDict

import msgspec

from coordinator.client.client import CoordinatorClient
from coordinator.client.config_lines import log_changes
from coordinator.client.connection import CALL_TIMEOUT_S
from coordinator.client.endings import tell_ending
from coordinator.client.on_demand import OnDemand
from coordinator.config.resolved import GroupConfig
from coordinator.protocol.errors import FencedMemberEpoch, ShareGroupError, UnknownMemberId
from coordinator.protocol.messages import (
    AcquiredReply,
    DescribeGroup,
    GroupDescription,
    GroupRequest,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    MarkInProgress,
    MemberRequest,
    Reply,
)
from coordinator.protocol.values import client_text

HEARTBEATS_PER_SESSION = 3
LONGEST_HEARTBEAT_S = 10.0
"""A heartbeat is sent again, perhaps to another coordinator, after this many seconds without an answer, or sooner."""
MAX_REJOINS = 5
"""One call joins up to this many times: after a join the group may be loaded again, which ends all sessions."""

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


class Identity(TypedDict):
    """The fields of a :class:`MemberRequest` that name the member and its epoch."""

    group_id: str
    member_id: str
    member_epoch: int


RequestOf: TypeAlias = Callable[[Identity], MemberRequest[Reply]]
"""Returns the request of this member, as ``lambda who: NextPlan(**who, wait_ms=0)`` does. Called anew for each attempt,
since a later one may be under a later epoch."""


class MemberSession:
    """The membership of one process in a group. Thread-safe. ``rejoins``: how often it has joined again after a lapse.
    ``lives_until_s``: before this time, in monotonic seconds, it can't lapse. ``lock_s``: the locks of its records last
    up to this many seconds after its last request."""

    def __init__(
        self,
        client: CoordinatorClient,
        group_id: str,
        member_id: str,
        *,
        query: bool = True,
        topics: tuple[str, ...] = (),
        topic_pattern: str | None = None,
        assign: dict[str, tuple[int, ...]] | None = None,
        configs: Mapping[str, str] | None = None,
        starting_offsets: str | None = None,
        member_name: str = "",
        client_id: str = "",
        client_pid: int = 0,
        idle_after_s: float = math.inf,
        lock_s: float = 0.0,
        leaves_when_idle: bool = False,
        heard: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        """Joins the group at once. ``idle_after_s``: a member that sends no request for this long sends no heartbeats
        until its next request, so that its session ends and others get its partitions. It counts as idle only when the
        locks of its records have ended as well. ``leaves_when_idle``: the member then leaves the group. ``lock_s``: how
        many seconds a lock lasts, for records that an earlier session acquired. ``member_name``, ``client_id``,
        ``client_pid``: as in JoinGroup; without a process id, this process is named. ``heard`` is called with the
        seconds that each heartbeat's answer took. Raises ShareGroupError if the join failed (the errors of
        :meth:`CoordinatorClient.call`)."""
        self._client, self.group_id, self.member_id = client, group_id, member_id
        self._request = JoinGroup(
            group_id=group_id,
            member_id=member_id,
            process_id=uuid.uuid4().hex,
            query=query,
            topics=topics,
            topic_pattern=topic_pattern,
            assign=assign,
            configs=dict(configs or {}),
            starting_offsets=starting_offsets,
            member_name=client_text(member_name),
            client_id=client_text(client_id),
            client_host=client_text(socket.gethostname()),
            client_pid=client_pid or os.getpid(),
        )
        self._joining, self._closing = threading.Lock(), threading.Lock()
        self._fenced: FencedMemberEpoch | None = None
        self._told = ""
        self._idle_after_s, self._leaves_when_idle, self._heard = idle_after_s, leaves_when_idle, heard
        self.lock_s, self._asked_s = lock_s, time.monotonic()
        self.rejoins, began_s = 0, time.monotonic()
        try:
            self.joined = client.call(self._request)
        except ShareGroupError as error:
            tell_ending(client, group_id, error, member_id=member_id, process_id=self._request.process_id)
            raise
        self.lives_until_s = began_s + self.joined.session_timeout_ms / 1000
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"share-heartbeat-{member_id}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        state = "fenced" if self._fenced else "closed" if self._closed.is_set() else f"epoch={self.member_epoch}"
        return f"<MemberSession {self.group_id}/{self.member_id} {state}>"

    @property
    def member_epoch(self) -> int:
        return self.joined.member_epoch

    @property
    def isolation_level(self) -> str:
        return self.joined.isolation_level

    @property
    def fenced(self) -> bool:
        """Whether another process, or another session of this one, has the member's epoch."""
        return self._fenced is not None

    @property
    def coordinator(self) -> str:
        return self._client.coordinator_of(self.group_id)

    @property
    def on_demand(self) -> OnDemand | None:
        return self._client.on_demand

    def call(self, request_of: RequestOf[Reply]) -> Reply:
        """Sends the request as this member. If the session has lapsed, the member joins again under its own epoch, and
        the request is sent again.

        Raises:
            FencedMemberEpoch: a newer process has the member's epoch; every later call raises it again.
            ShareGroupError: see :meth:`CoordinatorClient.call`."""
        for _ in range(MAX_REJOINS):
            try:
                return self._call(request_of)
            except UnknownMemberId:
                self._join_again()
        return self._call(request_of)

    def call_with_rows(self, request: GroupRequest[Reply], rows: pa.Table) -> Reply:
        """The reply to a request of no member, whose records come as Arrow rows beside it."""
        return self._client.call_with_rows(request, rows)

    def describe(self) -> GroupDescription:
        return self._client.call(DescribeGroup(group_id=self.group_id))

    def tell_ending(self, error: ShareGroupError) -> None:
        """Tell the group that this process ends with the error, once, as far as the group can be told now."""
        if self._told == (told := type(error).__name__):
            return
        self._told = told
        who = {"member_id": self.member_id, "member_epoch": self.member_epoch}
        tell_ending(self._client, self.group_id, error, **who)

    def close(self, *, leave: bool = False) -> bool:
        """Stop the heartbeats. The session ends at its timeout, or now with ``leave``. False: it was closed before."""
        with self._closing:
            if self._closed.is_set():
                return False
            self._closed.set()
        if leave and self._fenced is None:
            with contextlib.suppress(ShareGroupError):
                self._call(lambda who: LeaveGroup(**who))
        return True

    def _call(self, request_of: RequestOf[Reply]) -> Reply:
        if self._fenced is not None:
            raise self._fenced
        request = request_of(
            {"group_id": self.group_id, "member_id": self.member_id, "member_epoch": self.member_epoch}
        )
        is_heartbeat = isinstance(request, Heartbeat)
        if not is_heartbeat:
            self._asked_s = time.monotonic()
        reply = self._send(request, heartbeat_timeout_s(self.joined) if is_heartbeat else CALL_TIMEOUT_S)
        if not is_heartbeat:
            self._asked_s = time.monotonic()
        if isinstance(reply, AcquiredReply) and reply.plan_id:
            self.lock_s = reply.lock_timeout_ms / 1000
        elif isinstance(request, MarkInProgress):
            configs = GroupConfig.parse(self.joined.configs)
            self.lock_s = max(self.lock_s, configs.group_share_in_progress_staleness_threshold_ms / 1000)
        return reply

    def _send(self, request: GroupRequest[Reply], answer_timeout_s: float) -> Reply:
        try:
            return self._client.call(request, answer_timeout_s=answer_timeout_s)
        except FencedMemberEpoch as error:
            self._fenced = error
            raise

    @property
    def _idle_s(self) -> float:
        """If the member is idle, seconds since its last request; else 0."""
        idle_s = time.monotonic() - self._asked_s
        return idle_s if idle_s > max(self._idle_after_s, self.lock_s) else 0.0

    def _join_again(self) -> None:
        with self._joining:
            if self._fenced is not None:
                raise self._fenced
            if self._closed.is_set():
                raise UnknownMemberId(member_id=self.member_id, group_id=self.group_id)
            _log.warning(
                "share group %s: the session of member %s lapsed, or its coordinator was replaced; it comes back with "
                "epoch %d",
                self.group_id,
                self.member_id,
                self.member_epoch,
            )
            join = msgspec.structs.replace(self._request, member_epoch=self.member_epoch)
            self.rejoins += 1
            began_s = time.monotonic()
            # The join gets a heartbeat's timeout: it takes the heartbeat's place, and the coordinator may stall again.
            self._take(self._send(join, heartbeat_timeout_s(self.joined)), began_s)

    def _beat(self) -> None:
        was_idle = False
        while not self._closed.wait(self.joined.heartbeat_interval_ms / 1000) and self._fenced is None:
            if idle_s := self._idle_s:
                if self._leaves_when_idle:
                    self.close(leave=True)
                    return
                if not was_idle:
                    _log.warning(
                        "share group %s: member %s has asked for nothing for %.0f s (max.poll.interval.ms): it sends "
                        "no heartbeats until its next request, so that other members get its partitions",
                        self.group_id,
                        self.member_id,
                        idle_s,
                    )
                was_idle = True
                continue
            was_idle = False
            began_s = time.monotonic()
            try:
                self._take(self.call(lambda who: Heartbeat(**who)), began_s)
                self._heard(time.monotonic() - began_s)
            except ShareGroupError as error:
                # A fence is raised by the next call; after other errors the next heartbeat retries.
                if not self._closed.is_set():
                    _log.warning(
                        "share group %s: a heartbeat of member %s failed: %s", self.group_id, self.member_id, error
                    )
            except Exception:  # noqa: BLE001 - without heartbeats each long batch would lose its locks
                _log.exception("share group %s: a heartbeat of member %s failed", self.group_id, self.member_id)

    def _take(self, joined: Joined, began_s: float) -> None:
        """Apply an answer of the coordinator to a request sent at ``began_s``. Logs configs that others changed."""
        before, self.joined = self.joined, joined
        self.lives_until_s = max(self.lives_until_s, began_s + joined.session_timeout_ms / 1000)
        log_changes(before, joined, self._request.configs)


def heartbeat_timeout_s(joined: Joined) -> float:
    """A heartbeat, or the join of a lapsed session, waits this many seconds for its answer: well below the session
    timeout, so that the next one is in time."""
    return min(joined.session_timeout_ms / 1000 / HEARTBEATS_PER_SESSION, LONGEST_HEARTBEAT_S)
