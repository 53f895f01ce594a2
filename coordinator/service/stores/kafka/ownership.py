"""The ownership of groups: whether this process may take a group, and which error members get when another owns it.

An owner stays the owner while it lives, on demand or standalone: another host takes a group that its owner has given
up, or whose owner was found gone. Among the coordinators of a fleet Kafka's group assigns the partitions. From an owner
that other hosts can't ask, the newest claimant takes the group: only for a new member, or the two would take it from
each other without end.
"""

from __future__ import annotations

import hashlib
import os
import socket
import uuid
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from coordinator.protocol.errors import GroupTakenOver, NotCoordinator, ShareGroupError
from coordinator.protocol.host_records import VERSION as ANSWERS
from coordinator.protocol.this_host import host_facts
from coordinator.service.fleet.fleet import Fleet
from coordinator.service.process.clock import now_s
from coordinator.state_log.owner import PATIENCE_S, Owner

FOUND_LASTS_S = 30.0
"""An owner that was found gone is asked again after this many seconds, if the group has not been taken by then: it may
live again, and have had nothing to write."""
LOOK_LASTS_S = 60.0
"""A look asks an owner that did not answer again after this many seconds; until then it reads what the owner wrote."""
ENDPOINT_NAMES = "3"
MAX_PATIENCE_S = 60
"""The patience grows up to this many seconds."""


class Ownership(Protocol):
    """The policy by which a process takes and keeps groups. ``me`` is the process itself."""

    me: Owner

    @property
    def may_peek(self) -> bool:
        """Whether this process may read a group that another process owns."""

    @property
    def hands_over(self) -> bool:
        """Whether this process gives its groups up when it ends."""

    def check(self, group_id: str, partition: int, owner: Owner | None, *, had: bool, claims: bool, end: int) -> None:
        """Returns if this process may take the group, whose last owner was ``owner``. ``had``: this process owned the
        group before. ``claims``: a new member asks for it here. ``end``: the offset after the group's last record.

        Raises:
            OwnedElsewhere: the owner is another host's, which may live.
            GroupTakenOver, NotCoordinator: another process owns the group.
        """

    def check_look(self, group_id: str, owner: Owner, end: int) -> bool:
        """Check that a look may read the log of a group with this owner, which ends at ``end``. Returns whether the
        owner is another host's.

        Raises:
            OwnedElsewhere: the owner is another host's, which may answer: it knows more.
        """

    def new_owner(self, before: Owner | None, *, had: bool) -> Owner:
        """This process as the owner, with a new tenure, of a group that ``before`` owned. ``had``: this process owned
        it before."""

    def confirm(self, partition: int) -> None:
        """Returns if this process may still take groups of the partition.

        Raises:
            NotCoordinator: the partition belongs to another process.
            CoordinatorNotAvailable: Kafka did not confirm it in time.
        """

    @property
    def is_current(self) -> bool:
        """Whether this process may answer from memory."""

    def lost(self, group_id: str, owner: Owner | None) -> ShareGroupError:
        """The error for members after ``owner`` (None: not known yet) has fenced this process."""


def installation_id(runtime_dir: Path) -> str:
    """An id that identifies this installation across restarts of its coordinator: a hash of several facts, none of
    which is a file that a cleaner could delete. One of them is the version of the endpoint files' names: clients that
    look for others have another coordinator."""
    facts = [ENDPOINT_NAMES, *host_facts(), os.path.realpath(runtime_dir), f"{os.stat('/').st_dev}"]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]


def this_process(installation_id: str, endpoint: str = "") -> Owner:
    """This process as an owner; ``endpoint``: its host:port in a fleet."""
    return Owner(
        installation_id=installation_id,
        process=uuid.uuid4().hex,
        host=socket.gethostname(),
        pid=os.getpid(),
        endpoint=endpoint,
        answers=ANSWERS,
    )


def named_elsewhere(owner: Owner | None, installation_id: str) -> str:
    """The owner as lists name it, if it is another installation's, which may live and can be asked; else empty."""
    if owner is None or owner.released or not owner.answers or owner.installation_id == installation_id:
        return ""
    return owner.named


class OwnedElsewhere(NotCoordinator):
    """This process does not serve share group {group_id}: {owner} does. It is asked over Kafka."""

    kafka_error = "NOT_COORDINATOR"
    retriable = True
    record: Owner
    """The owner, as the group's log names it."""

    @classmethod
    def by(cls, group_id: str, owner: Owner) -> OwnedElsewhere:
        """The error for a group that ``owner`` may serve."""
        error = cls(group_id=group_id, owner=str(owner))
        error.record = owner
        return error


_Found: TypeAlias = tuple[str, int, float]
"""A tenure, the end of the state partition before its owner was asked, and when it had not answered."""


def _is_found(found: _Found | None, owner: Owner, end: int, lasts_s: float) -> bool:
    """Whether this is still so of the owner."""
    return found is not None and found[0] == owner.tenure and end <= found[1] and now_s() - found[2] <= lasts_s


class LivingOwner:
    """The policy of coordinators on demand, and of a fleet towards all others: the owner of a group stays the owner
    until it has given the group up, or was found gone."""

    may_peek = True
    hands_over = True

    def __init__(self, me: Owner, *, asks_owners: bool = True) -> None:
        """``asks_owners``: whether this process can ask the owners on other hosts; else it reads what they wrote."""
        self.me, self._asks_owners = me, asks_owners
        self._gone: dict[str, _Found] = {}
        self._quiet: dict[str, _Found] = {}

    def __repr__(self) -> str:
        return f"<LivingOwner {self.me}>"

    def found_gone(self, group_id: str, tenure: str, end: int) -> None:
        """Apply that the owner with this tenure did not answer, and that the state partition ended at ``end`` before it
        was asked: if it has written nothing since, this process may take the group. Any thread may call it."""
        self._gone[group_id] = self._quiet[group_id] = tenure, end, now_s()

    def found_quiet(self, group_id: str, tenure: str, end: int) -> None:
        """As found_gone, of an owner that has not answered a look: others may read what it wrote, and not take it."""
        self._quiet[group_id] = tenure, end, now_s()

    def check_look(self, group_id: str, owner: Owner, end: int) -> bool:
        is_foreign = self.is_foreign(owner)
        may_ask = is_foreign and owner.answers and not owner.released and self._asks_owners
        if may_ask and not _is_found(self._quiet.get(group_id), owner, end, LOOK_LASTS_S):
            raise OwnedElsewhere.by(group_id, owner)
        return is_foreign

    def check(self, group_id: str, partition: int, owner: Owner | None, *, had: bool, claims: bool, end: int) -> None:
        if owner is None or owner.process == self.me.process or owner.released:
            return
        if owner.installation_id == self.me.installation_id:
            if had and not claims:
                raise self.lost(group_id, owner)
        elif owner.answers and self._asks_owners:
            if not _is_found(self._gone.get(group_id), owner, end, FOUND_LASTS_S):
                raise OwnedElsewhere.by(group_id, owner)
        elif not claims:
            raise self.lost(group_id, owner)

    def new_owner(self, before: Owner | None, *, had: bool) -> Owner:
        """As in Ownership. A process that takes a group back from an owner that it found silent grows the patience:
        hosts with bad networks take a group from each other once a minute at most."""
        patience_s = PATIENCE_S
        if had and before is not None and not before.released and self.is_foreign(before):
            patience_s = min(MAX_PATIENCE_S, 2 * before.patience_s)
        return msgspec.structs.replace(self.me, tenure=uuid.uuid4().hex, patience_s=patience_s)

    def confirm(self, partition: int) -> None:
        """Does nothing: a coordinator on demand may take any group that it is asked for."""

    is_current = True

    def lost(self, group_id: str, owner: Owner | None) -> ShareGroupError:
        if owner is None or owner.answers or not self.is_foreign(owner):
            # This one was taken for dead: its clients find the newer one, or it passes their requests on.
            return NotCoordinator(what=f"share group {group_id}")
        return GroupTakenOver(group_id=group_id, owner=str(owner))

    def is_foreign(self, owner: Owner) -> bool:
        """Whether the owner is of another installation: another host, a fleet, or none of this process's fleet."""
        return owner.installation_id != self.me.installation_id


class FleetMember:
    """The policy of a fleet: a coordinator owns the groups of the partitions that Kafka's group assigns to it, and asks
    Kafka's group before it takes one. From others it takes a group as ``living`` does."""

    may_peek = False

    def __init__(self, living: LivingOwner, fleet: Fleet) -> None:
        self.me, self._living, self._fleet = living.me, living, fleet
        self.new_owner, self.lost, self.check_look = living.new_owner, living.lost, living.check_look

    def __repr__(self) -> str:
        return f"<FleetMember {self.me}>"

    @property
    def hands_over(self) -> bool:
        """As in Ownership. A partition that only moves within the fleet is not given up: this process answers that it
        has moved."""
        return self._fleet.is_leaving

    def check(self, group_id: str, partition: int, owner: Owner | None, *, had: bool, claims: bool, end: int) -> None:
        """As in Ownership. Among the fleet's coordinators the assignment by Kafka's group has decided. A group of an
        owner that can't be asked is taken once without a claim, so that pruning takes abandoned ones."""
        if owner is not None and self._living.is_foreign(owner):
            once = not had and not owner.answers
            self._living.check(group_id, partition, owner, had=had, claims=claims or once, end=end)

    def confirm(self, partition: int) -> None:
        self._fleet.verify(partition)

    @property
    def is_current(self) -> bool:
        """Whether Kafka's group confirmed this process's membership within the session timeout."""
        return self._fleet.is_current()
