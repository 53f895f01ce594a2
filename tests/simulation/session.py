"""A member's session in the simulation: asks and asks again, joins, comes back after a lapse, ends when it is fenced.

What :class:`coordinator.client.session.MemberSession` and the client under it do, as tasks of a simulated process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import msgspec

from coordinator.protocol.errors import CoordinatorNotAvailable, FencedMemberEpoch, ShareGroupError, UnknownMemberId
from coordinator.protocol.messages import Heartbeat, JoinGroup
from tests.simulation.broker import TOPIC
from tests.simulation.network import NO_ANSWER, Network, Server
from tests.simulation.world import Gone, Process

GROUP = "billing"
ANSWER_TIMEOUT_MS = 3_000
RETRY_TIMEOUT_MS = 60_000

Answer = Generator[Any, Any, Any]
Find = Callable[[], Server | None]


class Session:
    """One process's membership in the group. ``find`` says which coordinator an endpoint file names now."""

    def __init__(self, process: Process, network: Network, find: Find, member_id: str, **join: Any) -> None:
        self.process, self.world, self.network, self.find = process, process.world, network, find
        self.member_id = member_id
        self.member_epoch = 0
        self._join = JoinGroup(group_id=GROUP, member_id=member_id, process_id=process.name, topics=(TOPIC,), **join)
        self._connection: Server | None = None
        self._fenced: FencedMemberEpoch | None = None
        self._heartbeat_ms = 1_000

    def join(self) -> Answer:
        """Become a member, and begin to send heartbeats."""
        yield from self._join_with(None)
        self.process.spawn(self._beat())

    def call(self, request: type[Any], **fields: Any) -> Answer:
        """The answer to this member's request, or a ShareGroupError. Gone when it is fenced."""
        while True:
            try:
                return (yield from self._call(request, fields))
            except UnknownMemberId:  # again, if the coordinator dies again in between
                yield from self._join_with(self.member_epoch)

    def ask(self, request: Any) -> Answer:
        """The answer to a request that names no member, as a sink's."""
        return (yield from self._ask(request))

    # --- inside

    def _call(self, request: type[Any], fields: dict[str, Any]) -> Answer:
        if self._fenced is not None:
            raise Gone("fenced")
        who = {"group_id": GROUP, "member_id": self.member_id, "member_epoch": self.member_epoch}
        return (yield from self._ask(request(**who, **fields)))

    def _join_with(self, epoch: int | None) -> Answer:
        joined = yield from self._ask(msgspec.structs.replace(self._join, member_epoch=epoch))
        self.member_epoch, self._heartbeat_ms = joined.member_epoch, joined.heartbeat_interval_ms

    def _ask(self, request: Any) -> Answer:
        """Until there is an answer: every request may be repeated, by protocol."""
        until_ms = self.world.now_ms + RETRY_TIMEOUT_MS
        while self.world.now_ms < until_ms:
            if self._connection is None:
                self._connection = self.find()
            if self._connection is not None:
                answer = yield self.network.ask(self._connection, request, ANSWER_TIMEOUT_MS)
                if answer is NO_ANSWER:
                    self._connection = None
                elif isinstance(answer, FencedMemberEpoch):
                    self._fenced = answer
                    raise Gone("fenced")
                elif not isinstance(answer, ShareGroupError):
                    return answer
                elif not answer.retriable:
                    raise answer
            yield self.world.between(50, 2_000)
        self._connection = None
        raise CoordinatorNotAvailable(group_id=GROUP, reason="it does not answer")

    def _beat(self) -> Answer:
        while True:
            yield self._heartbeat_ms
            try:
                yield from self.call(Heartbeat)
            except CoordinatorNotAvailable:
                continue  # the next heartbeat tries again
            except Gone:
                return  # the next call says so
