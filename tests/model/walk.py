"""A seeded random walk: any command in any order, to the engine and to the naive model, and compared after each."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from coordinator.commands import AcquirePlan, AlterConfigs, CompletePlan, Expire, TakeUpPlan
from coordinator.errors import ShareGroupError
from coordinator.messages import (
    AckBatch,
    Acknowledge,
    AcknowledgeReply,
    AcquireRecords,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    PartitionAcks,
    PartitionBounds,
)
from coordinator.record_state import RecordState
from coordinator.records import encode_record
from coordinator.runs import Run
from tests.model.choice import ChoiceModel
from tests.model.naive import ACQUIRED, Key, Partition, Refused
from tests.model.plans import Ack
from tests.unit.group_driver import TOPIC_ID, GroupDriver, durable_state

QUERIES = ("q1", "q2", "q3")
CONSUMERS = ("c1", "c2")
PARTITIONS = 2
SNAPSHOT_AFTER = 250
RECOVER_EVERY = 40


class Engine(GroupDriver):
    """The core under a shell that snapshots its log; recovery is checked now and then."""

    steps = 0

    def check_recovery(self) -> None:
        self.steps += 1
        if self.steps % RECOVER_EVERY == 0:
            live = durable_state(self.group)
            assert durable_state(self.recovered()) == live, "replayed state is not the live state"
        if len(self.log) > SNAPSHOT_AFTER:
            self.log = [encode_record(record) for record in self.group.snapshot()]


class Walk:
    """One walk, from a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.engine = Engine(records=20, partitions=PARTITIONS)
        self.model = ChoiceModel({index: Partition() for index in range(PARTITIONS)})
        self.mode = "batch_optimized"
        self.epochs: dict[str, int] = {}
        self.processes: Counter[str] = Counter()
        self.spso = dict.fromkeys(range(PARTITIONS), 0)
        self.seen: Counter[str] = Counter()
        self.trace: list[str] = []

    # --- the two sides

    def both(self, what: str, command: Any, predict: Callable[[], Any]) -> Any:
        """The engine's reply; it refuses what the model refuses, and nothing else."""
        self.trace.append(what)
        try:
            reply = self.engine.run(command)
        except ShareGroupError as error:
            self.seen[f"{what.split()[0]} refused"] += 1
            try:
                predict()
            except Refused:
                return None
            raise AssertionError(f"{what} was refused: {error}") from error
        self.seen[what.split()[0]] += 1
        if not isinstance(reply, AcknowledgeReply):
            predict()
        return reply

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        names = tuple(ACTIONS)
        action = self.chance.choices(names, weights=[ACTIONS[n] for n in names])[0]
        getattr(self, action)()
        self.compare()

    def compare(self) -> None:
        """Offset by offset; and the invariants that need no model."""
        for index, naive in self.model.partitions.items():
            partition = self.engine.partition(index)
            assert partition.start_offset >= self.spso[index], "the start offset fell"
            self.spso[index] = partition.start_offset
            assert (partition.start_offset, partition.end_offset) == (naive.start, naive.end)
            assert partition.archived_total == naive.archived
            assert partition.acquired_count == sum(r.state == ACQUIRED for r in naive.records.values())
            self._compare_runs(index)
            end = self.engine.ends[index]
            assert partition.lag(end) == self.model.lag(index, end)
        for name, member in self.model.members.items():
            theirs = self.engine.group.members[name]
            mine = (member.epoch, member.deadline_ms, member.completed, member.evidence)
            assert mine == (theirs.member_epoch, theirs.session_deadline_ms, theirs.completed, theirs.evidence), name
        assert set(self.engine.group.plans) == set(self.model.plans), "plans live while a run carries their number"

    def _compare_runs(self, index: int) -> None:
        records, expected = self.model.partitions[index].records, 0
        before: tuple[int, Run] | None = None
        for first, last, run in self.engine.partition(index).runs:
            assert first <= last
            if before is not None:
                assert first > before[0], "runs overlap"
                assert first > before[0] + 1 or run != before[1], "equal neighbours are not merged"
            before = (last, run)
            for offset in range(first, last + 1):
                record = records.get(offset)
                assert record is not None, f"{index}:{offset} should not be known"
                assert tuple(run) == record.known(), f"{index}:{offset} {run} {record}"
            expected += last - first + 1
        assert expected == len(records), "an offset is missing"

    # --- members

    def _any(self, names: tuple[str, ...] = (*QUERIES, *CONSUMERS)) -> str:
        return self.chance.choice(names)

    def _epoch(self, name: str) -> int:
        epoch = self.epochs.get(name, 1)
        return epoch - 1 if self.chance.random() < 0.02 else epoch

    def _join(self, name: str, process: str, epoch: int | None) -> None:
        command = JoinGroup(
            group_id="billing", member_id=name, process_id=process, member_epoch=epoch, query=name in QUERIES
        )
        now_ms = self.engine.now_ms
        reply = self.both(
            f"join {name} {process} {epoch}",
            command,
            lambda: self.model.join(name, process, epoch, name in QUERIES, now_ms),
        )
        if reply is not None:
            self.epochs[name] = reply.member_epoch
            assert reply.member_epoch == self.model.members[name].epoch

    def join_anew(self) -> None:
        name = self._any()
        self.processes[name] += 1
        self._join(name, f"{name}-{self.processes[name]}", None)

    def join_again(self) -> None:
        name = self._any()
        if self.processes[name]:
            process = max(1, self.processes[name] - (self.chance.random() < 0.1))
            self._join(name, f"{name}-{process}", self.chance.choice((None, self._epoch(name))))

    def heartbeat(self) -> None:
        name = self._any()
        epoch, now_ms = self._epoch(name), self.engine.now_ms
        self.both(
            f"heartbeat {name}",
            Heartbeat(group_id="billing", member_id=name, member_epoch=epoch),
            lambda: self.model.heartbeat(name, epoch, now_ms),
        )

    def leave(self) -> None:
        name = self._any()
        epoch, now_ms = self._epoch(name), self.engine.now_ms
        self.both(
            f"leave {name}",
            LeaveGroup(group_id="billing", member_id=name, member_epoch=epoch),
            lambda: self.model.leave(name, epoch, now_ms),
        )

    def time(self) -> None:
        self.engine.now_ms += self.chance.choice((1, 500, 2_000, 10_000, 30_001, 46_000))
        now_ms = self.engine.now_ms
        self.both(f"expire {now_ms}", Expire(), lambda: self.model.expire(now_ms))

    def crash(self) -> None:
        self.trace.append("crash")
        self.engine.crash()
        self.model.reloaded(self.engine.now_ms)

    # --- the log and the configs

    def append(self) -> None:
        self.engine.ends[self.chance.randrange(PARTITIONS)] += self.chance.randint(1, 12)

    def log_start(self) -> None:
        index = self.chance.randrange(PARTITIONS)
        end = self.engine.ends[index]
        offset = min(end, self.engine.log_starts[index] + self.chance.randint(0, 6))
        self.trace.append(f"log start {index} {offset}")
        self.engine.move_log_start(offset, index)
        self.model.move_log_start(index, offset)

    def config(self) -> None:
        limit, base = self.chance.choice((2, 3, 5, 5, 10)), self.chance.choice((5, 30, 100_000))
        self.mode = self.chance.choice(("batch_optimized", "record_limit"))
        configs = {
            "share.delivery.count.limit": str(limit),
            "share.isolation.base": str(base),
            "share.acquire.mode": self.mode,
            "share.partition.max.record.locks": "100",
        }
        self.both(f"config {limit} {base} {self.mode}", AlterConfigs(configs=configs), lambda: None)
        self.model.limit, self.model.base, self.model.locks = limit, base, 100

    # --- queries

    def _number(self, name: str) -> tuple[int, str]:
        """A number that a query may name: its newest, mostly."""
        member = self.model.members.get(name)
        number = member.newest.number if member is not None and member.newest is not None else 0
        if self.chance.random() < 0.05:
            number = self.chance.randint(0, self.model.last_number)
        return number, self.engine.group.number_text(number)

    def _bounds(self) -> tuple[PartitionBounds, ...]:
        bounds = self.engine.bounds()
        return bounds if self.chance.random() < 0.9 else bounds[:1]

    def acquire(self) -> None:
        name, bounds, now_ms = self._any(QUERIES), self._bounds(), self.engine.now_ms
        member = self.model.members.get(name)
        start = member.completed if member is not None else 0
        if self.chance.random() < 0.03:
            start = self.chance.randint(0, self.model.last_number)
        epoch, most = self._epoch(name), self.chance.choice((1, 3, 8, 40))
        command = AcquirePlan(
            member_id=name,
            member_epoch=epoch,
            start=self.engine.group.number_text(start),
            max_records=most,
            bounds=bounds,
        )
        again: list[bool] = []

        def predict() -> None:
            plan = self.model.pending_plan(self.model.member(name, epoch), start)
            again.append(plan is not None and self.model.pending_again(self.model.members[name], plan))

        reply = self.both(f"acquire {name} {start} {most}", command, predict)
        if reply is None:
            return
        member = self.model.members[name]
        chosen = self._keys(reply)
        if again[0]:
            assert member.newest is not None
            assert chosen == {k: r.count for k, r in self.model.held(member.newest)}, "a plan not used comes back"
            return
        ends = {b.partition: b.end for b in bounds}
        self.model.check_plan(member, list(chosen), reply.plan.trial, most, self.mode, ends, now_ms)
        if chosen:
            number = self.engine.group.number(reply.plan.number)
            self.model.acquired(member, number, list(chosen), reply.plan.trial, now_ms)
            assert chosen == {k: self.model.at(k).count for k in chosen}

    def _keys(self, reply: Any) -> dict[Key, int]:
        partitions = reply.plan.partitions if hasattr(reply, "plan") else reply.partitions
        return {(p.partition, o): r.delivery_count for p in partitions for r in p.ranges for o in range(r[0], r[1] + 1)}

    def use(self) -> None:
        name, now_ms = self._any(QUERIES), self.engine.now_ms
        epoch = self._epoch(name)
        number, text = self._number(name)
        used: list[Any] = []
        command = TakeUpPlan(
            member_id=name,
            member_epoch=epoch,
            number=text,
            bounds=(),
            fail_on_data_loss=False,
        )
        reply = self.both(
            f"use {name} {number}", command, lambda: used.append(self.model.take_up(name, epoch, number, now_ms))
        )
        if reply is not None:
            assert self._keys(reply) == {k: r.count for k, r in self.model.held(used[0])}

    def replay(self) -> None:
        """The query's process dies, and a new one takes the batch up."""
        name = self._any(QUERIES)
        self.processes[name] += 1
        self._join(name, f"{name}-{self.processes[name]}", None)
        self.use()

    def complete(self) -> None:
        name = self._any(QUERIES)
        epoch = self._epoch(name)
        number, text = self._number(name)
        self.both(
            f"complete {name} {number}",
            CompletePlan(member_id=name, member_epoch=epoch, number=text),
            lambda: self.model.complete(name, epoch, number),
        )

    # --- ShareConsumers

    def fetch(self) -> None:
        name, bounds, now_ms = self._any(CONSUMERS), self._bounds(), self.engine.now_ms
        epoch, most = self._epoch(name), self.chance.choice((1, 4, 10))
        command = AcquireRecords(
            group_id="billing", member_id=name, member_epoch=epoch, max_records=most, bounds=bounds
        )
        reply = self.both(f"fetch {name} {most}", command, lambda: self.model.member(name, epoch))
        if reply is None or not reply.number:
            return
        chosen = self._keys(reply)
        for index in {k[0] for k in chosen}:
            offsets = sorted(o for i, o in chosen if i == index)
            self.model.check_fetch(index, offsets, most, self.mode)
        member = self.model.members[name]
        self.model.acquired(member, self.engine.group.number(reply.number), list(chosen), False, now_ms)
        assert chosen == {k: self.model.at(k).count for k in chosen}

    def acknowledge(self) -> None:
        name, now_ms = self._any(CONSUMERS), self.engine.now_ms
        epoch, index = self._epoch(name), self.chance.randrange(PARTITIONS)
        acks = self._acks(name, index)
        if not acks:
            return
        self.trace.append(f"acks {acks}")
        batches = tuple(AckBatch(first=f, last=la, delivery_count=c, types=tuple(t)) for f, la, c, t in acks)
        partitions = (PartitionAcks(topic_id=TOPIC_ID, partition=index, batches=batches),)
        command = Acknowledge(group_id="billing", member_id=name, member_epoch=epoch, partitions=partitions)
        reply = self.both(f"acknowledge {name} {index}", command, lambda: self.model.member(name, epoch))
        if reply is not None:
            taken = self.model.acknowledge(name, epoch, index, acks, now_ms)
            self.seen["acknowledgement " + ("taken" if taken else "refused")] += 1
            assert taken == (not reply.errors), f"{acks} {reply.errors}"

    def _acks(self, name: str, index: int) -> list[Ack]:
        """Mostly what the member holds, in pieces of equal count; now and then something else."""
        records = self.model.partitions[index].records
        mine = sorted(o for o, r in records.items() if self.model.holds(name, r))
        acks: list[Ack] = []
        for offset in mine:
            if self.chance.random() < 0.15:
                continue
            kind, count = self.chance.choice((0, 1, 1, 2, 2, 3, 4)), records[offset].count
            if acks and acks[-1][1] == offset - 1 and acks[-1][2] == count and self.chance.random() < 0.8:
                first, _, _, types = acks.pop()
                acks.append((first, offset, count, [*types, kind]))
            else:
                acks.append((offset, offset, count, [kind]))
        if self.chance.random() < 0.1 and records:
            offset = self.chance.choice(list(records))
            count = records[offset].count - self.chance.choice((0, 1))
            acks.append((offset, offset + 1, count, [self.chance.choice((1, 2, 4))] * 2))
        return acks


ACTIONS = {
    "join_anew": 2,
    "join_again": 8,
    "heartbeat": 8,
    "leave": 1,
    "time": 6,
    "crash": 1,
    "append": 8,
    "log_start": 2,
    "config": 1,
    "acquire": 20,
    "use": 14,
    "replay": 10,
    "complete": 10,
    "fetch": 12,
    "acknowledge": 14,
}

assert RecordState.ACQUIRED == ACQUIRED
