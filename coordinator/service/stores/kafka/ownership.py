"""The ownership of groups: whether this process may take a group, and which error members get if another process owns
it.

An owner stays the owner while it lives, on demand or standalone. Another coordinator takes a group only if the owner
has given it up, or was found gone. If the owner can't be asked, the newest claimant takes the group, but only for a new
member: without that condition the two would take it from each other for ever."""

from __future__ import annotations

import hashlib
import os
import socket
import uuid
from pathlib import Path
from typing import NamedTuple

import msgspec

from coordinator.config.this_host import host_facts
from coordinator.protocol.errors import GroupTakenOver, NotCoordinator, ShareGroupError
from coordinator.protocol.host_errors import OwnedElsewhere
from coordinator.protocol.host_records import VERSION as ANSWERS
from coordinator.service.process.clock import now_s
from coordinator.state_log.owner_record import PATIENCE_S, Owner
from coordinator.state_log.owner_state import FREE, READ, UNKNOWN, OwnerState

FOUND_LASTS_S = 30.0
"""An owner that was found gone is asked again after this many seconds, unless the group was taken by then. The owner
may be back without having written anything."""
LOOK_LASTS_S = 60.0
"""An owner that did not answer is asked again by a look after this many seconds; until then looks read its log."""
ENDPOINT_NAMES = "3"
MAX_PATIENCE_S = 60
"""The patience grows up to this many seconds."""


def installation_id(place: Path | str) -> str:
    """An id that identifies this installation across restarts of its coordinator. ``place``: the runtime directory of a
    coordinator on demand, or the address at which a standalone one listens; a host has one coordinator there. The id is
    a hash of several facts, none of which is a file that a cleaner could delete. One of them is the version of the
    endpoint files' names: clients that look for others have another coordinator."""
    where = os.path.realpath(place) if isinstance(place, Path) else place
    facts = [ENDPOINT_NAMES, *host_facts(), where, f"{os.stat('/').st_dev}"]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]


def this_process(installation_id: str, endpoint: str = "") -> Owner:
    """This process as an owner; ``endpoint``: the host:port of a standalone coordinator, by which people know it."""
    return Owner(
        installation_id=installation_id,
        process=uuid.uuid4().hex,
        host=socket.gethostname(),
        pid=os.getpid(),
        endpoint=endpoint,
        answers=ANSWERS,
    )


def named_elsewhere(owner: Owner | None, installation_id: str) -> str:
    """Returns the owner as lists name it, if it is another installation's, may live and can be asked; else empty."""
    if owner is None or owner.released or not owner.answers or owner.installation_id == installation_id:
        return ""
    return owner.named


class _Found(NamedTuple):
    """What was found out about the owner of a tenure, when, and where the state partition ended before."""

    tenure: str
    state: OwnerState
    end: int
    found_s: float


class LivingOwner:
    """The policy by which a coordinator takes groups: an owner stays the owner until it has given the group up, or was
    found gone. ``me``: this process."""

    def __init__(self, me: Owner, *, asks_owners: bool = True) -> None:
        """``asks_owners``: whether this process can ask the owners on other hosts; if not, it reads what they wrote."""
        self.me, self._asks_owners = me, asks_owners
        self._found: dict[str, _Found] = {}

    def found(self, group_id: str, tenure: str, state: OwnerState, end: int = 0) -> None:
        """Record what was found out about the group's owner on another host (:mod:`coordinator.state_log.owner_state`).
        ``end``: the end of the state partition before the owner was asked. Any thread may call it."""
        if state is OwnerState.QUIET and self._is_found(group_id, tenure, end, READ, LOOK_LASTS_S):
            return  # an earlier finding about this owner itself says more
        if state is OwnerState.LIVES:
            self.forget(group_id)
        else:
            self._found[group_id] = _Found(tenure, state, end, now_s())

    def forget(self, group_id: str) -> None:
        """Record that the owner lives, or that this process is the owner."""
        self._found.pop(group_id, None)

    def is_unknown(self, group_id: str) -> bool:
        """Whether nobody knows which members of the group live, because its owner does not answer."""
        found = self._found.get(group_id)
        return found is not None and found.state in UNKNOWN

    def _is_found(self, group_id: str, tenure: str, end: int, states: frozenset[OwnerState], lasts_s: float) -> bool:
        """Whether the owner was found in one of these states, not long ago, and has written nothing since."""
        found = self._found.get(group_id)
        is_of_it = found is not None and found.tenure == tenure and found.state in states
        return found is not None and is_of_it and end <= found.end and now_s() - found.found_s <= lasts_s

    def check_look(self, group_id: str, owner: Owner, end: int) -> bool:
        """Check that a look may read the log of a group with this owner, which ends at ``end``. Returns whether the
        owner is another host's. Raises OwnedElsewhere if the owner is another host's, which may answer: it knows more.
        """
        is_foreign = self.is_foreign(owner)
        may_ask = is_foreign and owner.answers and not owner.released and self._asks_owners
        if may_ask and not self._is_found(group_id, owner.tenure, end, READ, LOOK_LASTS_S):
            raise OwnedElsewhere.by(group_id, owner)
        return is_foreign

    def check(self, group_id: str, owner: Owner | None, *, had: bool, claims: bool, end: int) -> None:
        """Check that this process may take the group, whose last owner was ``owner``. ``had``: this process owned the
        group before. ``claims``: a new member asks for the group here. ``end``: the offset after the group's last
        record.

        Raises:
            OwnedElsewhere: the owner is another host's, which may live.
            GroupTakenOver, NotCoordinator: another process owns the group."""
        if owner is None or owner.process == self.me.process or owner.released:
            return
        if owner.installation_id == self.me.installation_id:
            if had and not claims:
                raise self.lost(group_id, owner)
        elif owner.answers and self._asks_owners:
            if not self._is_found(group_id, owner.tenure, end, FREE, FOUND_LASTS_S):
                raise OwnedElsewhere.by(group_id, owner)
        elif not claims:
            raise self.lost(group_id, owner)

    def new_owner(self, before: Owner | None, *, had: bool) -> Owner:
        """This process as the owner, with a new tenure, of a group that ``before`` owned. ``had``: this process owned
        the group before. If a process takes a group back from an owner that it found silent, its patience doubles, so
        that hosts with bad networks take a group from each other once a minute at most."""
        patience_s = PATIENCE_S
        if had and before is not None and not before.released and self.is_foreign(before):
            patience_s = min(MAX_PATIENCE_S, 2 * before.patience_s)
        return msgspec.structs.replace(self.me, tenure=uuid.uuid4().hex, patience_s=patience_s)

    def lost(self, group_id: str, owner: Owner | None) -> ShareGroupError:
        """The error for members after ``owner`` has fenced this process; None: it is not known yet who has."""
        if owner is None or owner.answers or not self.is_foreign(owner):
            # This process was taken for dead: its clients find the newer owner, or it passes their requests on.
            return NotCoordinator(what=f"share group {group_id}")
        return GroupTakenOver(group_id=group_id, owner=str(owner))

    def is_foreign(self, owner: Owner) -> bool:
        """Whether the owner is another installation's. A process of its own installation replaces the owner."""
        return owner.installation_id != self.me.installation_id
