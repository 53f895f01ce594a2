"""Steps of members and of time: the core takes each, the naive model predicts it, and both are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from coordinator.core import share_group
from coordinator.core.commands import Expire, ExtendDeadlines
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import (
    AcknowledgeReply,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    PartitionBounds,
    ProgressReply,
)
from tests.model.administered import AdministeredModel
from tests.model.arguments import FlowConfigs, LockConfigs, SinkConfigs
from tests.model.compare import PARTITIONS, Comparison, index_of, share_partition_key
from tests.model.driver import GroupModelDriver
from tests.model.state import Key, Partition, Refused

QUERIES = ("q1", "q2", "q3")
CONSUMERS = ("c1", "c2")


class MemberSteps:
    """Both sides, and the steps of members and of time."""

    def __init__(self) -> None:
        self.core = GroupModelDriver(records=20, partitions=PARTITIONS)
        self.model = AdministeredModel({index: Partition() for index in range(PARTITIONS)})
        self.comparison = Comparison(self.core, self.model)
        self.mode = "batch_optimized"
        self.sinks = SinkConfigs()
        self.locks = LockConfigs()
        self.order = "none"
        self.flow = FlowConfigs()
        self.epochs: dict[str, int] = {}
        self.processes: Counter[str] = Counter()
        self.seen: Counter[str] = self.model.met
        self.trace: list[str] = []
        self.left_out_by_reports: dict[tuple[str, int, int], list[Key]] = {}
        """By (member, epoch, plan id), what the plan's last start left out. Of starts that only report losses."""

    def both(self, what: str, command: Any, predict: Callable[[], Any]) -> Any:
        """The core's reply; it refuses what the model refuses, and nothing else. ``command``: or a function that
        runs several."""
        self.trace.append(what)
        self.note_snapshot()
        try:
            reply = command() if callable(command) else self.core.run(command)
        except ShareGroupError as error:
            self.seen[f"{what.split()[0]} refused"] += 1
            try:
                predict()
            except Refused:
                return None
            raise AssertionError(f"{what} was refused: {error}") from error
        self.seen[what.split()[0]] += 1
        if not isinstance(reply, AcknowledgeReply | ProgressReply):
            predict()
            self.comparison.take_over_backoffs()
        return reply

    def note_snapshot(self) -> None:
        """Tell the model if the last step has made a snapshot of the core's log."""
        if self.core.has_snapshotted:
            self.core.has_snapshotted = False
            self.model.snapshotted()

    def keys(self, reply: Any) -> dict[Key, int]:
        partitions = reply.plan.partitions if hasattr(reply, "plan") else reply.partitions
        return {
            (index_of(p.topic_id, p.partition), o): r.delivery_count
            for p in partitions
            for r in p.ranges
            for o in range(r[0], r[1] + 1)
        }

    def bounds(self, most: int = PARTITIONS) -> tuple[PartitionBounds, ...]:
        return self.core.bounds()[:most]

    # --- members

    def join(self, name: str, process: str, epoch: int | None) -> None:
        is_query = name in QUERIES
        who = {"group_id": "billing", "member_id": name, "process_id": process, "member_epoch": epoch}
        command = JoinGroup(**who, query=is_query, topics=() if is_query else ("orders",))  # type: ignore[arg-type]
        now_ms = self.core.now_ms
        reply = self.both(
            f"join {name} {process} {epoch}",
            command,
            lambda: self.model.join(name, process, epoch, name in QUERIES, now_ms),
        )
        if reply is not None:
            self.epochs[name] = reply.member_epoch
            assert reply.member_epoch == self.model.members[name].epoch

    def join_anew(self, name: str) -> None:
        """A new process of the member joins."""
        self.processes[name] += 1
        self.join(name, f"{name}-{self.processes[name]}", None)

    def join_again(self, name: str) -> None:
        """The same process, whether or not its session lives."""
        self.processes[name] = max(1, self.processes[name])
        self.join(name, f"{name}-{self.processes[name]}", None)

    def heartbeat(self, name: str, epoch: int) -> None:
        self._says_who("heartbeat", Heartbeat, self.model.heartbeat, name, epoch)

    def leave(self, name: str, epoch: int) -> None:
        self._says_who("leave", LeaveGroup, self.model.leave, name, epoch)

    def _says_who(self, what: str, request: type[Any], model: Callable[..., None], name: str, epoch: int) -> None:
        """A request that contains the member alone."""
        now_ms = self.core.now_ms
        command = request(group_id="billing", member_id=name, member_epoch=epoch)
        self.both(f"{what} {name}", command, lambda: model(name, epoch, now_ms))

    def pass_time(self, ms: int) -> None:
        self.core.now_ms += ms
        now_ms = self.core.now_ms
        self.both(f"expire {now_ms}", Expire(), lambda: self.model.expire(now_ms))
        group = self.core.group
        for name in sorted(set(self.model.members) - set(group.members)):
            self.model.member_forgotten(name, now_ms, share_group.MEMBERS_KEPT)
        for index in [i for i in self.model.partitions if share_partition_key(i) not in group.partitions]:
            self.model.partition_forgotten(index, index // PARTITIONS)

    def crash(self, behind_ms: int = 0) -> None:
        """The coordinator dies, and another one, whose clock is ``behind_ms`` behind, loads what was appended."""
        self.trace.append(f"crash {behind_ms}")
        self.note_snapshot()
        self.core.now_ms = max(1, self.core.now_ms - behind_ms)
        self.core.crash()
        self.model.reloaded(self.core.now_ms)

    def stall(self, ms: int) -> None:
        """The coordinator stands still: no member is heard, and none is silent."""
        self.core.now_ms += ms
        now_ms = self.core.now_ms
        self.both(f"stall {ms}", ExtendDeadlines(stalled_ms=ms), lambda: self.model.stalled(ms, now_ms))

    def forget_group(self) -> None:
        """The group was deleted: neither side knows anything of it."""
        self.model.forget_group()
        self.comparison.forget_group()
        self.epochs.clear()
        self.left_out_by_reports.clear()
