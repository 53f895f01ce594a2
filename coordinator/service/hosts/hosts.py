"""Which host answers a request for a group: this host if it owns the group or may take it, else the owner's host."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator
from math import inf

import pyarrow as pa

from coordinator.protocol.errors import CoordinatorNotAvailable, ShareGroupError
from coordinator.protocol.host_errors import HostTopicNotAuthorized, OwnedElsewhere, OwnerMissing
from coordinator.protocol.host_records import REPLIES
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.rights import RIGHT_OF, Right
from coordinator.protocol.wire import request_name
from coordinator.service.hosts.gateway import Gateway, OwnerAway
from coordinator.service.hosts.owner_requests import AnswerTo, OwnerRequests
from coordinator.service.hosts.topic_clients import Transport
from coordinator.service.requests.asker import Asker
from coordinator.service.requests.decoding import Head
from coordinator.service.runtime.event_loop import PartitionedRuntime
from coordinator.service.runtime.runtime import Measures
from coordinator.service.stores.kafka.ownership import LOOK_LASTS_S, LivingOwner
from coordinator.state_log.owner_record import Owner
from coordinator.state_log.owner_state import OwnerState

MOST_MOVES = 5
"""A request follows a moving group up to this many times; then its client asks again."""

_log = logging.getLogger(__name__)


class Hosts:
    """The other hosts of a coordinator, whose groups' state is in Kafka."""

    def __init__(
        self,
        transport: Transport,
        groups: PartitionedRuntime,
        ownership: LivingOwner,
        answer: AnswerTo,
        measures: Measures | None = None,
        *,
        idle_s: float = inf,
    ) -> None:
        """``idle_s``: a group is handed over to other hosts if only their members have asked for it in this time."""
        self._transport, self._groups, self._idle_s = transport, groups, idle_s
        self._asked_s: dict[str, float] = {}  # by group: when a member of this host asked last
        self._ownership, self._measures, self._answer = ownership, measures, answer
        self.gateway = Gateway(transport, ownership.me)
        self._once = LogOnce(_log)
        self._silent_s: dict[str, float] = {}
        self.requests = OwnerRequests(transport, groups, ownership.me, self._answer_another_host)

    def answered(self, name: str, body: pa.Buffer, head: Head, asker: Asker, here: Callable[[], bytes]) -> bytes:
        """The answer of the group's owner. ``here`` answers as this process, if it owns the group or may take it.
        Raises ShareGroupError if the owner can't be asked, or the group keeps moving from host to host."""
        group_id, request_id = head.group_id, asker.request_id or uuid.uuid4().hex
        right, why = RIGHT_OF.get(name), "it moves from host to host"
        for moves in range(MOST_MOVES):
            if moves and asker.is_gone():  # the client may have asked another coordinator meanwhile
                break
            is_mine = bool(self._groups.tenure(group_id))
            if is_mine:
                self._ownership.forget(group_id)
            owner = None if is_mine else self.gateway.owner_of(group_id)
            is_named = owner is None
            if owner is None:
                try:
                    with self._asked_here(group_id, is_member=right is Right.MEMBER):
                        return here()
                except OwnedElsewhere as elsewhere:
                    owner = elsewhere.record
            was_silent = right is Right.READ and owner.process in self._silent_s
            if was_silent and self._reads_the_log(group_id, owner):
                continue
            try:
                with self._passing_on():
                    answer = self.gateway.pass_on(
                        group_id,
                        owner,
                        name,
                        body.to_pybytes(),
                        request_id=request_id,
                        protocol=asker.protocol,
                        is_action=right is Right.ADMIN,
                        waits_s=head.wait_ms / 1000,
                        is_patient=is_named and not was_silent,
                        is_gone=asker.is_gone,
                        by=asker.caller.name,
                    )
                self._ownership.found(group_id, owner.tenure, OwnerState.LIVES)
                self._silent_s.pop(owner.process, None)
                self._tell(group_id, owner)
                return answer
            except OwnerMissing:
                if right is Right.READ:  # not retriable: the caller reads the copy in the log
                    raise HostTopicNotAuthorized(what="write to it", topic=REPLIES) from None
                raise
            except OwnerAway as away:
                if away.found is OwnerState.SILENT:
                    self._silent_s[owner.process] = self._transport.now_s()
                    why = f"{owner} writes the group's log, and answers no other host: see that coordinator's log"
                if away.found is not None:
                    self._ownership.found(group_id, owner.tenure, away.found, away.end)
        raise CoordinatorNotAvailable(group_id=group_id, reason=why)

    def load(self, group_id: str, here: Callable[[], object]) -> None:
        """Load the group by ``here``, unless an owner on another host lives. Raises ShareGroupError if the group can't
        be loaded, or the owner can't be asked."""
        try:
            here()
        except OwnedElsewhere as elsewhere:
            try:
                self.gateway.check_lives(group_id, elsewhere.record)
            except OwnerAway as away:
                if away.found is not None:
                    self._ownership.found(group_id, elsewhere.record.tenure, away.found, away.end)
                here()

    def _reads_the_log(self, group_id: str, owner: Owner) -> bool:
        """Whether a look reads what the owner wrote, because the owner's process has not answered lately. A look waits
        for such a process once; after that, one look in each LOOK_LASTS_S asks it again."""
        now_s = self._transport.now_s()
        if now_s - self._silent_s.get(owner.process, -inf) >= LOOK_LASTS_S:
            self._silent_s[owner.process] = now_s
            return False
        self._ownership.found(group_id, owner.tenure, OwnerState.QUIET, self._transport.log_end(group_id))
        return True

    def is_unknown(self, group_id: str) -> bool:
        """Whether nobody knows which members of the group live, because its owner on another host is silent."""
        return self._ownership.is_unknown(group_id) and not self._groups.tenure(group_id)

    def stop_asking(self) -> None:
        """Ask no other host any more. Callers that wait for an answer get an error, and ask again."""
        self.gateway.close()

    def leave(self) -> None:
        """Answer other hosts from now on that the groups have moved. Give the groups up next."""
        self.requests.leave()

    def close(self) -> None:
        self.stop_asking()
        self.requests.close()

    def _answer_another_host(self, name: str, body: pa.Buffer, asker: Asker) -> bytes:
        if self._measures is not None:
            self._measures.asked_by_other_host(request_name(name))
        answer = self._answer(name, body, asker)
        if RIGHT_OF.get(name) is Right.MEMBER and asker.origin is not None:
            group_id = asker.origin.group_id  # handed over if no member of this host has asked for it for long
            if self._transport.now_s() - self._asked_s.get(group_id, -inf) > self._idle_s:
                self._groups.hand_over(group_id, asker.origin.tenure)
        return answer

    @contextlib.contextmanager
    def _asked_here(self, group_id: str, *, is_member: bool) -> Iterator[None]:
        """A context in which a request of this host is answered here. Remembers the time of a member's request, if this
        process serves the group or loads it again soon."""
        if is_member:
            self._asked_s[group_id] = self._transport.now_s()
        try:
            yield
        finally:
            if not self._groups.holds(group_id):
                self._asked_s.pop(group_id, None)

    @contextlib.contextmanager
    def _passing_on(self) -> Iterator[None]:
        """A context that counts a request to another host. A request that the owner no longer serves is not counted."""
        try:
            yield
        except ShareGroupError:
            if self._measures is not None:
                self._measures.passed_on("failed")
            raise
        if self._measures is not None:
            self._measures.passed_on("answered")

    def _tell(self, group_id: str, owner: Owner) -> None:
        if self._once.changes(group_id, owner.tenure):
            _log.info("requests are passed on over Kafka: group=%s to its owner, %s", group_id, owner)
