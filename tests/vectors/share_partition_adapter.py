"""Plays a recorded scenario of Kafka's share partition on the core, and says where the two differ.

The core acquires offset ranges and never sees log batches. So an acquire is fed the ranges that Kafka acquired (under
``record_limit``: the limit, and the core chooses), a receipt is looked up, and what Kafka finds to be a hole in the log
when it fetches is archived as our reader does when it finds none of a range's offsets. A write that fails or is pending
is a command whose append fails or has not been made: nothing of it is to be seen (docs/trust/facts.md, K18 and K21).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

from coordinator.config.resolved import GroupConfig
from coordinator.core.changes import moved
from coordinator.core.commands import (
    AcquireForConsumer,
    Decision,
    Expire,
    InitializePartitions,
    MoveLogStarts,
    PartitionStart,
)
from coordinator.core.commands.acquire_for_consumer import acquired_decision
from coordinator.core.decide import decide
from coordinator.core.log_records import PartitionInitialized, RunsChanged
from coordinator.core.record_state import TERMINAL, Event, RecordState
from coordinator.core.runs import FRESH, Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.errors import ShareGroupError, StateRecordUnreadable
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    AcknowledgeReply,
    Heartbeat,
    LeaveGroup,
    PartitionAcks,
    PartitionBounds,
)
from tests.support.group_driver import TOPIC_ID, GroupDriver

FAR = 2**62
CONFIGS = {
    "max_in_flight_records": "share_partition_max_record_locks",
    "max_delivery_count": "share_delivery_count_limit",
    "record_lock_duration_ms": "share_record_lock_duration_ms",
    "renew_enabled": "share_renew_acknowledge_enable",
}


class Scenario:
    """One scenario at play; ``differences`` are what a step expects and the core does not show."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self.driver = GroupDriver(records=FAR)
        self.driver.group.config = self._config(scenario["config"], GroupConfig.parse())
        fetched = [batch for step in scenario["steps"] for batch in step.get("fetched_batches", ())]
        self.in_log = {offset for batch in fetched for offset in range(batch["first"], batch["last"] + 1)}
        self.holes: set[int] = set()
        self.unread: set[int] = set()
        self.pending: dict[int, Any] = {}
        self.written: dict[int, tuple[int, int]] = {}
        self.served = True
        self.differences: list[str] = []

    def __repr__(self) -> str:
        return f"<Scenario {self.partition!r}>"

    @property
    def partition(self) -> SharePartition:
        return self.driver.partition()

    def play(self, steps: Iterable[dict[str, Any]]) -> list[str]:
        """Every step; stops at the first one that differs."""
        for number, step in enumerate(steps):
            expected = step.get("expected", {})
            got = getattr(self, f"_{step['op']}")(step, expected)
            for what, value in got.items():
                if value != expected.get(what, "NONE"):
                    self.differences.append(f"step {number} {what}: {value}, Kafka {expected.get(what)}")
            if self.served:
                self._compare(number, expected)
            self._remember_writes(expected)
            if self.differences or not self.served:
                return self.differences
        self._compare_durable()
        return self.differences

    # --- one method an op

    def _initialize(self, step: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
        if "persister_read" not in step:
            start_again = PartitionStart(topic_id=TOPIC_ID, partition=0, start_offset=FAR)
            self._run(InitializePartitions(topics=(), starts=(start_again,)))
            return {"error": "NONE"}
        read = step["persister_read"]
        start = read["start_offset"] if read["start_offset"] >= 0 else step["reset_offset"]
        partition = PartitionInitialized(topic_id=TOPIC_ID, partition=0, start_offset=start)
        runs = [(first, last, _stored_run(state, count)) for first, last, state, count in read["state_batches"]]
        between = start
        for first, last, _ in list(runs):
            if between < first:
                self.unread.update(range(between, first))
                runs.append((between, first - 1, FRESH))
            between = last + 1
        try:
            stored = RunsChanged(topic_id=TOPIC_ID, partition=0, runs=tuple(sorted(runs, key=lambda r: r[0])))
            self._replay([partition, stored])
        except ValueError:  # the runtime refuses to load it
            self.served = False
            return {"error": StateRecordUnreadable.kafka_error}
        return {"error": "NONE"}

    def _acquire(self, step: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
        if step["mode"] == "record_limit":
            self._find_holes(expected)
            reply = self._acquire_by_limit(step)
        else:
            reply = self._acquire_ranges(step["member"], expected["acquired"])
            self._find_holes(expected)
            self._find_compacted(step)
        acquired = {o: r.delivery_count for p in reply.partitions for r in p.ranges for o in range(r.first, r.last + 1)}
        wanted = {o: r["delivery_count"] for r in expected["acquired"] for o in range(r["first"], r["last"] + 1)}
        return {} if acquired == wanted else {"acquired": _brief(acquired)}

    def _acquire_by_limit(self, step: dict[str, Any]) -> Any:
        self._config_mode("record_limit")
        end = max(batch["last"] for batch in step["fetched_batches"]) + 1
        bounds = PartitionBounds(topic_id=TOPIC_ID, partition=0, log_start=0, end=end)
        who = self._who(step["member"])
        return self._run(AcquireForConsumer(**who, max_records=step["max_fetch_records"], bounds=(bounds,)))

    def _acquire_ranges(self, member: str, ranges: list[dict[str, Any]]) -> Any:
        segments = [part for r in ranges for part in self._parts(r["first"], r["last"])]
        who = self._who(member)
        if not segments:
            bounds = PartitionBounds(topic_id=TOPIC_ID, partition=0, log_start=0, end=0)
            return self._run(AcquireForConsumer(**who, max_records=1, bounds=(bounds,)))
        group, now_ms = self.driver.group, self.driver.now_ms
        decision = acquired_decision(group, member, who["member_epoch"], {self.partition.key: segments}, now_ms)
        self._replay(decision.records)
        return decision.reply

    def _acknowledge(self, step: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
        batches = tuple(piece for batch in step["batches"] for piece in self._with_receipts(batch))
        acks = (PartitionAcks(topic_id=TOPIC_ID, partition=0, batches=batches),)
        return self._written(Acknowledge(**self._who(step["member"]), partitions=acks), expected)

    def _release_member(self, step: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
        return self._written(LeaveGroup(**self._who(step["member"])), expected)

    def _advance_clock(self, step: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
        self.driver.now_ms += step["ms"]
        for member in [m for m in self.driver.group.members.values() if m.active]:
            self._run(Heartbeat(**self._who(member.member_id)))
        # An append that fails leaves the locks as they were, and they run out in the next round.
        self._undone(Expire())
        self._run(Expire())
        return {}

    def _update_start_offset(self, step: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
        start = PartitionStart(topic_id=TOPIC_ID, partition=0, start_offset=step["log_start_offset"])
        self._run(MoveLogStarts(starts=(start,)))
        return {}

    def _persister_complete(self, step: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
        command = self.pending.pop(step["pending_id"])
        if step["outcome"]["error"] == "NONE":
            self._run(command)
        return {}

    def _set_config(self, step: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in step["config"].items() if value and name in CONFIGS}
        self.driver.group.config = self._config(given, self.driver.group.config)
        return {}

    def _can_acquire_records(self, step: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
        """Whether an acquire with records in the log would get any (nothing of it stays)."""
        bounds = PartitionBounds(topic_id=TOPIC_ID, partition=0, log_start=0, end=FAR)
        probe = AcquireForConsumer(**self._who("prober"), max_records=1, bounds=(bounds,))
        return {"value": bool(self._undone(probe).reply.plan_id)}  # type: ignore[attr-defined]

    # --- the shell

    def _who(self, member: str) -> dict[str, Any]:
        known = self.driver.group.members.get(member)
        if known is None or not known.active:
            self.driver.join(member, f"{member}-process", query=False)
        return {"group_id": "billing", "member_id": member, "member_epoch": self.driver.epochs[member]}

    def _run(self, command: Any) -> Any:
        return self.driver.run(command)

    def _undone(self, command: Any) -> Decision:
        """Decided and not appended: nothing changes."""
        return decide(self.driver.group, command, self.driver.now_ms)

    def _replay(self, records: Iterable[Any]) -> None:
        self.driver.append(records)

    def _written(self, command: Any, expected: dict[str, Any]) -> dict[str, Any]:
        """Run it, unless its write fails, or stays open."""
        outcomes = [write["outcome"] for write in expected.get("persister_writes", ())]
        failed = [outcome for outcome in outcomes if outcome not in ("pending", {"error": "NONE"})]
        if failed:
            self._undone(command)
            return {"error": failed[0]["error"]}
        if "pending" in outcomes:
            self.pending[expected["persister_writes"][0]["pending_id"]] = command
            return {}
        try:
            reply = self._run(command)
        except ShareGroupError as error:
            return {"error": error.kafka_error}
        errors = reply.errors.values() if isinstance(reply, AcknowledgeReply) else ()
        return {"error": next(iter(errors), "NONE")}

    def _config(self, given: dict[str, Any], before: GroupConfig) -> GroupConfig:
        return replace(before, **{CONFIGS[name]: value for name, value in given.items()})

    def _config_mode(self, mode: str) -> None:
        self.driver.group.config = replace(self.driver.group.config, share_acquire_mode=mode)

    # --- what the log and the receipts say

    def _parts(self, first: int, last: int) -> Iterator[Segment]:
        at = first
        for segment in list(self.partition.runs.between(first, last)):
            if at < segment.first:
                yield Segment(at, segment.first - 1, FRESH)
            yield segment
            at = segment.last + 1
        if at <= last:
            yield Segment(at, last, FRESH)

    def _with_receipts(self, batch: dict[str, Any]) -> Iterator[AckBatch]:
        """The batch with the delivery counts of its offsets; none for offsets that were never there."""
        first, last, types = batch["first"], batch["last"], batch["types"]
        if len(types) not in (1, last - first + 1):
            yield AckBatch(first=first, last=last, delivery_count=1, types=tuple(types))
            return
        held = self.partition.runs.between(first, last)
        counts = {offset: run.delivery_count for f, e, run in held for offset in range(f, e + 1)}
        kinds_of = types * (last - first + 1) if len(types) == 1 else types
        each = [(o, counts.get(o, 1), kind) for o, kind in zip(range(first, last + 1), kinds_of, strict=True)]
        there = (entry for entry in each if entry[0] not in self.holes)
        for _, same in groupby(enumerate(there), key=lambda e: (e[1][0] - e[0], e[1][1])):
            piece = [entry for _, entry in same]
            kinds = tuple(kind for _, _, kind in piece)
            yield AckBatch(first=piece[0][0], last=piece[-1][0], delivery_count=piece[0][1], types=kinds)

    def _find_holes(self, expected: dict[str, Any]) -> None:
        """Offsets inside Kafka's window that it fetched over and has no record of: archived at the count they have."""
        state = expected["state"]
        known = {o for b in state["batches"] for o in range(b["first"], b["last"] + 1)}
        window = state["gap_window"]
        unread = range(window["gap_start_offset"], window["end_offset"] + 1) if window else range(0)
        for offset in range(self.partition.start_offset, max(known, default=-1) + 1):
            if offset not in known and offset not in unread and offset not in self.holes:
                run = next((run for _, _, run in self.partition.runs.between(offset, offset)), FRESH)
                if run.state == RecordState.AVAILABLE and (offset not in self.in_log or run.delivery_count):
                    self._archive(offset, run)
                    self.holes.add(offset)

    def _find_compacted(self, step: dict[str, Any]) -> None:
        """A fetch that answers with later offsets: the log no longer holds those between (facts, 8)."""
        if step["fetched_batches"]:
            for first, last, run in list(
                self.partition.runs.between(step["fetch_offset"], step["fetched_batches"][0]["first"] - 1)
            ):
                for offset in range(first, last + 1) if run.state == RecordState.AVAILABLE else ():
                    self._archive(offset, run)

    def _archive(self, offset: int, run: Run) -> None:
        gone = ((offset, offset, moved(run, Event.LOG_START)),)
        self._replay([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=gone)])

    # --- the comparison

    def _compare(self, number: int, expected: dict[str, Any]) -> None:
        if "state" not in expected:
            return
        state = expected["state"]
        runs = [run for batch in state["batches"] for run in batch["runs"]]
        per = {o: run for run in runs for o in range(run["first"], run["last"] + 1)}
        start, passed = self._caught_up(state["start_offset"], per)
        per = {offset: run for offset, run in per.items() if offset >= start}
        ours = self._ours(self.driver.group)
        for offset, run in per.items():
            wanted = (run["state"], run["delivery_count"], run["member"])
            got = ours.get(offset, ("AVAILABLE", 0, ""))
            if not run.get("in_transition") and got != wanted:
                self.differences.append(f"step {number} offset {offset}: {got}, Kafka {wanted}")
        for offset, (name, _, _) in ours.items():
            if offset >= start and offset not in per and offset not in self.holes | self.unread:
                self.differences.append(f"step {number} offset {offset}: {name}, Kafka knows nothing of it")
        if self.partition.start_offset != start:
            self.differences.append(f"step {number} start offset: {self.partition.start_offset}, Kafka {start}")
        if not self.pending:
            complete = state["delivery_complete_count"] - passed
            self._compare_counts(number, {**state, "delivery_complete_count": complete})

    def _caught_up(self, start: int, per: dict[int, dict[str, Any]]) -> tuple[int, int]:
        """Kafka's start offset can stand on a terminal record, or on a hole, until its next write; ours moves on at
        once (docs/trust/facts.md, K9 and K24). Where Kafka's will be then, and how many terminal records it will have
        passed."""
        passed = 0
        while True:
            run = per.get(start)
            terminal = run is not None and RecordState[run["state"]] in TERMINAL and not run.get("in_transition")
            if not terminal and (run is not None or start not in self.holes):
                return start, passed
            start, passed = start + 1, passed + terminal

    def _compare_counts(self, number: int, state: dict[str, Any]) -> None:
        ours = self._ours(self.driver.group)
        available = [o for o, (name, _, _) in ours.items() if name == "AVAILABLE" and o >= self.partition.start_offset]
        next_offset = min([*available, self.partition.end_offset])
        complete = self.partition.delivery_complete_count - len([o for o in self.holes if o in ours])
        for what, got in (("next_fetch_offset", next_offset), ("delivery_complete_count", complete)):
            if got != state[what]:
                self.differences.append(f"step {number} {what}: {got}, Kafka {state[what]}")

    def _ours(self, group: ShareGroup) -> dict[int, tuple[str, int, str]]:
        found = {}
        for first, last, run in next(iter(group.partitions.values())).runs:
            held = run.state == RecordState.ACQUIRED and run.plan_id is not None
            holder = group.plans[run.plan_id].member_id if held and run.plan_id is not None else ""
            for offset in range(first, last + 1):
                found[offset] = (run.state.name, run.delivery_count, holder)
        return found

    def _remember_writes(self, expected: dict[str, Any]) -> None:
        """By offset the newest thing that Kafka made durable; what is acquired is no write of its."""
        for write in expected.get("persister_writes", ()):
            if write["outcome"] == {"error": "NONE"}:
                for first, last, state, count in write["batches"]:
                    self.written.update(dict.fromkeys(range(first, last + 1), (state, count)))

    def _compare_durable(self) -> None:
        """Our log leads to the state that Kafka's writes lead to, unless another acquisition followed."""
        loaded = self.driver.recovered()
        partition = next(iter(loaded.partitions.values()))
        if partition.start_offset != self.partition.start_offset:
            self.differences.append(f"durable start offset: {partition.start_offset}")
        ours = self._ours(loaded)
        for offset, (state, count) in self.written.items():
            name, our_count, _ = ours.get(offset, ("", 0, ""))
            if offset < partition.start_offset or name == "ACQUIRED":
                continue
            if (name, our_count) != (RecordState(state).name, count):
                self.differences.append(f"durable {offset}: {(name, our_count)}, Kafka {(state, count)}")


def _stored_run(state: int, count: int) -> Run:
    """A persisted batch; each delivery of it failed, as far as anybody knows."""
    stored = RecordState(state)
    return Run(stored, count) if stored in TERMINAL else Run(stored, count, failures=count)


def _brief(acquired: dict[int, int]) -> str:
    return ", ".join(f"{o}:{c}" for o, c in sorted(acquired.items()))[:200]
