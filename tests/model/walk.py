"""A seeded random walk: any command in any order, to the core and to the naive model, and compared after each."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from unittest import mock

from coordinator.core import share_group
from tests.model.administration import alter_start, decide_by_hand, delete_group, delete_offsets
from tests.model.arguments import BACKOFFS, FlowConfigs, LockConfigs, SinkConfigs, pieces
from tests.model.compare import PARTITIONS
from tests.model.driver import RECOVER_EVERY
from tests.model.member_steps import CONSUMERS, QUERIES
from tests.model.plans import Ack, Signal
from tests.model.sinks import Row
from tests.model.state import Key
from tests.model.steps import Steps

MEMBERS_KEPT = 2
"""A group keeps this number of its five members, so that some are forgotten."""


ORDERED = 10**9
"""The groups of walks from this seed on are in order by partition, most of the time."""
DEFERRING = 2 * ORDERED
"""From this seed on sinks defer records too, and from DEFERRING + ORDERED on the groups are in order again."""

FLOWING = 2 * DEFERRING
"""From this seed on the groups of all these kinds have limits on what is acquired."""

EXPIRING = 2 * FLOWING
"""From this seed on records that waited for too long are given up, in groups of all these kinds."""

BEHIND_MS = (1, 600, 20_000, 3_600_000, 2**40)
"""The clock of an owner may be this far behind the clock of the owner before; with the last number it begins at 0."""


class Walk:
    """One walk, from a seed: it chooses the steps and their arguments."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.is_ordered = seed % DEFERRING >= ORDERED
        self.defers = (5,) if seed % FLOWING >= DEFERRING else ()
        self.has_limits = seed % EXPIRING >= FLOWING
        self.expires = seed >= EXPIRING
        self.steps = Steps()
        self.steps.order = "partition" if self.is_ordered else "none"
        self.seen = self.steps.seen
        self.trace = self.steps.trace
        self.config()

    def run(self, steps: int) -> None:
        with mock.patch.object(share_group, "MEMBERS_KEPT", MEMBERS_KEPT):
            for step in range(steps):
                self.step()
                if step % RECOVER_EVERY == 0:
                    self.steps.comparison.compare_words()

    def step(self) -> None:
        self.steps.make_topic_if_forgotten()
        actions = ACTIONS_IN_ORDER if self.is_ordered else ACTIONS
        actions = {**actions, "too_old": 6} if self.expires else actions
        action = self.chance.choices(tuple(actions), weights=tuple(actions.values()))[0]
        getattr(self, action)()
        self.steps.comparison.compare()

    # --- members

    def _any(self, names: tuple[str, ...] = (*QUERIES, *CONSUMERS)) -> str:
        return self.chance.choice(names)

    def _epoch(self, name: str, odds: float = 0.02) -> int:
        epoch = self.steps.epochs.get(name, 1)
        return epoch - 1 if self.chance.random() < odds else epoch

    def join_anew(self) -> None:
        self.steps.join_anew(self._any())

    def join_again(self) -> None:
        name = self._any()
        if self.steps.processes[name]:
            process = max(1, self.steps.processes[name] - (self.chance.random() < 0.1))
            self.steps.join(name, f"{name}-{process}", self.chance.choice((None, self._epoch(name))))

    def heartbeat(self) -> None:
        name = self._any()
        self.steps.heartbeat(name, self._epoch(name))

    def leave(self) -> None:
        name = self._any()
        self.steps.leave(name, self._epoch(name, odds=0.2))

    def time(self) -> None:
        self.steps.pass_time(self.chance.choice((1, 500, 2_000, 10_000, 30_001, 46_000)))

    def stall(self) -> None:
        self.steps.stall(self.chance.choice((1, 600, 10_000, 46_000)))

    def rest(self) -> None:
        """Nobody is there for long, and then those come back that do."""
        self.steps.pass_time(self.chance.choice((600_001, 3_600_000, 4_200_000)))
        for _ in range(self.chance.choice((0, 1, 2))):
            self.join_again()
            self.steps.pass_time(self.chance.choice((1, 46_000, 600_001)))

    def crash(self) -> None:
        if self.chance.random() < 0.5:
            self.steps.core.snapshot()
        self.steps.crash(self.chance.choice(BEHIND_MS) if self.chance.random() < 0.1 else 0)

    def _crash_now_and_then(self) -> None:
        if self.chance.random() < 0.2:
            self.crash()

    # --- the log and the configs

    def _index(self) -> int:
        """A share partition: mostly the newest topic's, else that of an earlier one."""
        known = self.steps.core.logs()
        return self.chance.choice(known if self.chance.random() < 0.7 else list(self.steps.model.partitions))

    def topic(self) -> None:
        """The topic is deleted, or created anew; and at some time the service notices that an earlier one is gone."""
        if self.steps.core.exists:
            self.steps.delete_topic()
        else:
            self.steps.make_topic()
        self.notice_deleted()

    def notice_deleted(self) -> None:
        gone = {index // PARTITIONS for index in self.steps.model.partitions}
        if self.steps.core.exists:
            gone.discard(self.steps.core.topic)
        if gone and self.chance.random() < 0.5:
            self.steps.archive_deleted(self.chance.choice(sorted(gone)))

    def new_records(self) -> None:
        if not self.steps.core.exists:
            self.steps.make_topic()
        self.steps.new_records(self.chance.choice(self.steps.core.logs()), self.chance.randint(1, 12))

    def log_start(self) -> None:
        if not self.steps.core.exists:
            return
        index, by = self.chance.choice(self.steps.core.logs()), self.chance.choice((0, 1, 2, 4, 6, 12, 40))
        if self.chance.random() < 0.5:  # into the window, or beyond it
            by += max(0, self.steps.model.partitions[index].start - self.steps.core.log_starts[index])
        self.steps.move_log_start(index, by, noticed=self.chance.random() < 0.8)

    def alter_start(self) -> None:
        if not self.steps.core.exists:
            return
        index = self.chance.choice(self.steps.core.logs())
        start = self.chance.randint(0, self.steps.core.ends[index])
        alter_start(self.steps, index, start, force=self.chance.random() < 0.7)
        self._crash_now_and_then()

    def by_hand(self) -> None:
        """Mostly records that are in flight."""
        index = self.chance.choice(self.steps.core.logs())
        known = self.steps.model.partitions[index].records
        first = self.chance.choice(list(known)) if known else self.chance.randint(0, 20)
        last = first + self.chance.choice((0, 0, 2, 8))
        decide_by_hand(self.steps, index, first, last, self.chance.choice(("archive", "release")))
        self._crash_now_and_then()

    def delete_offsets(self) -> None:
        if not self.steps.core.exists or self.steps.model.topic in self.steps.model.deleted:
            return
        if self.chance.random() < 0.8:
            self._all_leave(CONSUMERS)
        log_starts, ends = self.steps.core.log_starts, self.steps.core.ends
        delete_offsets(
            self.steps,
            lambda index: self.chance.randint(log_starts[index], ends[index]),
            force=self.chance.random() < 0.5,
            crash=self._crash_now_and_then,
        )

    def delete_group(self) -> None:
        if not self.steps.core.exists:
            return
        if self.chance.random() < 0.8:
            self._all_leave((*QUERIES, *CONSUMERS))
        if delete_group(self.steps, force=self.chance.random() < 0.5, crash=self._crash_now_and_then):
            self.config()

    def _all_leave(self, names: tuple[str, ...]) -> None:
        """These members leave; who was there before the last crash is given up."""
        for name in names:
            if name in self.steps.model.members:
                self.steps.leave(name, self.steps.epochs[name])
        self.steps.pass_time(46_000)

    def gap(self) -> None:
        index = self._index()
        first = self.steps.model.partitions[index].start + self.chance.randint(-1, 12)
        self.steps.gap(index, first, first + self.chance.choice((0, 0, 1, 5)))

    def too_old(self) -> None:
        """Mostly the log was read over all that is too old, and has a gap or none."""
        index = self._index()
        partition = self.steps.model.partitions[index]
        log_end = max(partition.end, self.steps.core.ends[index])
        end = min(log_end, partition.start + self.chance.choice((1, 3, 8, 40)))
        first = partition.end + self.chance.choice((0, 0, 0, 0, -2, 1))
        read = range(first, max(first, end - self.chance.choice((0, 0, 0, 2))))
        self.steps.too_old(index, end, read, {offset for offset in read if self.chance.random() < 0.2})

    def config(self) -> None:
        limit, base = self.chance.choice((2, 3, 5, 5, 10)), self.chance.choice((5, 30, 100_000))
        sinks = SinkConfigs(
            explicit=self.chance.random() < 0.4,
            dead_letters=self.chance.random() < 0.6,
            backoff=self.chance.choice(BACKOFFS),
            reject_ratio=self.chance.choice((1.0, 1.0, 1.0, 0.3)),
            breaker_ratio=self.chance.choice((0.5, 0.5, 0.0, 0.8, 1.0)),
        )
        locks = LockConfigs(
            lock_ms=self.chance.choice((30_000, 30_000, 120_000)),
            stale_ms=self.chance.choice((5_000, 90_000)),
            extension_ms=self.chance.choice((20_000, 1_800_000)),
            grace_ms=self.chance.choice((0, 5_000, 60_000)),
        )
        mode, order = self.chance.choice(("batch_optimized", "record_limit")), ""
        if self.is_ordered and self.chance.random() < 0.3:
            order = self.chance.choice(("partition", "partition", "none"))
        flow = self._flow() if self.has_limits else FlowConfigs()
        flow = replace(flow, ttl_ms=60_000 if self.expires else None)
        self.steps.config(limit, base, mode, sinks, locks, order, flow)

    def _flow(self) -> FlowConfigs:
        return FlowConfigs(
            paused=self.chance.choice(("", "", "", "", "orders", "*", "clicks")),
            rate=self.chance.choice((None, 1, 5, 30)),
            in_flight=self.chance.choice((None, None, 2, 10)),
        )

    # --- queries

    def _number(self, name: str) -> int:
        """A number that a query may name: its newest, mostly."""
        if self.chance.random() < 0.05:
            return self.chance.randint(0, self.steps.model.last_plan_id)
        if (given_up := self.steps.given_up(name)) and self.chance.random() < 0.5:
            return self.chance.choice(given_up)
        return self.steps.newest(name)

    def _partitions(self) -> int:
        return PARTITIONS if self.chance.random() < 0.9 else 1

    def acquire(self) -> None:
        name = self._any(QUERIES)
        start = self.steps.completed(name)
        if self.chance.random() < 0.03:
            start = self.chance.randint(0, self.steps.model.last_plan_id)
        self.steps.acquire(name, self._epoch(name), start, self.chance.choice((1, 3, 8, 40)), self._partitions())

    def _how(self) -> dict[str, Any]:
        return {"looks": self.chance.random() < 0.5, "fail": self.chance.random() < 0.3, "own_mode": self._own_mode()}

    def _own_mode(self) -> str:
        return self.chance.choice(("", "", "", "", "", "explicit", "implicit"))

    def start(self) -> None:
        name = self._any(QUERIES)
        self.steps.start(name, self._epoch(name), self._number(name), **self._how())

    def replay(self) -> None:
        name = self._any(QUERIES)
        self.steps.replay(name, self._number(name), **self._how())

    def complete(self) -> None:
        name = self._any(QUERIES)
        missing: list[Key] = []
        if self.chance.random() < 0.2:
            missing = [key for key, _ in self.steps.model.sink_of(name) if self.chance.random() < 0.3]
        epoch, number, processed = self._epoch(name), self._number(name), self.chance.random() < 0.9
        self.steps.complete(name, epoch, number, processed=processed, missing=missing, looks=number % 2 == 1)

    def another_plan(self) -> None:
        self.steps.another_plan(self._any(QUERIES), self._any(CONSUMERS), self.chance.choice((1, 3, 8, 40)))

    # --- sinks, and the writers of dead letters

    def stage(self) -> None:
        names = [self._any(QUERIES) for _ in range(self.chance.choice((1, 1, 2)))]
        receipts = {key: count for name in names for key, count in self.steps.model.sink_of(name)}
        receipts |= {key: count for name in names for key, count in self.steps.model.lost_before(name)}
        rows = self._rows(receipts, self.chance.choice((0.0, 0.1, 0.9)))
        if self.chance.random() < 0.2:
            rows += self._rows_of_others(receipts)
        outdated = self.chance.random() < 0.03
        unreadable = self.chance.random() < 0.1
        if unreadable:
            rows = [row._replace(outcome=3, delay_ms=None) for row in rows]
        self.steps.stage(
            rows,
            query_id=self.chance.choice(("", names[0], names[-1], "another")),
            has_target=self.chance.random() < 0.8,
            unreadable=unreadable,
            names=[(name, self.chance.random() < 0.1) for name in names if self.chance.random() < 0.5],
            outdated=outdated,
            fail_on_stale=self.chance.random() < 0.1,
            own_mode=self._own_mode(),
            replaces=self.chance.random() < 0.3,
        )

    def _rows(self, receipts: dict[Key, int], passed_over: float) -> list[Row]:
        """Mostly one outcome for all, with some that are different."""
        mostly = self.chance.choice((1, 1, 2, 3, *self.defers))
        rows = []
        for key, count in receipts.items():
            if self.chance.random() >= passed_over:
                outcome = mostly if self.chance.random() < 0.8 else self.chance.choice((1, 2, 3, *self.defers))
                delay_ms = self.chance.choice((None, None, None, 0, 5_000, 60_000)) if outcome in (2, 5) else None
                letter = outcome == 3 and self.chance.random() < 0.4
                rows.append(Row(key, count, outcome, delay_ms, letter, self.chance.choice(("", "", "bad"))))
        return rows

    def _rows_of_others(self, receipts: dict[Key, int]) -> list[Row]:
        """Records that this batch may not have held, with receipts that may be another delivery's."""
        index = self._index()
        known = self.steps.model.partitions[index].records
        first = self.chance.choice(list(known)) if known else 0
        return [
            Row(
                (index, o),
                (known[o].count if o in known else 1) - self.chance.choice((0, 1)),
                self.chance.choice((1, 2, 3)),
            )
            for o in range(first, first + self.chance.choice((1, 3, 10)))
            if (index, o) not in receipts
        ]

    def _begin_batch(self, name: str, most: int) -> None:
        """A new batch of the query, after the one before is completed."""
        self.steps.join_again(name)
        self.steps.complete(name, self.steps.epochs[name], self.steps.newest(name))
        self.steps.acquire(name, self.steps.epochs[name], self.steps.completed(name), most)
        self.steps.start(name, self.steps.epochs[name], self.steps.newest(name))

    def batch(self) -> None:
        """A query with a sink runs a batch: attempts, of which each may decide otherwise, then Spark's commit."""
        name = self._any(QUERIES)
        self._begin_batch(name, self.chance.choice((1, 8, 40)))
        replaces = self.chance.random() < 0.3
        for _ in range(self.chance.choice((0, 1, 1, 2))):
            rows = self._rows(dict(self.steps.model.sink_of(name)), self.chance.choice((0.1, 0.5, 1.0)))
            self.steps.stage(rows, replaces=replaces, names=[(name, 0)])
            self.steps.comparison.compare()
            self._crash_now_and_then()
            self.steps.replay(name, self.steps.newest(name), own_mode=self._own_mode())
            self._crash_now_and_then()
            if self.chance.random() < 0.2:
                self.steps.stage(rows, names=[(name, 1)])  # the driver before lives
        if self.chance.random() < 0.8:
            for _ in range(self.chance.choice((1, 1, 2))):
                rows = self._rows(dict(self.steps.model.sink_of(name)), self.chance.choice((0.0, 0.3, 0.9)))
                self.steps.stage(rows, replaces=replaces, names=[(name, 0)])
            self._crash_now_and_then()
        self.steps.comparison.compare()
        if self.chance.random() < 0.8:
            self.steps.complete(name, self.steps.epochs[name], self.steps.newest(name))

    def outage(self) -> None:
        """The service behind queries' sinks is away for some batches, and perhaps comes back."""
        names = QUERIES[: self.chance.choice((1, 1, 2))]
        for _ in range(self.chance.choice((1, 2, 4))):
            for name in names:
                self._whole_batch(name, 2)
            self.steps.pass_time(self.chance.choice((500, 5_000, 12_000, 30_000)))
        if self.chance.random() < 0.4:
            self._whole_batch(names[0], 1)

    def _whole_batch(self, name: str, outcome: int) -> None:
        """A batch of the query, of which a sink decides all records so."""
        self._begin_batch(name, self.chance.choice((3, 12, 40)))
        rows = [Row(key, count, outcome) for key, count in self.steps.model.sink_of(name)]
        self.steps.stage(rows, names=[(name, 0)])
        self._crash_now_and_then()
        self.steps.join_again(name)
        self.steps.complete(name, self.steps.epochs[name], self.steps.newest(name))
        self.steps.comparison.compare()

    def fails(self) -> None:
        """A query's process dies again and again with its batch, or is silent for longer than a session; at times an
        administrator decides records of the batch."""
        name = self._any(QUERIES)
        self._begin_batch(name, self.chance.choice((3, 8, 40)))
        for _ in range(self.chance.choice((1, 2, 4, 6))):
            if self.chance.random() < 0.2:
                self.by_hand()
            if self.chance.random() < 0.3:
                self.steps.pass_time(46_000)
            self.steps.comparison.compare()
            self.steps.replay(name, self.steps.newest(name))

    def waits(self) -> None:
        """A query holds what there is, a ShareConsumer finds everything held, and the query acquires again."""
        name, consumer = self._any(QUERIES), self._any(CONSUMERS)
        self.steps.join_again(name)
        self.steps.join_again(consumer)
        for _ in range(2):
            self.steps.complete(name, self.steps.epochs[name], self.steps.newest(name))
            self.steps.acquire(name, self.steps.epochs[name], self.steps.completed(name), 40)
            self.steps.start(name, self.steps.epochs[name], self.steps.newest(name))
            self.steps.fetch(consumer, self.steps.epochs[consumer], 10)
            self.steps.comparison.compare()
            self.new_records()
            self.new_records()

    def renews(self) -> None:
        """A ShareConsumer renews some of its locks, and the others end."""
        name, index = self._any(CONSUMERS), self._index()
        self.steps.join_again(name)
        self.steps.fetch(name, self.steps.epochs[name], 10)
        self.steps.pass_time(20_000)
        self.steps.heartbeat(name, self.steps.epochs[name])
        if index not in self.steps.model.partitions:  # it was deleted meanwhile
            return
        held = self.steps.held_by(name, index)
        acks = pieces((o, count, 4, False) for o, count in held.items() if self.chance.random() < 0.5)
        if acks:
            self.steps.acknowledge(name, self.steps.epochs[name], index, acks)
        self.steps.pass_time(10_001)

    def dead_letters(self) -> None:
        """Some of those that are wanted; now and then one that nobody waits for."""
        keys = [w for w in self.steps.model.waiting_for_dead_letters() if self.chance.random() < 0.7]
        if self.chance.random() < 0.2:
            keys.append(((self._index(), self.chance.randint(0, 60)), self.chance.randint(1, 3)))
        if len(dict(keys)) == len(keys):
            self.steps.mark_dead_letters_written(keys)

    # --- ShareConsumers

    def fetch(self) -> None:
        name = self._any(CONSUMERS)
        most, beyond = self.chance.choice((1, 4, 10)), self.chance.random() < 0.2
        self.steps.fetch(name, self._epoch(name), most, self._partitions(), beyond=beyond)

    def signal(self) -> None:
        """A consumer signals some of the records that it holds, and at times others."""
        name = self._any(CONSUMERS)
        epoch, index = self._epoch(name), self._index()
        others = self.chance.random() < 0.1
        held = self.steps.held_by(self._any() if others else name, index)
        signals: list[Signal] = [
            (first, last, count, self.chance.choice((None, "", "half", "é" * 128)))
            for first, last, count, _ in pieces((offset, count, 0, False) for offset, count in held.items())
            if self.chance.random() < 0.7
        ]
        if others:
            first = self.steps.model.partitions[index].start + self.chance.randint(-2, 10)
            signals.append((first, first + self.chance.choice((0, 1)), 1, self.chance.choice((None, "é" * 129))))
        if signals:
            self.steps.mark_in_progress(name, epoch, index, signals)

    def acknowledge(self) -> None:
        name = self._any(CONSUMERS)
        epoch, index = self._epoch(name), self._index()
        acks = self._acks(name, index)
        reason, delay_ms = self.chance.choice((("", None), ("", None), ("bad", 0), ("worse", 5_000)))
        if acks:
            self.steps.acknowledge(name, epoch, index, acks, reason, delay_ms)

    def _acks(self, name: str, index: int) -> list[Ack]:
        """Mostly what the member holds, in pieces of equal count; now and then something else."""
        acks = pieces(
            (offset, count, self.chance.choice((0, 1, 1, 2, 2, 3, 4)), self.chance.random() < 0.2)
            for offset, count in self.steps.held_by(name, index).items()
            if self.chance.random() >= 0.15
        )
        records = self.steps.model.partitions[index].records
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
    "stall": 3,
    "crash": 2,
    "new_records": 8,
    "log_start": 3,
    "topic": 0.7,
    "notice_deleted": 2,
    "rest": 0.5,
    "gap": 1,
    "config": 2,
    "acquire": 20,
    "start": 14,
    "replay": 10,
    "complete": 10,
    "another_plan": 2,
    "stage": 12,
    "batch": 5,
    "outage": 3,
    "dead_letters": 4,
    "fetch": 12,
    "signal": 8,
    "acknowledge": 14,
    "alter_start": 1,
    "by_hand": 3,
    "delete_offsets": 0.7,
    "delete_group": 0.3,
}
ACTIONS_IN_ORDER = {**ACTIONS, "fails": 5, "waits": 3, "renews": 3}
