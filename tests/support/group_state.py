"""Looks at a share group through the coordinator's client, as an admin would."""

from __future__ import annotations

from coordinator.client.client import CoordinatorClient
from coordinator.messages import DescribeGroup, GroupDescription
from tests.support.share_job import ShareJob

_clients: dict[str, CoordinatorClient] = {}


class GroupState:
    """A group as it was when it was described."""

    def __init__(self, description: GroupDescription) -> None:
        self.description = description

    def __repr__(self) -> str:
        return f"<GroupState {self.description!r}>"

    def lag(self) -> int:
        """Records not yet delivered to completion; of partitions whose log is gone: none."""
        return sum(partition.lag or 0 for partition in self.description.partitions)

    def archived(self) -> int:
        return sum(partition.archived_total for partition in self.description.partitions)

    def acquired(self) -> int:
        return sum(partition.acquired for partition in self.description.partitions)

    def active_members(self) -> int:
        return sum(member.active for member in self.description.members)

    def start_offset(self, topic: str, partition: int = 0) -> int:
        """SPSO; of a topic that was created anew, that of the newest one."""
        found = [p for p in self.description.partitions if (p.topic, p.partition) == (topic, partition)]
        return found[-1].start_offset


def describe(job: ShareJob) -> GroupState:
    """The job's group now. Through the direct address: a proxy that is cut does not matter."""
    client = _clients.get(job.admin_bootstrap)
    if client is None:
        client = _clients[job.admin_bootstrap] = CoordinatorClient.connect(job.admin_bootstrap)
    reply = client.call(DescribeGroup(group_id=job.group))
    assert isinstance(reply, GroupDescription)
    return GroupState(reply)


def forget_clients() -> None:
    """Close the connections that `describe` kept."""
    while _clients:
        _clients.popitem()[1].close()
