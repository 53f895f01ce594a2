"""ShareConsumers on one topic, driven through the core without a service: fetch, acknowledge, and look."""

from __future__ import annotations

from coordinator.core.commands import (
    AcquireForConsumer,
    AlterConfigs,
    InitializePartitions,
    PartitionStart,
    TopicWithId,
)
from coordinator.core.looks.description import describe_group
from coordinator.core.record_state import HELD
from coordinator.core.runs import Run
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    GroupDescription,
    Heartbeat,
    LeaveGroup,
    MarkInProgress,
    PartitionAcks,
    PartitionProgress,
    ProgressBatch,
)
from coordinator.protocol.values import AcknowledgeType
from tests.support.group_driver import UNSET, GroupDriver

GAP, ACCEPT, RELEASE, REJECT, RENEW, _ = AcknowledgeType
LOCK_MS = 30_000
SESSION_MS = 45_000
HEARTBEAT_MS = 15_000


def texts(configs: dict[str, object]) -> dict[str, str]:
    """``share_acquire_mode="record_limit"`` as the key and text that a group is configured with."""
    return {name.replace("_", "."): str(value).lower() for name, value in configs.items()}


def batch(first: int, last: int, *types: int, count: int = 1) -> AckBatch:
    """Offsets that were delivered at ``count``: one type for all of them, or one for each."""
    return AckBatch(first=first, last=last, delivery_count=count, types=types)


class ShareConsumers(GroupDriver):
    """A group whose members c1, c2, c3 have joined; its share partitions begin at ``start``, their logs end at
    ``end`` (exclusive). A config is named in snake case."""

    def __init__(self, *, start: int = 0, end: int = 100, partitions: int = 1, members: int = 3, **configs: object):
        super().__init__(partitions=0, **{**UNSET, **texts(configs)})
        self.ends = dict.fromkeys(range(partitions), end)
        self.log_starts = dict.fromkeys(self.ends, 0)
        self.initialize(start)
        for number in range(members):
            self.join(f"c{number + 1}", query=False)

    def initialize(self, start: int) -> None:
        """Give each partition the start offset that the reset policy came to."""
        topic = TopicWithId(topic="orders", topic_id=self.topic_id)
        starts = tuple(PartitionStart(topic_id=self.topic_id, partition=p, start_offset=start) for p in self.ends)
        self.run(InitializePartitions(topics=(topic,), starts=starts))

    def configure(self, **configs: object) -> None:
        self.run(AlterConfigs(configs=texts(configs)))

    # --- what a consumer does

    def fetch(self, member: str = "c1", max_records: int = 500) -> list[tuple[int, int, int]]:
        """ShareFetch: (first, last, delivery count) of what was acquired, partition by partition."""
        who = {"group_id": "billing", "member_id": member, "member_epoch": self.epochs[member]}
        reply = self.run(AcquireForConsumer(**who, max_records=max_records, bounds=self.bounds()))
        return [(r.first, r.last, r.delivery_count) for p in reply.partitions for r in p.ranges]

    def acknowledge(
        self, kind: int, first: int, last: int | None = None, *, count: int = 1, member: str = "c1", partition: int = 0
    ) -> str:
        """ShareAcknowledge of one range; the error's name, or NONE."""
        acks = batch(first, first if last is None else last, kind, count=count)
        return self.acknowledge_all({partition: (acks,)}, member)[partition]

    def acknowledge_batches(self, *batches: AckBatch, member: str = "c1") -> str:
        """ShareAcknowledge of several batches of partition 0; the error's name, or NONE."""
        return self.acknowledge_all({0: batches}, member)[0]

    def acknowledge_all(self, batches: dict[int, tuple[AckBatch, ...]], member: str = "c1") -> dict[int, str]:
        """ShareAcknowledge of several partitions: the error of each."""
        acks = tuple(PartitionAcks(topic_id=self.topic_id, partition=p, batches=b) for p, b in batches.items())
        who = {"group_id": "billing", "member_id": member, "member_epoch": self.epochs[member]}
        errors = self.run(Acknowledge(**who, partitions=acks)).errors
        return {p: errors.get(f"{self.topic_id}:{p}", "NONE") for p in batches}

    def signal(
        self, first: int, last: int | None = None, *, hint: str | None = None, count: int = 1, member: str = "c1"
    ) -> str:
        """MarkInProgress of one range of partition 0; the error as ``NAME: sentence``, or NONE."""
        batch = ProgressBatch(first=first, last=first if last is None else last, delivery_count=count, hint=hint)
        return self.signal_batches(batch, member=member)

    def signal_batches(self, *batches: ProgressBatch, member: str = "c1") -> str:
        """MarkInProgress of several ranges of partition 0; the error as ``NAME: sentence``, or NONE."""
        signals = (PartitionProgress(topic_id=self.topic_id, partition=0, batches=batches),)
        who = {"group_id": "billing", "member_id": member, "member_epoch": self.epochs[member]}
        errors = self.run(MarkInProgress(**who, partitions=signals)).errors
        return ": ".join(errors[f"{self.topic_id}:0"]) if errors else "NONE"

    def heartbeat(self, *members: str) -> None:
        for member in members:
            self.run(Heartbeat(group_id="billing", member_id=member, member_epoch=self.epochs[member]))

    def leave(self, member: str = "c1") -> None:
        self.run(LeaveGroup(group_id="billing", member_id=member, member_epoch=self.epochs[member]))

    def wait(self, ms: int) -> None:
        """Time goes by, and every member that has a session sends its heartbeats."""
        while ms > 0:
            self.heartbeat(*(m.member_id for m in self.group.members.values() if m.active))
            self.pass_time(min(ms, HEARTBEAT_MS))
            ms -= HEARTBEAT_MS

    # --- what a test looks at

    def describe(self) -> GroupDescription:
        return describe_group(self.group, self.bounds())

    def window(self, partition: int = 0) -> tuple[int, int]:
        """SPSO, and SPEO as the KIP's example has it: exclusive."""
        found = self.partition(partition)
        return found.start_offset, found.end_offset

    def held(self, partition: int = 0) -> list[str]:
        """The held offsets, each range with its holder: ``10-14 c1``."""
        runs = ((first, last, self._holder(run)) for first, last, run in self.partition(partition).runs)
        return _merged((first, last, holder) for first, last, holder in runs if holder)

    def states(self, partition: int = 0) -> list[str]:
        """The window from its lowest record on, neighbours alike merged: ``10-14 AVAILABLE 1`` (delivery count)."""
        runs = self.partition(partition).runs
        return _merged((first, last, f"{run.state.name} {run.delivery_count}") for first, last, run in runs)

    def _holder(self, run: Run) -> str:
        held = run.state in HELD and run.plan_id is not None
        return self.group.plans[run.plan_id].member_id if held and run.plan_id is not None else ""


def _merged(entries) -> list[str]:
    found: list[tuple[int, int, str]] = []
    for first, last, text in entries:
        if found and found[-1][1] == first - 1 and found[-1][2] == text:
            first = found.pop()[0]
        found.append((first, last, text))
    return [f"{first}-{last} {text}" if first < last else f"{first} {text}" for first, last, text in found]
