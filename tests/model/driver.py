"""The core under a shell for the walks: it checks each decision, shortens its log, and compares the replayed state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator.core.commands import MoveLogStarts, PartitionStart
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import encode_record
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.messages import PartitionBounds
from tests.model.compare import share_partition_key
from tests.model.law import check_decision
from tests.model.state import PARTITIONS
from tests.support.group_driver import GroupDriver, durable_state

SNAPSHOT_AFTER = 250
RECOVER_EVERY = 40


class GroupModelDriver(GroupDriver):
    """The core under a shell that snapshots its log; recovery is checked now and then, or after each command."""

    steps = 0
    recover_every = RECOVER_EVERY
    command: Any = None
    topic = 0
    """The number of the newest topic of this name; ``exists``: whether the topic exists."""
    exists = True
    has_snapshotted = False

    def logs(self) -> list[int]:
        """Returns the newest topic's share partitions."""
        return [self.topic * PARTITIONS + partition for partition in range(PARTITIONS)]

    def bounds(self) -> tuple[PartitionBounds, ...]:
        return tuple(
            PartitionBounds(
                **share_partition_key(index)._asdict(), log_start=self.log_starts[index], end=self.ends[index]
            )
            for index in (self.logs() if self.exists else ())
        )

    def partition(self, partition: int = 0) -> SharePartition:
        return self.group.partitions[share_partition_key(partition)]

    def move_log_start(self, offset: int, partition: int = 0) -> None:
        start = PartitionStart(**share_partition_key(partition)._asdict(), start_offset=offset)
        self.run(MoveLogStarts(starts=(start,)))

    def run(self, command: Any) -> Any:
        self.command = command
        return super().run(command)

    def append(self, records: Iterable[Any]) -> None:
        records = tuple(records)
        check_decision(self.group, self.command, records)
        super().append(records)

    def check_recovery(self) -> None:
        self.steps += 1
        if self.steps % self.recover_every == 0:
            live = durable_state(self.group)
            assert durable_state(self.recovered()) == live, "replayed state is not the live state"
        if len(self.log) > SNAPSHOT_AFTER:
            self.snapshot()

    def snapshot(self) -> None:
        """The log is shortened to a snapshot."""
        self.has_snapshotted = True
        self.log = [encode_record(record) for record in snapshot_of(self.group)]
