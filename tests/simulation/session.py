"""A member's session in the simulation: asks and asks again, joins, comes back after a lapse, ends when it is fenced.

What :class:`coordinator.client.session.MemberSession` and the client under it do, as tasks of a simulated process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import count
from typing import Any

import msgspec

from coordinator.client.session import Identity, RequestOf, heartbeat_timeout_s
from coordinator.protocol.errors import (
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    GroupTakenOver,
    MemberForgotten,
    NotCoordinator,
    ShareGroupError,
    UnknownMemberId,
)
from coordinator.protocol.messages import Heartbeat, Joined, JoinGroup
from tests.simulation.broker import TOPIC
from tests.simulation.network import NO_ANSWER, Network, Server
from tests.simulation.simulated_world import Gone, Process

GROUP = "billing"
PATTERN = f"{TOPIC}.*"
ANSWER_TIMEOUT_MS = 3_000
"""A request is sent again after this many ms: less than in the product, so that there are many.
:attr:`Session.answer_timeout_ms` may be the product's."""
RETRY_TIMEOUT_MS = 60_000
"""A call fails after this many ms of retries: less than in the product. :attr:`Session.retry_timeout_ms` may be the
product's."""
OUTAGE_TIMEOUT_MS = 300_000
"""A call fails after an outage of this many ms, as in the product (share.broker.outage.timeout.ms)."""

Answer = Generator[Any, Any, Any]
Find = Callable[[], Server | None]


class Session:
    """One process's membership in the group. ``find`` says which coordinator an endpoint file names now."""

    answer_timeout_ms = ANSWER_TIMEOUT_MS
    retry_timeout_ms = RETRY_TIMEOUT_MS

    def __init__(self, process: Process, network: Network, find: Find, member_id: str, **join: Any) -> None:
        join = {"topics": (TOPIC,), **join}
        self.process, self.world, self.network, self.find = process, process.world, network, find
        self.member_id = member_id
        self.member_epoch, self.rejoins, self.lives_until_ms = 0, 0, 0
        self.configs: dict[str, str] = join.get("configs", {})
        self._join = JoinGroup(group_id=GROUP, member_id=member_id, process_id=process.name, **join)
        self._connection: Server | None = None
        self._fenced: FencedMemberEpoch | None = None
        self._joined: Joined | None = None
        self._requests = count(1)

    @property
    def joins(self) -> tuple[int, int]:
        """Which session it is, as :attr:`Membership.joins` says it."""
        return self.member_epoch, self.rejoins

    def join(self) -> Answer:
        """Become a member, and begin to send heartbeats."""
        yield from self._join_with(None)
        self.process.spawn(self._beat())

    def call(self, request_of: RequestOf[Any]) -> Answer:
        """The answer to this member's request, or a ShareGroupError. Gone when it is fenced."""
        while True:
            try:
                return (yield from self._call(request_of))
            except UnknownMemberId:  # again, if the coordinator dies again in between
                self.rejoins += 1
                yield from self._join_with(self.member_epoch)

    def ask(self, request: Any) -> Answer:
        """The answer to a request that names no member, as a sink's."""
        return (yield from self._ask(request))

    # --- inside

    def _call(self, request_of: RequestOf[Any]) -> Answer:
        if self._fenced is not None:
            raise Gone("fenced")
        who: Identity = {"group_id": GROUP, "member_id": self.member_id, "member_epoch": self.member_epoch}
        return (yield from self._ask(request_of(who)))

    def _join_with(self, epoch: int | None) -> Answer:
        began_ms = self.world.now_ms
        joined = yield from self._ask(msgspec.structs.replace(self._join, member_epoch=epoch))
        self.member_epoch = joined.member_epoch
        self._take(joined, began_ms)

    def _take(self, joined: Joined, began_ms: int) -> None:
        self._joined, self.lives_until_ms = joined, max(self.lives_until_ms, began_ms + joined.session_timeout_ms)

    def _ask(self, request: Any) -> Answer:
        """Until there is an answer: every request may be repeated, by protocol."""
        until_ms = self.world.now_ms + self.retry_timeout_ms
        request_id = f"{self.process.name}-{next(self._requests)}"
        while self.world.now_ms < until_ms:
            if self._connection is None:
                self._connection = self.find()
            if self._connection is not None:
                answer = yield self.network.ask(self._connection, request, self._timeout_ms(request), request_id)
                if answer is NO_ANSWER:
                    self._connection = None
                elif isinstance(answer, FencedMemberEpoch):
                    self._fenced = answer
                    raise Gone("fenced")
                elif isinstance(answer, NotCoordinator):
                    self._connection = None
                elif not isinstance(answer, ShareGroupError):
                    return answer
                elif not answer.retriable:
                    raise answer
            yield self.world.between(50, 2_000)
        self._connection = None
        raise CoordinatorNotAvailable(group_id=GROUP, reason="it does not answer")

    def _timeout_ms(self, request: Any) -> int:
        if not isinstance(request, Heartbeat | JoinGroup) or self._joined is None:
            return self.answer_timeout_ms
        return min(self.answer_timeout_ms, int(heartbeat_timeout_s(self._joined) * 1000))

    def _beat(self) -> Answer:
        while True:
            assert self._joined is not None
            yield self._joined.heartbeat_interval_ms
            began_ms = self.world.now_ms
            try:
                self._take((yield from self.call(lambda who: Heartbeat(**who))), began_ms)
            except (CoordinatorNotAvailable, GroupTakenOver):
                continue  # the next heartbeat tries again
            except (Gone, MemberForgotten):
                return  # the next call raises it
