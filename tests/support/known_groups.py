"""An Admin of groups that a test names, without a coordinator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coordinator.protocol.admin_messages import GroupListing, GroupsListed, InFlightPage, RunInFlight
from coordinator.protocol.messages import GroupDescription


class KnownGroups:
    """``states``: the groups' states by id; any other group is DEAD. ``fields``: of each group's description.
    ``read_from``: the place that is read instead of a coordinator, if none runs."""

    def __init__(
        self, states: Mapping[str, str], *, runs: Sequence[RunInFlight] = (), read_from: str = "", **fields: Any
    ) -> None:
        self.states, self.runs, self.read_from, self.fields = states, runs, read_from, fields

    def __enter__(self) -> KnownGroups:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the context, and closes nothing."""

    def list_groups(self, states: Sequence[str] = (), *, only_ids: bool = False) -> GroupsListed:
        listed = tuple(GroupListing(group_id=name, state=state) for name, state in self.states.items())
        return GroupsListed(groups=listed, read_from=self.read_from)

    def describe_groups(self, group_ids: Sequence[str]) -> dict[str, GroupDescription]:
        return {name: self._described(name) for name in group_ids}

    def _described(self, name: str) -> GroupDescription:
        if (state := self.states.get(name, "DEAD")) == "DEAD":
            return GroupDescription(group_id=name, state=state, incarnation="")
        fields = {"read_from": self.read_from, **self.fields}
        return GroupDescription(group_id=name, state=state, incarnation="i", **fields)

    def in_flight(self, group_id: str, **_: Any) -> InFlightPage:
        return InFlightPage(now_ms=1, read_from=self.read_from)

    def all_in_flight(self, group_id: str, **_: Any) -> Iterator[RunInFlight]:
        return iter(self.runs)

    def plans(self, group_id: str) -> tuple[()]:
        return ()
