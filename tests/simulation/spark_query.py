"""A Spark query as its job scheduler sees it, on the core: offsets log, commits log, replay of the logged batch.

What Spark does is taken from docs/trust/facts.md, "Spark": a new process replays the last logged, uncommitted batch by
``partitions(end)``, and asks ``latestOffset(start)`` only from a batch that was committed. The sink replaces its output
of a (query, batch id).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from coordinator.core.commands import AcquirePlan, CompletePlan, Expire, StartOrReclaimPlan
from coordinator.core.decide import decide
from coordinator.core.log_records import RunsChanged
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import encode_record
from coordinator.core.record_state import RecordState
from coordinator.core.replay import replay
from coordinator.protocol.errors import UnknownMemberId
from coordinator.protocol.messages import Heartbeat, JoinGroup, PartitionBounds, PlanReply
from tests.support.group_driver import GroupDriver

Record = tuple[int, int]
SNAPSHOT_AFTER = 400


class SimulatedCoordinator(GroupDriver):
    """The core under a shell that keeps a log, snapshots it, and remembers what became terminal."""

    def __init__(self, **options: Any) -> None:
        self.archived: list[Record] = []
        self.accepted: set[Record] = set()
        super().__init__(**options)

    def check_recovery(self) -> None:
        if len(self.log) > SNAPSHOT_AFTER:
            self.log = [encode_record(record) for record in snapshot_of(self.group)]

    def run(self, command: Any) -> Any:
        decision = decide(self.group, command, self.now_ms)
        self.log += [encode_record(r) for r in decision.records if r.durable]  # type: ignore[attr-defined]
        for record in decision.records:
            replay(self.group, record)  # type: ignore[arg-type]
            if isinstance(record, RunsChanged):
                self._remember(record)
        self.check_recovery()
        return decision.reply

    def _remember(self, record: RunsChanged) -> None:
        for first, last, run in record.runs:
            if run.state == RecordState.ACKNOWLEDGED:
                self.accepted.update((record.partition, offset) for offset in range(first, last + 1))
            elif run.state == RecordState.ARCHIVED:
                self.archived += [(record.partition, offset) for offset in range(first, last + 1)]

    def expire(self) -> None:
        due = self.group.next_deadline_ms()
        if due is not None and due <= self.now_ms:
            self.run(Expire())


class ProcessDied(Exception):
    """The query's process is gone; its scheduler starts another one."""


class SparkQuery:
    """One query with its checkpoint. ``process`` says whether a batch can be processed (True), or kills the process."""

    def __init__(
        self,
        coordinator: SimulatedCoordinator,
        name: str,
        process: Callable[[SparkQuery, PlanReply], bool],
        chance: random.Random,
        *,
        max_records: int | None,
        available_now: bool = False,
        doubled: float = 0.0,
    ) -> None:
        self.coordinator, self.name, self.process, self.chance = coordinator, name, process, chance
        self.max_records, self.available_now, self.doubled = max_records, available_now, doubled
        self.offsets: list[str] = []
        self.commits = 0
        self.outputs: dict[int, tuple[tuple[int, int, int], ...]] = {}
        self.processes = 0
        self.epoch = 0
        self.alive = False
        self.until: tuple[PartitionBounds, ...] = ()
        self.deaths, self.deaths_left = 0.0, 0

    # --- RPC

    def call(self, make: Callable[[], Any]) -> Any:
        """A request of this process; its answer may get lost, and then it asks again; a lapsed session is renewed."""
        asked = 2 if self.chance.random() < self.doubled else 1
        reply: Any = None
        for _ in range(asked):
            try:
                reply = self.coordinator.run(make())
            except UnknownMemberId:
                self._join(self.epoch)
                reply = self.coordinator.run(make())
        return reply

    def _join(self, epoch: int | None) -> None:
        process = f"{self.name}-{self.processes}"
        join = JoinGroup(group_id="billing", member_id=self.name, process_id=process, member_epoch=epoch)
        self.epoch = self.coordinator.run(join).member_epoch

    def heartbeat(self) -> None:
        if self.alive and self.epoch:
            self.call(lambda: Heartbeat(group_id="billing", member_id=self.name, member_epoch=self.epoch))

    # --- a process's life

    def start(self) -> None:
        self.processes += 1
        self._join(None)
        self.alive = True
        self.until = self.coordinator.bounds()

    def die(self) -> None:
        self.alive = False

    def step(self) -> bool:
        """One micro-batch, or the replay of one. False: there was nothing to do. ProcessDied if it failed."""
        if len(self.offsets) > self.commits:
            self._batch(self.offsets[-1])
            return True
        start = self.offsets[-1] if self.offsets else ""
        if start:
            self.call(lambda: CompletePlan(member_id=self.name, member_epoch=self.epoch, plan_id=start))
            self._may_die("completed")
        bounds = self.until if self.available_now else self.coordinator.bounds()
        reply = self.call(
            lambda: AcquirePlan(
                group_id="billing",
                member_id=self.name,
                member_epoch=self.epoch,
                start=start,
                max_records=self.max_records,
                bounds=bounds,
            )
        )
        if not reply.plan.plan_id:
            return False
        self._may_die("acquired")
        self.offsets.append(reply.plan.plan_id)
        self._may_die("logged")
        self._batch(reply.plan.plan_id)
        return True

    def _batch(self, number: str) -> None:
        bounds = self.coordinator.bounds()
        taken = self.call(
            lambda: StartOrReclaimPlan(
                group_id="billing", member_id=self.name, member_epoch=self.epoch, plan_id=number, bounds=bounds
            )
        )
        if not self.process(self, taken):
            raise ProcessDied("processing")
        self.outputs[len(self.offsets) - 1] = tuple(
            (p.partition, r.first, r.last) for p in taken.plan.partitions for r in p.ranges
        )
        if not taken.plan.trial:
            self._may_die("written")
        self.commits += 1
        self._may_die("committed")

    def _may_die(self, where: str) -> None:
        if self.deaths_left and self.chance.random() < self.deaths:
            self.deaths_left -= 1
            raise ProcessDied(where)
