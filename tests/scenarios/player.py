"""Plays a scenario on the core, and writes its text anew with what the core shows after each step.

Steps (M is a member, C a ShareConsumer, P a plan as in ``i.2``; what is in brackets may be left out):

- ``group [records=N] [key=value]…``: a group on one partition with N records. ``set key=value…`` alters its configs.
- ``join M [as PROCESS]``: a process of M joins: a new one, or the one that is named. ``consumer C``, ``leave M``.
- ``latest M [after P] [limit N]``: latestOffset: P is completed, and the next plan acquired. At most 4000 records.
- ``acquire M [after P] [limit N]``: the same without completing P. ``read`` for ``latest``: the plan is started, too.
- ``partitions M P [epoch N] [continuing]``: partitions(): the plan is started, or reclaimed. ``epoch``: an older
  process asks. ``continuing``: failOnDataLoss is false.
- ``restart M P [N times] [continuing]``: the query's process dies; a new one replays the batch that ended in P.
- ``complete M P [gaps RANGES]``: P is completed, and nothing is acquired.
- ``stage ROWS [strictly] [replacing]``: the sink's commit. ``8000 accept, 8001 release 60000 ms, 8002-8003 reject at
  2``: ``at`` is the delivery count, 1 unless it is named, and ``written`` says that the dead letter is. ``strictly``:
  failOnStale. ``replacing``: the target replaces what it has of the batch.
- ``deliver M OUTCOME [after P]``: a batch from its acquisition to its completion, whose sink says that of all records.
- ``silent M [replacing]``: a sink's commit without rows, which names the newest plan of M.
- ``consumers``: the ShareConsumers c1, c2 and c3 join. ``fetch C N``, ``acknowledge C ROWS``: one acquires, and
  acknowledges in one request. ``signal C RANGE [at N]``: its work on these goes on. ``wait N ms``: all members send
  their heartbeats meanwhile. ``lag``: what the group has still to do, and what is done in its window.
- ``file RANGE [at N]``: the dead letters of these records are written.
- ``reset N|none [force]``, ``decide release|archive RANGE``, ``release M``: an administrator alters the start offset
  (``none``: deletes it), decides records by hand, and ends the session of a member. ``begin N``: it is there again.
- ``heartbeat M``, ``pass N ms``, ``records N`` (the log ends there), ``log starts N``.
- ``coordinator restarts [from a snapshot]``: another process loads what was appended, or a snapshot of it.
- ``history OFFSET``: who had the record, and how each delivery ended, as the log tells it.
- ``waits``: in order, the record that holds up the partition, for how long by now, and the members that wait.
- ``says M ERROR [of PROCESS | in a task]``: a process of M ends with this error; ``of``: one whose join was refused.
  ``endings``: the queries that keep ending.
- ``drain M after P fails OFFSET``: the query goes on until it is given nothing; each batch with the offset fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from coordinator.core.commands import AlterConfigs, InitializePartitions, PartitionStart
from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.core.looks.description import describe_group
from coordinator.core.looks.measures import MeasureGroup
from coordinator.core.members import Member
from coordinator.core.release_breaker import pause_ms
from coordinator.core.runs import Run
from coordinator.protocol.admin_messages import DecideRecords, ReleaseMember
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    AcquiredReply,
    DescribeGroup,
    Heartbeat,
    LeaveGroup,
    MarkInProgress,
    PartitionAcks,
    PartitionProgress,
    PlanReply,
    ProgressBatch,
    ReportEnding,
)
from coordinator.protocol.values import AcknowledgeType, OffsetRange, OutcomeRun
from tests.support.group_driver import TOPIC_ID, GroupDriver, from_snapshot, polled, ranges
from tests.support.record_histories import told

FILES = sorted(Path(__file__).parent.glob("[0-9]*.txt"))
ROW = re.compile(r"(\d+)(?:-(\d+))? (accept|release|reject|renew|gap|defer)(?: (\d+) ms)?(?: at (\d+))?( written)?")
HEARTBEAT_MS = 15_000
MOST_BATCHES = 200
"""A drain fails after this number of batches: a story that goes on has a mistake in it."""


def played(text: str) -> str:
    """The scenario with what the core shows now. ValueError for a step that is not known."""
    player = Player()
    return "\n\n".join("\n".join(player.block(block.splitlines())) for block in text.strip().split("\n\n")) + "\n"


class Player:
    """Plays the blocks of one scenario, in order. Steps of one block show the state once, after the last one."""

    def __init__(self) -> None:
        self.group = GroupDriver()

    def block(self, lines: list[str]) -> Iterator[str]:
        """The block's own lines, each step with its answer, and the state after the last one. A block of comments has
        no step."""
        own = [line for line in lines if not line.startswith(" ")]
        for line in own:
            yield line
            if not line.startswith("#"):
                yield from self._answer(line)
        if not own[-1].startswith("#"):
            yield from self._state()

    def _answer(self, step: str) -> list[str]:
        verb, *words = step.split()
        method = getattr(self, f"_{verb}", None)
        if method is None:
            raise ValueError(f"no step begins with {verb!r}")
        try:
            return list(method(*words))
        except ShareGroupError as error:
            return [_line("refused", type(error).__name__)]

    def _state(self) -> Iterator[str]:
        if not self.group.group.partitions:
            yield _line("window", "none")
            return
        partition = self.group.partition()
        for first, last, run in partition.runs:
            yield _line("run", f"[{first}..{last}] {self._run(run)}")
        yield _line("window", f"{partition.start_offset} to {partition.end_offset}")
        if partition.archived_total:
            yield _line("archived", str(partition.archived_total))
        for out in self.group.group.unreported_losses:
            yield _line("lost", f"[{out.first}..{out.last}]")
        for member in self.group.group.members.values():
            yield _line("member", self._member(member))

    def _run(self, run: Run) -> str:
        """``STATE count failures plan``, as in the docs."""
        text = f"{run.state.name} {run.delivery_count} {run.failures} {run.plan_id or '-'}"
        if run.disposition:
            text += f" {run.disposition.name.lower()}"
        if run.releases:
            text += f" released {run.releases}"
        if run.quarantined:
            text += " quarantined" + ("" if run.failed_alone_ms is None else " failed alone")
        if run.trials_lost:
            text += f" {run.trials_lost} trial lost"
        if run.not_before_ms is not None and run.not_before_ms > self.group.now_ms:
            text += f" in {run.not_before_ms - self.group.now_ms} ms"
        return text

    def _member(self, member: Member) -> str:
        text = f"{member.member_id} epoch {member.member_epoch}" + ("" if member.active else ", session over")
        if member.completed:
            text += f", completed {self.group.group.plan_id_text(member.completed)}"
        if member.pending is not None:
            plan_id = member.pending.plan_id
            text += f", {self.group.group.plan_id_text(plan_id)} {member.plan_state(plan_id).value}"
        if (breaker := member.breaker) is not None:
            text += f", {breaker.released} of {breaker.records} released"
            left_ms = pause_ms(breaker, self.group.group.config, self.group.now_ms)
            text += f": pauses for {left_ms} ms" if left_ms else ""
        return text + (", evidence" if member.evidence else "")

    # --- steps

    def _group(self, *settings: str) -> Iterable[str]:
        configs: dict[str, Any] = dict(setting.split("=") for setting in settings)
        self.group = GroupDriver(records=int(configs.pop("records", 10_000)), **configs)
        return ()

    def _join(self, member: str, *named: str) -> Iterable[str]:
        yield _line("epoch", str(self.group.join(member, named[1] if named else None)))

    def _set(self, *settings: str) -> Iterable[str]:
        self.group.run(AlterConfigs(configs=dict(setting.split("=") for setting in settings)))
        return ()

    def _consumer(self, member: str) -> Iterable[str]:
        self.group.join(member, query=False)
        return ()

    def _leave(self, member: str) -> Iterable[str]:
        self.group.run(LeaveGroup(**self._who(member)))
        return ()

    def _fetch(self, member: str, most: str) -> Iterable[str]:
        reply = polled(self.group, int(most), member)
        ranges_ = [each for part in reply.partitions for each in part.ranges]
        yield _line("fetched", ", ".join(f"[{r.first}..{r.last}] {r.delivery_count}" for r in ranges_) or "none")
        yield from _limited(reply)

    def _consumers(self) -> Iterable[str]:
        for member in ("c1", "c2", "c3"):
            self.group.join(member, query=False)
        return ()

    def _acknowledge(self, member: str, *words: str) -> Iterable[str]:
        batches = tuple(AckBatch(run.first, run.last, run.delivery_count, (run.outcome,)) for run in _runs(words))
        acks = (PartitionAcks(topic_id=TOPIC_ID, partition=0, batches=batches),)
        reply = self.group.run(Acknowledge(**self._who(member), partitions=acks))
        yield from (_line("error", name) for name in reply.errors.values())
        yield from (_line("passed", str(offset)) for offset in reply.done_below.values())
        yield from (_line("capped", f"[{lock.first}..{lock.last}] {lock.left_ms} ms") for lock in reply.capped)

    def _signal(self, member: str, offsets: str, *words: str) -> Iterable[str]:
        batch = ProgressBatch(*_range(offsets), delivery_count=int(words[1]) if words else 1)
        signals = (PartitionProgress(topic_id=TOPIC_ID, partition=0, batches=(batch,)),)
        errors = self.group.run(MarkInProgress(**self._who(member), partitions=signals)).errors
        yield from (_line("error", ": ".join(error).split(":")[1].strip()) for error in errors.values())

    def _wait(self, ms: str, _: str) -> Iterable[str]:
        for left_ms in range(int(ms), 0, -HEARTBEAT_MS):
            for member in [each.member_id for each in self.group.group.members.values() if each.active]:
                self._heartbeat(member)
            self.group.pass_time(min(left_ms, HEARTBEAT_MS))
        return ()

    def _lag(self) -> Iterable[str]:
        (described,) = describe_group(self.group.group, self.group.bounds()).partitions
        yield _line("lag", f"{described.lag}, done {self.group.partition().delivery_complete_count}")

    def _history(self, offset: str) -> Iterable[str]:
        for event, count, member in told(self.group, int(offset)):
            yield _line("history", f"{event}, {count} {member}".rstrip())

    def _endings(self) -> Iterable[str]:
        members = self.group.run(DescribeGroup(group_id="billing")).members
        for each in (member.ending for member in members if member.ending is not None):
            times = f"{each.times} times" + (", and runs again" if each.runs else "")
            first_ms, last_ms = self.group.now_ms - each.first_ms, self.group.now_ms - each.last_ms
            said = f"{each.error} {each.text}" if each.error else "without a word"
            yield _line("ending", f"{said}, {times}: {first_ms} to {last_ms} ms ago")

    def _waits(self) -> Iterable[str]:
        described = self.group.run(DescribeGroup(group_id="billing"))
        if (awaited := described.partitions[0].waits_for) is not None:
            since_ms = self.group.now_ms - (awaited.since_ms or 0)
            text = f"{awaited.offset}, {awaited.tries} tries, {awaited.stage} since {since_ms} ms"
            text += f", available in {awaited.until_ms - self.group.now_ms} ms" if awaited.until_ms else ""
            yield _line("awaited", text + (f", held by {awaited.member_id}" if awaited.member_id else ""))
        measured = self.group.run(MeasureGroup(group_id="billing"))
        members = ", ".join(member.member_id for member in described.members if member.waits) or "nobody"
        yield _line("waits", f"{measured.waiting} partitions, {measured.longest_wait_ms} ms; {members}")

    def _says(self, member: str, error: str, *words: str) -> Iterable[str]:
        process = words[1] if words[:1] == ("of",) else None
        epoch = self.group.epochs.get(member) if process is None else None
        who = {"group_id": "billing", "member_id": member, "member_epoch": epoch, "process_id": process or ""}
        self.group.run(ReportEnding(**who, error=error, text=f"of {member}", is_over="task" not in words))
        return ()

    def _who(self, member: str) -> dict[str, Any]:
        return {"group_id": "billing", "member_id": member, "member_epoch": self.group.epochs[member]}

    def _latest(self, member: str, *words: str) -> Iterable[str]:
        options = dict(zip(words[::2], words[1::2], strict=True))
        yield from _plan(self.group.next(options.get("after", ""), member, int(options.get("limit", 4_000))))

    def _read(self, member: str, *words: str) -> Iterable[str]:
        options = dict(zip(words[::2], words[1::2], strict=True))
        plan = self.group.next(options.get("after", ""), member, int(options.get("limit", 4_000))).plan
        yield from _plan(self.group.start(plan.plan_id, member))

    def _acquire(self, member: str, *words: str) -> Iterable[str]:
        options = dict(zip(words[::2], words[1::2], strict=True))
        yield from _plan(self.group.acquire(options.get("after", ""), member, int(options.get("limit", 4_000))))

    def _partitions(self, member: str, plan: str, *words: str) -> Iterable[str]:
        current = self.group.epochs[member]
        self.group.epochs[member] = int(words[1]) if "epoch" in words else current
        try:
            yield from _plan(self.group.start(plan, member, fail_on_data_loss="continuing" not in words))
        finally:
            self.group.epochs[member] = current

    def _restart(self, member: str, plan: str, *words: str) -> Iterable[str]:
        for _ in range(int(words[0]) if "times" in words else 1):
            reply = self.group.restart(plan, member, fail_on_data_loss="continuing" not in words)
        yield from _plan(reply)

    def _complete(self, member: str, plan: str, *words: str) -> Iterable[str]:
        gaps = tuple(OffsetRange(TOPIC_ID, 0, *_range(text)) for text in " ".join(words[1:]).split(", ") if text)
        done = self.group.complete(plan, member, gaps=gaps)
        if done.undecided:
            yield _line("returned", "no sink decided")
        if done.outcomes:
            yield _line("decided", ", ".join(f"{name} {count}" for name, count in done.outcomes.items()))

    def _deliver(self, member: str, outcome: str, *words: str) -> Iterable[str]:
        reply = self.group.acquire(words[1] if words else "", member)
        yield from _plan(reply)
        if reply.plan.plan_id:
            self.group.start(reply.plan.plan_id, member)
            kind = AcknowledgeType[outcome.upper()]
            self.group.stage(*(OutcomeRun(first, last, count, kind) for first, last, count in ranges(reply)))
            self.group.complete(reply.plan.plan_id, member)

    def _file(self, offsets: str, *words: str) -> Iterable[str]:
        self.group.file(*_range(offsets), int(words[1]) if words else 1)
        return ()

    def _reset(self, start: str, *words: str) -> Iterable[str]:
        starts = ((TOPIC_ID, 0, None if start == "none" else int(start)),)
        self.group.run(AlterStartOffsets(starts=starts, execute=True, force="force" in words))
        return ()

    def _begin(self, start: str) -> Iterable[str]:
        begun = PartitionStart(topic_id=TOPIC_ID, partition=0, start_offset=int(start))
        self.group.run(InitializePartitions(topics=(), starts=(begun,)))
        return ()

    def _decide(self, decision: str, offsets: str) -> Iterable[str]:
        first, last = _range(offsets)
        where = {"group_id": "billing", "topic": "orders", "partition": 0, "first": first, "last": last}
        self.group.run(DecideRecords(decision=decision, execute=True, reason="by hand", **where))  # type: ignore[arg-type]
        return ()

    def _release(self, member: str) -> Iterable[str]:
        self.group.run(ReleaseMember(group_id="billing", member_id=member, execute=True))
        return ()

    def _silent(self, member: str, *words: str) -> Iterable[str]:
        self.group.silent(member, replaces="replacing" in words)
        return ()

    def _stage(self, *words: str) -> Iterable[str]:
        rows = [word for word in words if word not in ("strictly", "replacing")]
        staged = self.group.stage(*_runs(rows), fail_on_stale="strictly" in words, replaces="replacing" in words)
        contradicted = f", contradicted {staged.contradicted}" if staged.contradicted else ""
        yield _line("staged", f"{staged.staged}, stale {staged.stale}{contradicted}")

    def _heartbeat(self, member: str) -> Iterable[str]:
        self.group.run(Heartbeat(**self._who(member)))
        return ()

    def _pass(self, ms: str, _: str) -> Iterable[str]:
        self.group.pass_time(int(ms))
        return ()

    def _records(self, end: str) -> Iterable[str]:
        self.group.ends[0] = int(end)
        return ()

    def _log(self, _: str, offset: str) -> Iterable[str]:
        self.group.move_log_start(int(offset))
        return ()

    def _coordinator(self, _: str, *source: str) -> Iterable[str]:
        from_snapshot(self.group) if source else self.group.crash()
        return ()

    def _drain(self, member: str, _: str, plan: str, __: str, failing: str) -> Iterable[str]:
        for _batch in range(MOST_BATCHES):
            reply = self.group.next(plan, member)
            if not reply.plan.plan_id:
                return
            plan = reply.plan.plan_id
            reply = self.group.start(plan, member)
            yield from _plan(reply)
            while any(first <= int(failing) <= last for first, last, _ in ranges(reply)):
                reply = self.group.restart(plan, member)
                yield from _plan(reply, "again")
        raise AssertionError("the drain does not end")


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _runs(words: Iterable[str]) -> list[OutcomeRun]:
    """The outcomes of these words, as ``8001 release 60000 ms, 8002-8003 reject at 2``."""
    rows = [ROW.fullmatch(row) for row in " ".join(words).split(", ")]
    runs = [
        OutcomeRun(
            int(row[1]),
            int(row[2] or row[1]),
            int(row[5] or 1),
            AcknowledgeType[row[3].upper()],
            dead_letter=bool(row[6]),
            delay_ms=int(row[4]) if row[4] else None,
        )
        for row in rows
        if row is not None
    ]
    assert len(runs) == len(rows), "a row that is not understood"
    return runs


def _plan(reply: PlanReply, name: str = "plan") -> Iterator[str]:
    """``i.2: [0..3999] 1``, the number is the delivery count; and what the batch goes on without."""
    held = ", ".join(f"[{first}..{last}] {count}" for first, last, count in ranges(reply))
    trial = " on trial" if reply.plan.trial else ""
    yield _line(name, f"{reply.plan.plan_id}{trial}: {held or 'empty'}" if reply.plan.plan_id else "none")
    yield from _limited(reply)
    for out in reply.left_out:
        yield _line("left out", f"[{out.first}..{out.last}] {out.reason}")
    for out in reply.data_loss:
        yield _line("data loss", f"[{out.first}..{out.last}]")


def _limited(reply: PlanReply | AcquiredReply) -> Iterator[str]:
    if reply.limited_by:
        yield _line("limited", f"by {reply.limited_by}" + (f", {reply.retry_ms} ms" if reply.retry_ms else ""))


def _line(name: str, text: str) -> str:
    return f"  {name:<10}{text}"
