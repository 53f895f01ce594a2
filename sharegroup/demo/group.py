"""Asks the coordinator for the share group's state: members, lag, released and archived records.

Rule: it only reads. The demo is no member of the group.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from coordinator.client.client import CoordinatorClient
from coordinator.protocol.errors import GroupIdNotFound
from coordinator.protocol.messages import DescribeGroup, GroupDescription, PartitionDescription

GROUP_ID = "billing"
_FRESH_FOR_S = 0.2
"""An answer is used again for this many seconds."""


@dataclass(frozen=True, kw_only=True)
class GroupState:
    """The group's state at one moment. ``lag`` None: not known for all partitions, or the group does not exist yet.
    ``waiting``: released records that no member holds."""

    members: int = 0
    lag: int | None = None
    waiting: int = 0
    archived: int = 0


class GroupWatch:
    """Reads the group's state. The client starts the coordinator if none runs."""

    def __init__(self, client: CoordinatorClient) -> None:
        self._client = client
        self._seen = GroupState()
        self._old_at_s = 0.0

    def __repr__(self) -> str:
        return f"<GroupWatch {self._seen!r}>"

    def look(self, *, fresh: bool = False) -> GroupState:
        """The group's state, at most _FRESH_FOR_S old; with ``fresh`` asked for now."""
        if fresh or time.monotonic() >= self._old_at_s:
            self._seen = self._ask()
            self._old_at_s = time.monotonic() + _FRESH_FOR_S
        return self._seen

    def _ask(self) -> GroupState:
        try:
            description = self._client.call(DescribeGroup(group_id=GROUP_ID))
        except GroupIdNotFound:  # nobody has joined yet
            return GroupState()
        return _state_of(description)

    def close(self) -> None:
        """Close the client and its connection."""
        self._client.close()


def _state_of(description: GroupDescription) -> GroupState:
    lags = [partition.lag for partition in description.partitions]
    known_lags = [lag for lag in lags if lag is not None]
    return GroupState(
        members=sum(member.active for member in description.members),
        lag=sum(known_lags) if lags and len(known_lags) == len(lags) else None,
        waiting=sum(_waiting(partition) for partition in description.partitions),
        archived=sum(partition.archived_total for partition in description.partitions),
    )


def _waiting(partition: PartitionDescription) -> int:
    return sum(
        int(run["last"] or 0) - int(run["first"] or 0) + 1
        for run in partition.runs
        if run["state"] == "AVAILABLE" and run["releases"]
    )
