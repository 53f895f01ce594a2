"""The ownership of groups: whether this process may take a group, and which error members get when another owns it.

Coordinators on demand: the newest claimant wins, since a job that was restarted on another host must go on at once. A
fenced coordinator takes the group back only for a new member. A fleet: Kafka's group assigns the partitions among its
coordinators. Between a fleet and a coordinator on demand the newest claimant wins as well: each takes the group back
from the other only for a new member, or they would take it from each other without end.
"""

from __future__ import annotations

import os
import socket
import uuid
from typing import Protocol

from coordinator.protocol.errors import GroupTakenOver, NotCoordinator, ShareGroupError
from coordinator.service.fleet.fleet import Fleet
from coordinator.state_log.owner import Owner


class Ownership(Protocol):
    """The policy by which a process takes and keeps groups. ``me`` is the process itself."""

    me: Owner

    @property
    def may_peek(self) -> bool:
        """Whether this process may read a group that another process owns."""

    def check(self, group_id: str, partition: int, owner: Owner | None, *, had: bool) -> None:
        """Returns if this process may take the group, whose last owner was ``owner``. ``had``: this process owned the
        group before.

        Raises:
            GroupTakenOver, NotCoordinator: another process owns the group.
        """

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


def this_process(installation_id: str, endpoint: str = "") -> Owner:
    """This process as an owner; ``endpoint``: its host:port in a fleet."""
    return Owner(
        installation_id=installation_id,
        process=uuid.uuid4().hex,
        host=socket.gethostname(),
        pid=os.getpid(),
        endpoint=endpoint,
    )


class NewestClaimant:
    """The policy of coordinators on demand: the newest claimant owns a group."""

    may_peek = True

    def __init__(self, me: Owner) -> None:
        self.me = me

    def __repr__(self) -> str:
        return f"<NewestClaimant {self.me}>"

    def check(self, group_id: str, partition: int, owner: Owner | None, *, had: bool) -> None:
        if owner is None or owner.process == self.me.process:
            return
        if had or owner.installation_id != self.me.installation_id:
            raise self.lost(group_id, owner)

    def confirm(self, partition: int) -> None:
        """Does nothing: a coordinator on demand may take any group that it is asked for."""

    is_current = True

    def lost(self, group_id: str, owner: Owner | None) -> ShareGroupError:
        if owner is not None and owner.installation_id == self.me.installation_id:
            return NotCoordinator(
                what=f"share group {group_id}"
            )  # this one was taken for dead: its clients find the newer one
        return GroupTakenOver(group_id=group_id, owner="another coordinator" if owner is None else str(owner))


class FleetMember:
    """The policy of a fleet: a coordinator owns the groups of the partitions that Kafka's group assigns to it, and asks
    Kafka's group before it takes one."""

    may_peek = False

    def __init__(self, me: Owner, fleet: Fleet) -> None:
        self.me, self._fleet = me, fleet

    def __repr__(self) -> str:
        return f"<FleetMember {self.me}>"

    def check(self, group_id: str, partition: int, owner: Owner | None, *, had: bool) -> None:
        """As in Ownership. Among the fleet's coordinators the assignment by Kafka's group has decided."""
        if had and self._is_foreign(owner):
            raise self.lost(group_id, owner)

    def confirm(self, partition: int) -> None:
        self._fleet.verify(partition)

    @property
    def is_current(self) -> bool:
        """Whether Kafka's group confirmed this process's membership within the session timeout."""
        return self._fleet.is_current()

    def lost(self, group_id: str, owner: Owner | None) -> ShareGroupError:
        if self._is_foreign(owner):
            return GroupTakenOver(group_id=group_id, owner=str(owner))
        return NotCoordinator(what=f"share group {group_id}")

    def _is_foreign(self, owner: Owner | None) -> bool:
        """Whether the owner is no coordinator of this fleet."""
        return owner is not None and owner.installation_id != self.me.installation_id
