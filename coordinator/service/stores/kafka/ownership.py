"""Whose a group is: may this process take it, and what are its members told when another has it.

Coordinators on demand: the newest claimant wins, since a job that was started again on another host must go on at once;
who was fenced never takes the group back by itself, only for a new member. A fleet: Kafka's group says whose it is.
"""

from __future__ import annotations

from typing import Protocol

from coordinator.protocol.errors import GroupTakenOver, NotCoordinator, ShareGroupError
from coordinator.service.fleet.fleet import Fleet
from coordinator.state_log.owner import Owner


class Ownership(Protocol):
    """One of the two rules."""

    me: Owner

    @property
    def may_peek(self) -> bool:
        """Whether a group may be looked at that is another's."""

    def check(self, group_id: str, partition: int, owner: Owner | None, *, had: bool) -> None:
        """This process may take the group, which ``owner`` had last; GroupTakenOver or NotCoordinator if not. ``had``:
        it was this process's before."""

    def confirm(self, partition: int) -> None:
        """The partition is still this process's to take groups of: NotCoordinator."""

    @property
    def is_current(self) -> bool:
        """Nothing speaks against answering from memory."""

    def lost(self, group_id: str, owner: Owner | None) -> ShareGroupError:
        """What members are told after ``owner`` (None: not known yet) has fenced this process."""


class NewestClaimant:
    """Coordinators on demand."""

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
        """The newest claimant wins."""

    is_current = True

    def lost(self, group_id: str, owner: Owner | None) -> ShareGroupError:
        if owner is not None and owner.installation_id == self.me.installation_id:
            return NotCoordinator(what=f"share group {group_id}")  # it was taken for dead: the newer one is found
        return GroupTakenOver(group_id=group_id, owner="another coordinator" if owner is None else str(owner))


class FleetMember:
    """A coordinator of a fleet: it takes what Kafka's group gives it, as often as that is confirmed."""

    may_peek = False

    def __init__(self, me: Owner, fleet: Fleet) -> None:
        self.me, self._fleet = me, fleet

    def __repr__(self) -> str:
        return f"<FleetMember {self.me}>"

    def check(self, group_id: str, partition: int, owner: Owner | None, *, had: bool) -> None:
        """Kafka's group has said so already."""

    def confirm(self, partition: int) -> None:
        self._fleet.verify(partition)

    @property
    def is_current(self) -> bool:
        """Touch with Kafka's group was not lost for a session timeout."""
        return self._fleet.is_current()

    def lost(self, group_id: str, owner: Owner | None) -> ShareGroupError:
        return NotCoordinator(what=f"share group {group_id}")
