"""What the coordinator says of the share group: members, lag, released and archived records.

Rule: it only looks. The demo is no member of the group.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from coordinator.client.client import CoordinatorClient
from coordinator.protocol.errors import GroupIdNotFound
from coordinator.protocol.messages import DescribeGroup, GroupDescription, PartitionDescription

GROUP_ID = "billing"
_OLD_AFTER_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The group at one moment; ``lag`` None: not known for all partitions, or there is no group yet. ``waiting``:
    records that were released, and are with nobody now."""

    members: int = 0
    lag: int | None = None
    waiting: int = 0
    archived: int = 0


class GroupWatch:
    """Looks at the group; the coordinator is started by this if nobody has."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._client = CoordinatorClient.connect(bootstrap_servers, state_store="sqlite")
        self._seen = Seen()
        self._old_at_s = 0.0

    def __repr__(self) -> str:
        return f"<GroupWatch {self._seen!r}>"

    def look(self, *, fresh: bool = False) -> Seen:
        """The group now; at most a moment old unless it is to be ``fresh``."""
        if fresh or time.monotonic() >= self._old_at_s:
            self._seen = self._ask()
            self._old_at_s = time.monotonic() + _OLD_AFTER_S
        return self._seen

    def _ask(self) -> Seen:
        try:
            description = self._client.call(DescribeGroup(group_id=GROUP_ID))
        except GroupIdNotFound:  # nobody has joined yet
            return Seen()
        return _seen(description)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _seen(description: GroupDescription) -> Seen:
    lags = [partition.lag for partition in description.partitions]
    known = [lag for lag in lags if lag is not None]
    return Seen(
        members=sum(member.active for member in description.members),
        lag=sum(known) if lags and len(known) == len(lags) else None,
        waiting=sum(_waiting(partition) for partition in description.partitions),
        archived=sum(partition.archived_total for partition in description.partitions),
    )


def _waiting(partition: PartitionDescription) -> int:
    return sum(
        int(run["last"] or 0) - int(run["first"] or 0) + 1
        for run in partition.runs
        if run["state"] == "AVAILABLE" and run["releases"]
    )
