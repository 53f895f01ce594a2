"""Each command as one step: the core does it, the naive model predicts it, and both are compared.

A seeded walk chooses the arguments (:mod:`tests.model.walk`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from coordinator.core.commands import (
    AcquireForConsumer,
    AcquirePlan,
    AlterConfigs,
    ArchiveDeletedTopics,
    ArchiveExpired,
    ArchiveGaps,
    AssignPartitions,
    CompletePlan,
    DeadLettersWritten,
    ExpiredRecords,
    InitializePartitions,
    MarkDeadLettersWritten,
    PartitionStart,
    StageRuns,
    StartOrReclaimPlan,
    TopicWithId,
)
from coordinator.core.record_state import RecordState
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    MarkInProgress,
    PartitionAcks,
    PartitionOutcomes,
    PartitionProgress,
    ProgressBatch,
)
from coordinator.protocol.values import OffsetRange
from tests.model.arguments import (
    RETENTION_MS,
    SOLO_TIMEOUT_MS,
    FlowConfigs,
    LockConfigs,
    SinkConfigs,
    configs_of,
    outcome_runs,
)
from tests.model.compare import PARTITIONS, check_reclaimed, index_of, keys_of, share_partition_key, topic_id_of
from tests.model.member_steps import CONSUMERS, MemberSteps
from tests.model.plans import Ack, Signal
from tests.model.queues import is_held
from tests.model.sinks import Row
from tests.model.state import ACQUIRED, Key, Partition, Refused


class Steps(MemberSteps):
    """Every step that both sides can take together."""

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

    # --- topics

    def delete_topic(self) -> None:
        """Nobody has noticed it yet."""
        self.trace.append(f"topic {self.core.topic} is deleted")
        self.core.exists = False

    def make_topic(self) -> None:
        """Another topic of the name, from a deleted one, is seen for the first time."""
        topic = self.core.topic + 1
        self.core.topic, self.core.exists = topic, True
        topic_id = topic_id_of(topic)
        starts = tuple(PartitionStart(topic_id=topic_id, partition=p, start_offset=0) for p in range(PARTITIONS))
        named = TopicWithId(topic="orders", topic_id=topic_id)
        for index in self.core.logs():
            self.core.ends[index] = self.core.log_starts[index] = 0

        def predict() -> None:
            self.model.topic = topic
            self.model.partitions |= {index: Partition() for index in self.core.logs()}

        self.both(f"anew {topic}", InitializePartitions(topics=(named,), starts=starts), predict)

    def make_topic_if_forgotten(self) -> None:
        """After the newest topic was deleted and forgotten, another one of the name comes."""
        if not self.model.partitions.keys() >= set(self.core.logs()):
            self.seen["topic forgotten before another one came"] += 1
            self.make_topic()

    def archive_deleted(self, topic: int) -> None:
        """The service has found that it does not exist any more."""
        indexes = [index for index in self.model.partitions if index // PARTITIONS == topic]
        ends = {index: self.core.ends[index] for index in indexes}
        known = tuple(
            PartitionStart(**share_partition_key(index)._asdict(), start_offset=end) for index, end in ends.items()
        )
        known_before = topic in self.model.deleted
        self.both(
            f"deleted {topic}",
            ArchiveDeletedTopics(topic_ids=(topic_id_of(topic),), ends=known),
            lambda: self.model.topic_deleted(topic, ends),
        )
        self.seen["topic deleted"] += not known_before
        self.seen["topic deleted, and records held"] += any(self.model.partitions[index].records for index in indexes)

    def gap(self, index: int, first: int, last: int) -> None:
        """A reader found no records there in the log."""
        self.both(
            f"gap {index} {first} {last}",
            ArchiveGaps(gaps=(OffsetRange(*share_partition_key(index), first, last),)),
            lambda: self.model.archive_gap(index, first, last),
        )

    def too_old(self, index: int, end: int, read: range, gaps: set[int]) -> None:
        """The brokers say that the records below ``end`` are too old; the log was read over these offsets."""
        of = share_partition_key(index)._asdict()
        expired = ExpiredRecords(**of, end=end, read_from=read.start, read_end=read.stop)
        without = tuple(OffsetRange(*share_partition_key(index), gap, gap) for gap in sorted(gaps))
        self.both(
            f"too-old {index} {end} {read} {gaps}",
            ArchiveExpired(ttl_ms=self.flow.ttl_ms or 0, expired=(expired,), gaps=without),
            lambda: self.model.too_old(index, end, read, gaps),
        )

    def config(
        self,
        limit: int,
        base: int,
        mode: str,
        sinks: SinkConfigs | None = None,
        locks: LockConfigs | None = None,
        order: str = "",
        flow: FlowConfigs | None = None,
    ) -> None:
        """``sinks``, ``locks``, ``order``, ``flow``: as they are, if they are not named."""
        model, sinks, locks, order = self.model, sinks or self.sinks, locks or self.locks, order or self.order
        flow = flow or self.flow
        configs = configs_of(limit, base, mode, sinks, locks, order, flow)

        def predict() -> None:
            if (order == "partition") != model.ordered and model.is_used():
                raise Refused("records are held")

        what = f"config {limit} {base} {mode} {sinks} {locks} {order} {flow}"
        if self.both(what, AlterConfigs(configs=configs, drop_dead_letters=True), predict) is None:
            return
        self.mode, self.sinks, self.locks, self.order, self.flow = mode, sinks, locks, order, flow
        model.paused, model.rate, model.in_flight = flow.paused in ("orders", "*"), flow.rate, flow.in_flight
        model.ordered = order == "partition"
        model.lock_ms, model.stale_ms, model.grace_ms = locks.lock_ms, locks.stale_ms, locks.grace_ms
        model.signals_extend_ms = locks.extension_ms
        model.limit, model.base, model.locks, model.solo_timeout_ms = limit, base, 100, SOLO_TIMEOUT_MS
        model.retention_ms = RETENTION_MS
        model.explicit, model.dead_letters = sinks.explicit, sinks.dead_letters
        model.backoff, model.reject_ratio, model.breaker_ratio = sinks.backoff, sinks.reject_ratio, sinks.breaker_ratio

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
            group_id=self.core.group.group_id,
            member_id=name,
            member_epoch=epoch,
            start=self.core.group.plan_id_text(start or None),
            max_records=most,
            bounds=bounds,
            topics=("orders",),
        )
        again: list[bool] = []
        flow = self.model.may_acquire(now_ms)
        held = {index for index, partition in self.model.partitions.items() if is_held(partition)}

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
            ends = {index_of(b.topic_id, b.partition): b.end for b in bounds}
            # What the plan before held below the log start counts as held until this answer.
            free = {i: end for i, end in ends.items() if not (self.model.ordered and i in held)}
            free = self.model.check_part(member, list(chosen), free, now_ms, self.assigned())
            told = None if reply.plan.plan_id else reply.limited_by
            limited = self.model.check_limits(list(chosen), flow, free, now_ms, told)
            if not limited:
                hard, most = (self.mode, most) if flow is None else ("record_limit", min(most, flow))
                self.model.check_plan(member, list(chosen), reply.plan.trial, most, hard, free, now_ms)
            to_tell = bool(
                self.model.unreported_losses or (member.pending is not None and member.pending.unreported_losses)
            )
            assert bool(reply.plan.plan_id) == bool(chosen or to_tell), "losses are told, be there nothing to acquire"
            self.seen["a plan that only tells"] += to_tell and not chosen
            if reply.plan.plan_id:
                number = self.core.group.plan_id(reply.plan.plan_id)
                self.model.acquired(member, number, list(chosen), reply.plan.trial, now_ms)
                assert chosen == {k: self.model.at(k).count for k in chosen}
            elif not limited and not self.model.is_paused(member, now_ms):
                self.model.found_nothing(member, list(ends), now_ms)
        self.comparison.handed_out(chosen, (name, epoch, reply.plan.plan_id))

    def assigned(self) -> dict[str, set[int]]:
        """By ShareConsumer, the numbers of the share partitions that are assigned to it."""
        assignment = self.core.group.assignment
        return {name: {index_of(*key) for key in assignment.get(name, ())} for name in CONSUMERS}

    def start(
        self, name: str, epoch: int, number: int, *, looks: bool = False, fail: bool = False, own_mode: str = ""
    ) -> None:
        """``looks``: asks the brokers where the logs start first. ``fail``: failOnDataLoss. ``own_mode``: the query's
        share.acknowledgement.mode."""
        now_ms = self.core.now_ms
        bounds = self.bounds() if looks else ()
        log_starts = {index_of(b.topic_id, b.partition): b.log_start for b in bounds}
        member = self.model.members.get(name)
        plan = member.newest if member is not None else None
        before = list(plan.offsets) if plan is not None else []
        empty = member is not None and member.superseded_plans(number)
        anew = not empty and plan is not None and not (plan.started and plan.epoch == epoch)
        # A start that only reported losses is answered again with all that it left out.
        before += self.left_out_by_reports.get((name, epoch, number), [])
        command = StartOrReclaimPlan(
            group_id=self.core.group.group_id,
            member_id=name,
            member_epoch=epoch,
            plan_id=self.core.group.plan_id_text(number or None),
            bounds=bounds,
            fail_on_data_loss=fail,
            acknowledgement_mode=own_mode,
        )
        reply = self.both(
            f"start {name} {number}{' looks' if looks else ''}{' fails' if fail else ''} {own_mode}",
            command,
            lambda: self.model.reclaim(name, epoch, number, now_ms, log_starts, fail, own_mode),
        )
        if reply is None:
            return
        plan = self.model.members[name].newest
        assert plan is not None
        chosen = self.keys(reply)
        assert chosen == {k: r.count for k, r in self.model.held(plan)}
        told = keys_of(reply.data_loss)
        assert told == sorted(set(plan.told)), "what was lost is told"
        self.seen["loss told"] += bool(told)
        self.seen["given up, and logged"] += empty
        if anew:
            check_reclaimed(before, plan, chosen, reply.left_out)
            if not plan.started:
                self.left_out_by_reports[name, epoch, number] = keys_of(reply.left_out)
        self.comparison.handed_out(chosen, (name, epoch, reply.plan.plan_id))

    def replay(self, name: str, number: int, **how: Any) -> None:
        """The query's process dies, and a new one reclaims the batch."""
        self.join_anew(name)
        self.start(name, self.epochs[name], number, **how)

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
        self,
        name: str,
        epoch: int,
        number: int,
        *,
        processed: bool = True,
        missing: Iterable[Key] = (),
        looks: bool = False,
    ) -> None:
        """``missing``: offsets that the log turned out not to hold. ``looks``: asks the brokers what the logs hold."""
        bounds = self.bounds() if looks else ()
        logs = {index_of(b.topic_id, b.partition): range(b.log_start, b.end) for b in bounds}
        text, missing, now_ms = self.core.group.plan_id_text(number or None), sorted(missing), self.core.now_ms
        gaps = tuple(OffsetRange(*share_partition_key(index), o, o) for index, o in missing)
        undecided: list[bool] = []
        reply = self.both(
            f"complete {name} {number}{'' if processed else ' only gaps'} without {missing}{' looks' if looks else ''}",
            CompletePlan(
                member_id=name, member_epoch=epoch, plan_id=text, processed=processed, gaps=gaps, bounds=bounds
            ),
            lambda: undecided.append(self.model.complete(name, epoch, number, processed, missing, now_ms, logs)),
        )
        assert reply is None or [reply.undecided] == undecided, "given back, since no sink decides"
        if reply is not None and not reply.undecided and (plan := self.model.members[name].newest) is not None:
            assert (reply.too_many_rejects is not None) <= plan.too_many, "given back, since too many were rejected"

    # --- sinks, and the writers of dead letters

    def stage(
        self,
        rows: list[Row],
        *,
        query_id: str = "",
        outdated: bool = False,
        fail_on_stale: bool = False,
        own_mode: str = "",
        replaces: bool = False,
        has_target: bool = True,
        unreadable: bool = False,
        names: Iterable[tuple[str, int]] = (),
    ) -> None:
        """Stages a batch's rows; ``rows`` may name any record, but each one once. ``outdated``: the rows are of an
        earlier life of the group. ``own_mode``: the sink's
        share.acknowledgement.mode. ``replaces``: its target does, at a replay. ``names``: the queries whose newest
        plans the sink's tasks found, and how many epochs ago."""
        plans = {
            member.newest.plan_id: member.newest.epoch - ago
            for name, ago in names
            if (member := self.model.members.get(name)) is not None and member.newest is not None
        }
        now_ms = self.core.now_ms
        rows = sorted(rows, key=lambda row: row.key)
        self.seen["rows of a deleted topic"] += any(row.key[0] // PARTITIONS != self.model.topic for row in rows)
        partitions = tuple(
            PartitionOutcomes(**share_partition_key(index)._asdict(), runs=tuple(outcome_runs(of_partition)))
            for index, of_partition in groupby(rows, key=lambda row: row.key[0])
        )
        command = StageRuns(
            group_id="billing",
            incarnation="before" if outdated else self.core.group.incarnation,
            query_id=query_id,
            acknowledgement_mode=own_mode,
            plans={self.core.group.plan_id_text(number): epoch for number, epoch in plans.items()},
            replaces=replaces,
            has_target=has_target,
            unreadable=unreadable,
            fail_on_stale=fail_on_stale,
            partitions=partitions,
        )
        counted: list[tuple[int, int, int]] = []
        reply = self.both(
            f"stage {[(p.partition, *map(tuple, p.runs)) for p in partitions]} "
            f"{query_id} {outdated} {fail_on_stale} {own_mode} {replaces} {has_target} {unreadable} {plans}",
            command,
            lambda: counted.append(
                self.model.stage(
                    rows,
                    now_ms,
                    query_id,
                    pinned=not outdated,
                    fail_on_stale=fail_on_stale,
                    named=plans,
                    mode=own_mode,
                    replaces=replaces,
                    has_target=has_target,
                    unreadable=unreadable,
                )
            ),
        )
        assert reply is None or [(reply.staged, reply.stale, reply.contradicted)] == counted

    def mark_dead_letters_written(self, keys: list[tuple[Key, int]]) -> None:
        """The dead letters of these records are written, that were given up at this delivery count."""
        letters = tuple(
            DeadLettersWritten(offsets=OffsetRange(*share_partition_key(index), offset, offset), delivery_count=count)
            for (index, offset), count in keys
        )

        def predict() -> None:
            for key, count in keys:
                self.model.mark_dead_letters_written([key], count)

        self.both(f"file {keys}", MarkDeadLettersWritten(written=letters), predict)

    # --- ShareConsumers

    def fetch(self, name: str, epoch: int, most: int, partitions: int = PARTITIONS, *, beyond: bool = False) -> None:
        """``beyond``: also from partitions that are assigned to others."""
        now_ms, flow = self.core.now_ms, self.model.may_acquire(self.core.now_ms)
        self.core.run(AssignPartitions())
        group = self.core.group
        current = {key for key in map(share_partition_key, self.core.logs()) if group.is_current(key.topic_id)}
        self.model.check_assignment(group.assignment, group.assignment_epoch, current)
        command = AcquireForConsumer(
            group_id="billing",
            member_id=name,
            member_epoch=epoch,
            max_records=most,
            bounds=self.bounds(partitions),
            beyond=beyond,
        )
        reply = self.both(f"fetch {name} {most}{' beyond' * beyond}", command, lambda: self.model.member(name, epoch))
        if reply is None:
            return
        chosen, member = self.keys(reply), self.model.members[name]
        mine = self.assigned()[name]
        ends = {i: b.end for b in command.bounds if (i := index_of(b.topic_id, b.partition)) in mine or beyond}
        if self.model.check_limits(list(chosen), flow, ends, now_ms, reply.limited_by):
            return
        self.model.check_fetched(member, list(chosen), ends, now_ms, self.assigned())
        if not reply.plan_id:
            self.model.found_nothing(member, list(ends), now_ms)
            return
        for index in {k[0] for k in chosen}:
            assigned = share_partition_key(index) in self.core.group.assignment[name]
            assert beyond or assigned, f"{name} is not assigned {index}"
            self.model.check_fetch(index, sorted(o for i, o in chosen if i == index), most, self.mode, now_ms)
        self.model.acquired(member, self.core.group.plan_id(reply.plan_id), list(chosen), False, now_ms)
        assert chosen == {k: self.model.at(k).count for k in chosen}
        self.comparison.handed_out(chosen, (name, epoch, reply.plan_id))

    def acknowledge(
        self, name: str, epoch: int, index: int, acks: list[Ack], reason: str = "", delay_ms: int | None = None
    ) -> None:
        now_ms = self.core.now_ms
        self.trace.append(f"acks {acks} {reason} {delay_ms}")
        note = {"reason": reason, "delay_ms": delay_ms}
        batches = tuple(AckBatch(first=f, last=la, delivery_count=c, types=tuple(t), **note) for f, la, c, t in acks)
        partitions = (PartitionAcks(**share_partition_key(index)._asdict(), batches=batches),)
        command = Acknowledge(group_id="billing", member_id=name, member_epoch=epoch, partitions=partitions)
        reply = self.both(f"acknowledge {name} {index}", command, lambda: self.model.member(name, epoch))
        if reply is not None:
            taken = self.model.acknowledge(name, epoch, index, acks, now_ms, reason, delay_ms)
            self.comparison.take_over_backoffs()
            self.seen["acknowledgement " + ("taken" if taken else "refused")] += 1
            assert taken == (not reply.errors), f"{acks} {reply.errors}"

    def mark_in_progress(self, name: str, epoch: int, index: int, signals: list[Signal]) -> None:
        now_ms = self.core.now_ms
        self.trace.append(f"signals {signals}")
        batches = tuple(ProgressBatch(first=f, last=la, delivery_count=c, hint=hint) for f, la, c, hint in signals)
        partitions = (PartitionProgress(**share_partition_key(index)._asdict(), batches=batches),)
        command = MarkInProgress(group_id="billing", member_id=name, member_epoch=epoch, partitions=partitions)
        reply = self.both(f"signal {name} {index}", command, lambda: self.model.member(name, epoch))
        if reply is not None:
            taken = self.model.mark_in_progress(name, index, signals, now_ms)
            self.seen["signals " + ("taken" if taken else "refused")] += 1
            assert taken == (not reply.errors), f"{signals} {reply.errors}"

    def held_by(self, name: str, index: int) -> dict[int, int]:
        """The offsets that the member holds, and their delivery counts."""
        records = self.model.partitions[index].records
        return {offset: records[offset].count for offset in sorted(records) if self.model.holds(name, records[offset])}


assert RecordState.ACQUIRED == ACQUIRED
