"""Asks the coordinator for the share group's state: members, lag, archived records.

Rule: it only reads. The demo is no member of the group."""

from __future__ import annotations

from typing import NamedTuple

from coordinator.client.client import CoordinatorClient
from coordinator.protocol.errors import GroupIdNotFound
from coordinator.protocol.messages import DescribeGroup

GROUP_ID = "billing"


class GroupState(NamedTuple):
    """The group's state at one moment. ``lag`` None: not known for all partitions, or the group does not exist yet."""

    members: int = 0
    lag: int | None = None
    archived: int = 0


def group_state(client: CoordinatorClient, group_id: str = GROUP_ID) -> GroupState:
    """The group's state now. The client starts the coordinator if none runs."""
    try:
        description = client.call(DescribeGroup(group_id=group_id))
    except GroupIdNotFound:  # nobody has joined yet
        return GroupState()
    return GroupState(
        members=sum(member.active for member in description.members),
        lag=description.lag if description.partitions else None,
        archived=sum(partition.archived_total for partition in description.partitions),
    )
