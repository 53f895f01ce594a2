"""Reads the state of a share group through the coordinator's client, as an admin does."""

from __future__ import annotations

from coordinator.client.client import CoordinatorClient
from coordinator.core.record_state import RecordState
from coordinator.protocol.admin_messages import ListInFlight, RunInFlight
from coordinator.protocol.errors import GroupIdNotFound
from coordinator.protocol.messages import DescribeGroup, GroupDescription
from tests.support.share_job import ShareJob
from tests.support.waiting import wait_until

_clients: dict[tuple[str, str], CoordinatorClient] = {}
"""The clients by address and state store."""


class GroupState:
    """A group as it was when it was described; one without partitions if nobody has joined it yet."""

    def __init__(self, description: GroupDescription | None) -> None:
        self.description = description or GroupDescription(group_id="", state="EMPTY", incarnation="")

    def __repr__(self) -> str:
        return f"<GroupState {self.description!r}>"

    def lag(self) -> int:
        """Records not yet delivered to completion; -1 where that is not known."""
        lags = [partition.lag for partition in self.description.partitions]
        return -1 if not lags or None in lags else sum(lag or 0 for lag in lags)

    def archived(self) -> int:
        return sum(partition.archived_total for partition in self.description.partitions)

    def archiving(self) -> int:
        """Records whose dead letters are not written yet."""
        return sum(partition.archiving for partition in self.description.partitions)

    def acquired(self) -> int:
        return sum(partition.acquired for partition in self.description.partitions)

    def active_members(self) -> int:
        return sum(member.active for member in self.description.members)

    def configs(self) -> dict[str, str]:
        """The configs that the group keeps."""
        return self.description.configs

    def start_offset(self, topic: str, partition: int = 0) -> int:
        """SPSO; -1 while the group does not have the partition."""
        found = [p for p in self.description.partitions if (p.topic, p.partition) == (topic, partition)]
        return found[0].start_offset if found else -1


def describe(job: ShareJob) -> GroupState:
    """The job's group now, with the lag of each partition: where its brokers do not answer in time, the coordinator
    describes it without. Through the direct address: a proxy that is cut does not matter."""
    return wait_until(lambda: _with_lags(_described(job)), what=f"the lags of {job.group} are known")


def runs_of(job: ShareJob) -> tuple[RunInFlight, ...]:
    """The first 1,000 runs of the windows of the job's group, those that are done included."""
    return _client(job).call(ListInFlight(group_id=job.group, states=tuple(RecordState.__members__))).runs


def _client(job: ShareJob) -> CoordinatorClient:
    key = job.admin_bootstrap, job.options.get("share.state.store", "kafka")
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = CoordinatorClient.connect(key[0], state_store=key[1])
    return client


def _described(job: ShareJob) -> GroupState:
    try:
        reply = _client(job).call(DescribeGroup(group_id=job.group))
    except GroupIdNotFound:
        return GroupState(None)
    assert isinstance(reply, GroupDescription)
    return GroupState(reply)


def _with_lags(state: GroupState) -> GroupState | None:
    return None if any(partition.lag is None for partition in state.description.partitions) else state


def forget_clients() -> None:
    """Close the connections that `describe` kept."""
    while _clients:
        _clients.popitem()[1].close()
