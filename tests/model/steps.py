"""Each command as one step: the core does it, the naive model predicts it, and both are compared.

Who chooses the arguments is not said here: a seeded walk (:mod:`tests.model.walk`) or Hypothesis
(:mod:`tests.model.test_stateful`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from coordinator.core.commands import (
    AcquireForConsumer,
    AcquirePlan,
    AlterConfigs,
    ArchiveGaps,
    CompletePlan,
    DeadLettersWritten,
    Expire,
    MarkDeadLettersWritten,
    StageRuns,
    StartOrReclaimPlan,
)
from coordinator.core.record_state import RecordState
from coordinator.core.records import encode_record
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    AcknowledgeReply,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    PartitionAcks,
    PartitionBounds,
    PartitionOutcomes,
)
from coordinator.protocol.values import AcknowledgeType, OffsetRange, OutcomeRun
from tests.model.choice import ChoiceModel
from tests.model.compare import Comparison, check_taken_up
from tests.model.law import check_decision
from tests.model.naive import ACQUIRED, Backoff, Key, Partition, Refused
from tests.model.plans import Ack
from tests.model.sinks import Row
from tests.support.group_driver import TOPIC_ID, GroupDriver, durable_state

QUERIES = ("q1", "q2", "q3")
CONSUMERS = ("c1", "c2")
PARTITIONS = 2
SNAPSHOT_AFTER = 250
RECOVER_EVERY = 40
SOLO_TIMEOUT_MS = 60_000
BACKOFFS = (
    Backoff(),
    Backoff(first_ms=1_000),
    Backoff(first_ms=2_000, multiplier=3.0, max_ms=10_000, jitter=0.2),
    Backoff(first_ms=20_000, multiplier=1.5, jitter=1.0),
)


@dataclass(frozen=True)
class SinkConfigs:
    """A group's configs that have to do with sinks, dead letters and retries."""

    explicit: bool = False
    dead_letters: bool = False
    backoff: Backoff = BACKOFFS[0]
    reject_ratio: float = 1.0


class GroupModelDriver(GroupDriver):
    """The core under a shell that snapshots its log; recovery is checked now and then, or after each command."""

    steps = 0
    recover_every = RECOVER_EVERY
    command: Any = None

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
        self.log = [encode_record(record) for record in self.group.snapshot()]


class Steps:
    """Both sides, and every step that they can take together."""

    def __init__(self) -> None:
        self.core = GroupModelDriver(records=20, partitions=PARTITIONS)
        self.model = ChoiceModel({index: Partition() for index in range(PARTITIONS)})
        self.comparison = Comparison(self.core, self.model)
        self.mode = "batch_optimized"
        self.sinks = SinkConfigs()
        self.epochs: dict[str, int] = {}
        self.processes: Counter[str] = Counter()
        self.seen: Counter[str] = self.model.met
        self.trace: list[str] = []

    def both(self, what: str, command: Any, predict: Callable[[], Any]) -> Any:
        """The core's reply; it refuses what the model refuses, and nothing else."""
        self.trace.append(what)
        try:
            reply = self.core.run(command)
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
            self.comparison.take_over_backoffs()
        return reply

    def keys(self, reply: Any) -> dict[Key, int]:
        partitions = reply.plan.partitions if hasattr(reply, "plan") else reply.partitions
        return {(p.partition, o): r.delivery_count for p in partitions for r in p.ranges for o in range(r[0], r[1] + 1)}

    def bounds(self, most: int = PARTITIONS) -> tuple[PartitionBounds, ...]:
        return self.core.bounds()[:most]

    # --- members

    def join(self, name: str, process: str, epoch: int | None) -> None:
        command = JoinGroup(
            group_id="billing", member_id=name, process_id=process, member_epoch=epoch, query=name in QUERIES
        )
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
        """A new process."""
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
        """A request that says no more than who asks."""
        now_ms = self.core.now_ms
        command = request(group_id="billing", member_id=name, member_epoch=epoch)
        self.both(f"{what} {name}", command, lambda: model(name, epoch, now_ms))

    def pass_time(self, ms: int) -> None:
        self.core.now_ms += ms
        now_ms = self.core.now_ms
        self.both(f"expire {now_ms}", Expire(), lambda: self.model.expire(now_ms))

    def crash(self) -> None:
        """The coordinator dies, and another one loads what was appended."""
        self.trace.append("crash")
        self.core.crash()
        self.model.reloaded(self.core.now_ms)

    # --- the log and the configs

    def new_records(self, index: int, count: int) -> None:
        self.trace.append(f"new records {index} {count}")
        self.core.ends[index] += count

    def move_log_start(self, index: int, by: int, *, noticed: bool = True) -> None:
        """The log loses its oldest records. Not noticed: the next to ask the brokers finds out."""
        offset = min(self.core.ends[index], self.core.log_starts[index] + by)
        self.trace.append(f"log start {index} {offset} {'' if noticed else 'not noticed'}")
        self.core.log_starts[index] = offset
        if noticed:
            self.core.move_log_start(offset, index)
            self.model.move_log_start(index, offset)
            self.seen["lost, and held by nobody"] += bool(self.model.unreported_losses)

    def gap(self, index: int, first: int, last: int) -> None:
        """Somebody read the log, and found no records there."""
        self.both(
            f"gap {index} {first} {last}",
            ArchiveGaps(gaps=(OffsetRange(topic_id=TOPIC_ID, partition=index, first=first, last=last),)),
            lambda: self.model.archive_gap(index, first, last),
        )

    def config(self, limit: int, base: int, mode: str, sinks: SinkConfigs | None = None) -> None:
        """``sinks``: as they are, if they are not named."""
        self.mode = mode
        model, sinks = self.model, sinks or self.sinks
        self.sinks = sinks
        configs = {
            "share.delivery.count.limit": str(limit),
            "share.isolation.base": str(base),
            "share.acquire.mode": mode,
            "share.partition.max.record.locks": "100",
            "share.poison.solo.timeout.ms": str(SOLO_TIMEOUT_MS),
            "share.acknowledgement.mode": "explicit" if sinks.explicit else "implicit",
            "errors.deadletterqueue.topic.name": "dlq" if sinks.dead_letters else "",
            "errors.deadletterqueue.max.reject.ratio": str(sinks.reject_ratio),
            "share.release.backoff.ms": str(sinks.backoff.first_ms),
            "share.release.backoff.multiplier": str(sinks.backoff.multiplier),
            "share.release.backoff.max.ms": str(sinks.backoff.max_ms),
            "share.release.backoff.jitter": str(sinks.backoff.jitter),
        }
        self.both(f"config {limit} {base} {mode} {sinks}", AlterConfigs(configs=configs), lambda: None)
        model.limit, model.base, model.locks, model.solo_timeout_ms = limit, base, 100, SOLO_TIMEOUT_MS
        model.explicit, model.dead_letters = sinks.explicit, sinks.dead_letters
        model.backoff, model.reject_ratio = sinks.backoff, sinks.reject_ratio

    # --- queries

    def newest(self, name: str) -> int:
        member = self.model.members.get(name)
        return member.newest.plan_id if member is not None and member.newest is not None else 0

    def given_up(self, name: str) -> list[int]:
        """Plans that a driver of the query may still have logged."""
        member = self.model.members.get(name)
        return member.newest.superseded_plans if member is not None and member.newest is not None else []

    def completed(self, name: str) -> int:
        member = self.model.members.get(name)
        return member.completed if member is not None else 0

    def acquire(self, name: str, epoch: int, start: int, most: int, partitions: int = PARTITIONS) -> None:
        now_ms, bounds = self.core.now_ms, self.bounds(partitions)
        command = AcquirePlan(
            member_id=name,
            member_epoch=epoch,
            start=self.core.group.plan_id_text(start),
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
        chosen = self.keys(reply)
        if again[0]:
            assert member.newest is not None
            assert chosen == {k: r.count for k, r in self.model.held(member.newest)}, "a plan not used comes back"
        else:
            ends = {b.partition: b.end for b in bounds}
            self.model.check_plan(member, list(chosen), reply.plan.trial, most, self.mode, ends, now_ms)
            to_tell = bool(
                self.model.unreported_losses or (member.pending is not None and member.pending.unreported_losses)
            )
            assert bool(reply.plan.plan_id) == bool(chosen or to_tell), "losses are told, be there nothing to acquire"
            self.seen["a plan that only tells"] += to_tell and not chosen
            if reply.plan.plan_id:
                number = self.core.group.plan_id(reply.plan.plan_id)
                self.model.acquired(member, number, list(chosen), reply.plan.trial, now_ms)
                assert chosen == {k: self.model.at(k).count for k in chosen}
        self.comparison.handed_out(chosen, (name, epoch, reply.plan.plan_id))

    def use(
        self, name: str, epoch: int, number: int, *, looks: bool = False, fail: bool = False, own_mode: str = ""
    ) -> None:
        """``looks``: asks the brokers where the logs start first. ``fail``: failOnDataLoss. ``own_mode``: the query's
        share.acknowledgement.mode."""
        now_ms = self.core.now_ms
        bounds = self.bounds() if looks else ()
        log_starts = {b.partition: b.log_start for b in bounds}
        member = self.model.members.get(name)
        plan = member.newest if member is not None else None
        before = list(plan.offsets) if plan is not None else []
        empty = member is not None and member.superseded_plans(number)
        anew = not empty and plan is not None and not (plan.started and plan.epoch == epoch)
        command = StartOrReclaimPlan(
            member_id=name,
            member_epoch=epoch,
            plan_id=self.core.group.plan_id_text(number),
            bounds=bounds,
            fail_on_data_loss=fail,
            acknowledgement_mode=own_mode,
        )
        reply = self.both(
            f"use {name} {number}{' looks' if looks else ''}{' fails' if fail else ''} {own_mode}",
            command,
            lambda: self.model.take_up(name, epoch, number, now_ms, log_starts, fail, own_mode),
        )
        if reply is None:
            return
        plan = self.model.members[name].newest
        assert plan is not None
        chosen = self.keys(reply)
        assert chosen == {k: r.count for k, r in self.model.held(plan)}
        told = sorted((o.partition, offset) for o in reply.data_loss for offset in range(o.first, o.last + 1))
        assert told == sorted(plan.told), "what was lost is told"
        self.seen["loss told"] += bool(told)
        self.seen["given up, and logged"] += empty
        if anew:
            check_taken_up(before, plan, chosen, reply.left_out)
        self.comparison.handed_out(chosen, (name, epoch, reply.plan.plan_id))

    def replay(self, name: str, number: int, **how: Any) -> None:
        """The query's process dies, and a new one takes the batch up."""
        self.join_anew(name)
        self.use(name, self.epochs[name], number, **how)

    def another_plan(self, name: str, consumer: str, most: int) -> None:
        """The query's driver is given a plan and stopped, others take the records, its successor is given the next."""
        self.join_again(name)
        self.complete(name, self.epochs[name], self.newest(name))
        self.acquire(name, self.epochs[name], self.completed(name), most)
        self.leave(name, self.epochs[name])
        self.join_again(consumer)
        self.fetch(consumer, self.epochs[consumer], 40)
        self.comparison.compare()
        self.join_anew(name)
        self.acquire(name, self.epochs[name], self.completed(name), most)

    def complete(
        self, name: str, epoch: int, number: int, *, processed: bool = True, missing: Iterable[Key] = ()
    ) -> None:
        """``missing``: offsets that the log turned out not to hold."""
        text, missing, now_ms = self.core.group.plan_id_text(number), sorted(missing), self.core.now_ms
        gaps = tuple(OffsetRange(topic_id=TOPIC_ID, partition=index, first=o, last=o) for index, o in missing)
        undecided: list[bool] = []
        reply = self.both(
            f"complete {name} {number}{'' if processed else ' only gaps'} without {missing}",
            CompletePlan(member_id=name, member_epoch=epoch, plan_id=text, processed=processed, gaps=gaps),
            lambda: undecided.append(self.model.complete(name, epoch, number, processed, missing, now_ms)),
        )
        assert reply is None or [reply.undecided] == undecided, "given back, since no sink decides"

    # --- sinks, and who writes dead letters

    def stage(
        self,
        rows: list[Row],
        *,
        query_id: str = "",
        outdated: str = "",
        fail_on_stale: bool = False,
        own_mode: str = "",
        replaces: bool = False,
    ) -> None:
        """What a batch's rows said; ``rows`` may name any record, but each one once. ``outdated``: the sink is of an
        earlier life of the group ("incarnation"), or of its topic ("topic"). ``own_mode``: the sink's
        share.acknowledgement.mode. ``replaces``: its target does, at a replay."""
        now_ms = self.core.now_ms
        rows = sorted(rows, key=lambda row: row.key)
        partitions = tuple(
            PartitionOutcomes(topic="orders", partition=index, runs=tuple(outcome_runs(of_partition)))
            for index, of_partition in groupby(rows, key=lambda row: row.key[0])
        )
        command = StageRuns(
            group_id="billing",
            incarnation="before" if outdated == "incarnation" else "i",
            topic_ids={"orders": "before" if outdated == "topic" else TOPIC_ID},
            query_id=query_id,
            acknowledgement_mode=own_mode,
            replaces=replaces,
            fail_on_stale=fail_on_stale,
            partitions=partitions,
        )
        counted: list[tuple[int, int]] = []
        reply = self.both(
            f"stage {[(p.partition, *map(tuple, p.runs)) for p in partitions]} "
            f"{query_id} {outdated} {fail_on_stale} {own_mode} {replaces}",
            command,
            lambda: counted.append(
                self.model.stage(
                    rows,
                    now_ms,
                    query_id,
                    pinned=not outdated,
                    fail_on_stale=fail_on_stale,
                    mode=own_mode,
                    replaces=replaces,
                )
            ),
        )
        assert reply is None or [(reply.staged, reply.stale)] == counted

    def mark_dead_letters_written(self, keys: list[tuple[Key, int]]) -> None:
        """The letters of these records are written, that were given up at this delivery count."""
        letters = tuple(
            DeadLettersWritten(offsets=OffsetRange(TOPIC_ID, index, offset, offset), delivery_count=count)
            for (index, offset), count in keys
        )

        def predict() -> None:
            for key, count in keys:
                self.model.mark_dead_letters_written([key], count)

        self.both(f"file {keys}", MarkDeadLettersWritten(written=letters), predict)

    # --- ShareConsumers

    def fetch(self, name: str, epoch: int, most: int, partitions: int = PARTITIONS) -> None:
        now_ms = self.core.now_ms
        command = AcquireForConsumer(
            group_id="billing", member_id=name, member_epoch=epoch, max_records=most, bounds=self.bounds(partitions)
        )
        reply = self.both(f"fetch {name} {most}", command, lambda: self.model.member(name, epoch))
        if reply is None or not reply.plan_id:
            return
        chosen = self.keys(reply)
        for index in {k[0] for k in chosen}:
            self.model.check_fetch(index, sorted(o for i, o in chosen if i == index), most, self.mode, now_ms)
        member = self.model.members[name]
        self.model.acquired(member, self.core.group.plan_id(reply.plan_id), list(chosen), False, now_ms)
        assert chosen == {k: self.model.at(k).count for k in chosen}
        self.comparison.handed_out(chosen, (name, epoch, reply.plan_id))

    def acknowledge(self, name: str, epoch: int, index: int, acks: list[Ack]) -> None:
        now_ms = self.core.now_ms
        self.trace.append(f"acks {acks}")
        batches = tuple(AckBatch(first=f, last=la, delivery_count=c, types=tuple(t)) for f, la, c, t in acks)
        partitions = (PartitionAcks(topic_id=TOPIC_ID, partition=index, batches=batches),)
        command = Acknowledge(group_id="billing", member_id=name, member_epoch=epoch, partitions=partitions)
        reply = self.both(f"acknowledge {name} {index}", command, lambda: self.model.member(name, epoch))
        if reply is not None:
            taken = self.model.acknowledge(name, epoch, index, acks, now_ms)
            self.comparison.take_over_backoffs()
            self.seen["acknowledgement " + ("taken" if taken else "refused")] += 1
            assert taken == (not reply.errors), f"{acks} {reply.errors}"

    def held_by(self, name: str, index: int) -> dict[int, int]:
        """The offsets that the member holds, and their delivery counts."""
        records = self.model.partitions[index].records
        return {offset: records[offset].count for offset in sorted(records) if self.model.holds(name, records[offset])}


def outcome_runs(rows: Iterable[Row]) -> Iterable[OutcomeRun]:
    """Rows of a partition, ascending, as runs."""
    found: list[OutcomeRun] = []
    for (_, offset), count, outcome, delay_ms, letter, reason in rows:
        run = OutcomeRun(offset, offset, count, AcknowledgeType(outcome), delay_ms, letter, reason)
        if found and found[-1].last == offset - 1 and found[-1][2:] == run[2:]:
            found[-1] = found[-1]._replace(last=offset)
        else:
            found.append(run)
    return found


def pieces(acks: Iterable[tuple[int, int, int, bool]]) -> list[Ack]:
    """(offset, receipt, type, alone) of each record to as few batches as their receipts and ``alone`` let be."""
    found: list[Ack] = []
    for offset, count, kind, alone in acks:
        if found and found[-1][1] == offset - 1 and found[-1][2] == count and not alone:
            first, _, _, types = found.pop()
            found.append((first, offset, count, [*types, kind]))
        else:
            found.append((offset, offset, count, [kind]))
    return found


assert RecordState.ACQUIRED == ACQUIRED
