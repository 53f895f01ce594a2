"""The coordinator of one of several hosts: the real service, the real gateway, the real answers to other hosts."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from contextvars import ContextVar
from itertools import count
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa

from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import CoordinatorNotAvailable, ShareGroupError
from coordinator.protocol.format_versions import PROTOCOL
from coordinator.protocol.messages import Message, NextPlan
from coordinator.protocol.rights import Caller
from coordinator.protocol.wire import decode_answer, encode, encode_error
from coordinator.service.hosts.hosts import Hosts
from coordinator.service.requests.asker import Asker
from coordinator.service.requests.decoding import Head
from coordinator.service.runtime.transaction import ORIGIN, Access, Transaction, TransactionSteps
from tests.simulation.fiber import Fiber, work_on
from tests.simulation.host_topics import HostTopics, SimulatedTransport
from tests.simulation.network import Reply
from tests.simulation.service_process import ServiceProcess, _Engine
from tests.simulation.session import GROUP
from tests.simulation.simulated_store import HostsStore
from tests.simulation.simulated_world import Task

HANDS_OVER_AFTER_S = 15.0
"""A host hands the group over that no member of its own has asked for during this many seconds: some runs have that."""
_REQUEST_ID: ContextVar[str] = ContextVar("request id", default="")
"""The id of the request of another host that a fiber handles."""


class HostProcess(ServiceProcess):
    """A coordinator on demand of one host."""

    store: HostsStore
    is_leaving = has_left = False

    def __init__(self, *arguments: Any, topics: HostTopics, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._requests = count(1)
        transport = SimulatedTransport(self, topics, self.now_ms, lambda: self.store.log.end)
        groups = _Served(self)
        answer, idle_s = self._answer_another_host, HANDS_OVER_AFTER_S
        self.hosts = Hosts(transport, groups, self.store.ownership, answer, idle_s=idle_s)  # type: ignore[arg-type]

    def _new_engine(self) -> _Engine:
        return _HostEngine(self)

    def leave(self) -> None:
        """As by SIGTERM: it gives its groups up, and ends."""
        if self.alive and not self.is_leaving:
            self.world.note(self.name, "leaves")
            self.is_leaving = True
            self.spawn(self._leave())

    def _leave(self) -> Task:
        yield from Fiber(self.hosts.stop_asking).run()
        yield self.world.between(0, 500)
        self.hosts.leave()
        yield self.world.between(0, 100)
        self.has_left = True
        self.store.give_up(GROUP)
        yield from Fiber(self.hosts.close).run()
        self.die("it has left")

    # --- requests

    def _handle(self, request: Any, reply: Reply) -> Task:
        if isinstance(request, NextPlan):
            request = msgspec.structs.replace(request, wait_ms=0)
        try:
            answer = yield from Fiber(lambda: self._by_owner(request, reply), request).run()
        except ShareGroupError as error:
            answer = error
        reply(answer)

    def _by_owner(self, request: Any, reply: Reply) -> Message:
        """As requests of this host's clients are answered."""
        request_id = reply.request_id or f"{self.name}-{next(self._requests)}"
        name, body = type(request).__name__, pickle.dumps((request_id, request))
        asker = Asker(Caller(), self.name, str(PROTOCOL), request_id, is_gone=reply.is_gone)
        here, head = lambda: encode(self._answered_here(request)), Head(group_id=GROUP)
        answer = self.hosts.answered(name, pa.py_buffer(body), head, asker, here)
        return decode_answer(answer)

    def _answer_another_host(self, name: str, body: pa.Buffer, asker: Asker) -> bytes:
        """As requests of another host are answered."""
        request_id, request = pickle.loads(body.to_pybytes())
        work_on(request)
        origin, judge = asker.origin, self.store.log.hosts
        assert origin is not None
        ORIGIN.set(origin)
        judge.begun(self, request_id, origin.tenure)
        _REQUEST_ID.set(request_id)
        try:
            answer = encode(self._answered_here(request))
        except ShareGroupError as error:
            answer = encode_error(error)
        judge.answered(request_id, origin.tenure, answer)
        return answer

    def _answered_here(self, request: Any) -> Message:
        if self.has_left:
            raise CoordinatorNotAvailable(group_id=GROUP, reason="it is leaving")
        self.listener.begun(self, request)
        return self.handlers.handle(request)

    # --- the runtime

    def hand_over(self, tenure: str) -> None:
        """Give the group up after the running round, as the event loop does."""
        self.runtime.handed_over[GROUP] = tenure
        self._wake(self.world.now_ms)

    def _step(self, planned_ms: int) -> None:
        if not self.has_left:
            super()._step(planned_ms)


class _HostEngine(_Engine):
    """The runtime as the services use it, with a judge of what is decided for other hosts."""

    process: HostProcess

    def call(self, group_id: str, transaction: Transaction[Any], access: Access = Access.SERVE) -> Any:
        request_id, process = _REQUEST_ID.get(), self.process

        def judged(group: ShareGroup) -> TransactionSteps[Any]:
            process.store.log.hosts.decided(process, request_id)
            return (yield from transaction(group))

        return super().call(group_id, judged if request_id else transaction, access)


class _Served:
    """The groups of the process: :class:`coordinator.service.hosts.owner_requests.Groups`."""

    def __init__(self, process: HostProcess) -> None:
        self._process = process
        self.clock = SimpleNamespace(now_ms=process.now_ms)

    def held_groups(self) -> frozenset[str]:
        return self._process.runtime.held

    def tenure(self, group_id: str) -> str:
        return self._process.store.tenure_now

    def holds(self, group_id: str) -> bool:
        return self._process.runtime.holds(group_id)

    def unheard(self, group_ids: Iterable[str], ms: int) -> None:
        if GROUP in group_ids:
            self._process.unread_ms += ms

    def hand_over(self, group_id: str, tenure: str) -> None:
        self._process.hand_over(tenure)

    def stuck_s(self, group_id: str) -> float:
        return self._process.in_step_s
