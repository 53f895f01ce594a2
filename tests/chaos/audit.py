"""Checks the logs after a run: the state topic's, of every append of every owner, and the members' journals.

The state log is read as an outsider reads it: each record of each group, in the order in which Kafka has it, on a
dict of offsets. It does not use the core: a record that two owners wrote past each other is seen here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from coordinator.core.log_records import ConfigsAltered, PlanAcquired, PlanCompleted, Record, RunsChanged
from coordinator.core.record_codec import decode_record
from coordinator.core.record_state import TERMINAL, RecordState
from coordinator.core.runs import Run
from coordinator.service.stores.kafka.log_reader import LogReader
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.state_log.owner_record import decode_owner
from coordinator.state_log.placement import PLACEMENT_KEY, state_partition_of
from coordinator.state_log.record_keys import GroupOwnerKey, GroupRecordKey, decode_key
from coordinator.state_log.value_version import content_of


class Held(NamedTuple):
    """The last state of one record in the log."""

    state: RecordState
    plan_id: int | None
    delivery_count: int
    releases: int = 0


DONE = (*TERMINAL, RecordState.ARCHIVING)
NEVER_ACQUIRED = Held(RecordState.AVAILABLE, None, 0)


class Audit:
    """One group's log, gone through from its beginning."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.records: dict[tuple[int, int], Held] = {}
        self.completed: set[int] = set()
        self.archived: set[tuple[int, int]] = set()
        self.owners: list[str] = []
        """The processes that owned the group, in order."""
        self.holders: dict[int, str] = {}
        """By plan number, the member that acquired the plan."""
        self.lost_locks: set[tuple[int, int, int]] = set()
        """(partition, offset, number): the session of the plan's member ended, and others could take the record."""
        self.deferred: set[tuple[int, int]] = set()
        self.released: set[tuple[int, int]] = set()
        self.is_ordered = False
        self.appends = 0
        self.problems: list[str] = []
        self._numbers: set[int] = set()
        self._sequence = 0
        self._done_below: dict[int, int] = {}

    def add(self, key: bytes, value: bytes) -> None:
        """The next committed record of the state partition."""
        if key == PLACEMENT_KEY:  # of partition 0, in which a group may lie too
            return
        known = decode_key(key)
        if known.group_id != self.group_id:
            return
        if isinstance(known, GroupOwnerKey):
            process = decode_owner(value, self.group_id).process
            if process not in self.owners[-1:]:
                self.owners.append(process)
        elif isinstance(known, GroupRecordKey):
            self.appends += 1
            if known.sequence != self._sequence:
                self.problems.append(f"record {known.sequence} comes where {self._sequence} should")
            self._sequence = known.sequence + 1
            self._record(decode_record(content_of(value)))

    def _record(self, record: Record) -> None:
        if isinstance(record, PlanAcquired):
            if record.plan_id in self._numbers:
                self.problems.append(f"number {record.plan_id} is handed out twice")
            self._numbers.add(record.plan_id)
            self.holders[record.plan_id] = record.member_id
        elif isinstance(record, PlanCompleted):
            self.completed.add(record.plan_id)
        elif isinstance(record, ConfigsAltered):
            self.is_ordered = record.configs.get("share.order") == "partition"
        elif isinstance(record, RunsChanged):
            for first, last, run in record.runs:
                for offset in range(first, last + 1):
                    self._change((record.partition, offset), run)
            held = [run for run in record.runs if run[2].state == RecordState.ACQUIRED]
            if held and self.is_ordered:
                self._check_order(record.partition, held[-1][1], held[-1][2].plan_id)

    def _check_order(self, partition: int, last: int, plan_id: int | None) -> None:
        """In order, all records before ``last`` are done, or held by the same plan."""
        at = self._done_below.get(partition, 0)
        while at < last and self.records.get((partition, at), NEVER_ACQUIRED).state in DONE:
            at += 1
        self._done_below[partition] = at
        for offset in range(at, last):
            before = self.records.get((partition, offset), NEVER_ACQUIRED)
            if before.state not in DONE and before[:2] != (RecordState.ACQUIRED, plan_id):
                self.problems.append(
                    f"{(partition, last)} is held by plan {plan_id}, and {offset} is not done: {before}"
                )

    def _change(self, where: tuple[int, int], run: Run) -> None:
        now = Held(RecordState(run.state), run.plan_id, run.delivery_count, run.releases)
        before = self.records.get(where, NEVER_ACQUIRED)
        self.records[where] = now
        if now.releases > before.releases:
            self.released.add(where)
        elif before.state == RecordState.ACQUIRED and now.state == RecordState.AVAILABLE and run.not_before_ms:
            self.deferred.add(where)  # what is given back for another reason has no time
        if before.state == RecordState.ACQUIRED and now.state == RecordState.AVAILABLE and now.plan_id is not None:
            self.lost_locks.add((*where, now.plan_id))  # a release, and a cut, clear the number
        if now.state == RecordState.ARCHIVED:
            self.archived.add(where)
        if before.state in TERMINAL and now.state != before.state:
            self.problems.append(f"{where} was {before}, and is {now}")
        if now.delivery_count < before.delivery_count:
            self.problems.append(f"{where}: its delivery count falls: {before}, {now}")
        both = before.state == now.state == RecordState.ACQUIRED
        if both and before.plan_id != now.plan_id:
            self.problems.append(f"{where} has two holders: {before}, {now}")
        if both and before.delivery_count not in (now.delivery_count, now.delivery_count - 1):
            self.problems.append(f"{where}: {before}, {now}")


def audited(topic: StateTopic, group_id: str) -> Audit:
    """The group's whole log; nothing of it may have been pruned."""
    audit = Audit(group_id)
    with LogReader(topic, state_partition_of(group_id, topic.partitions)) as reader:
        for message in reader.read_to(reader.end()):
            audit.add(message.key(), message.value() or b"")
    return audit


def journal(path: Path) -> list[dict[str, Any]]:
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def delivered(lines: Iterable[dict[str, Any]]) -> set[tuple[int, int]]:
    """(partition, offset) of all records that a member wrote."""
    return {
        (partition, offset)
        for line in lines
        if line["what"] == "done"
        for partition, first, last, _ in line["ranges"]
        for offset in range(first, last + 1)
    }


def acked(lines: Iterable[dict[str, Any]]) -> set[int]:
    """Numbers of the plans whose completion was answered."""
    return {int(line["plan_id"].rpartition(".")[2]) for line in lines if line["what"] == "acked"}


def numbers_by_record(lines: Iterable[dict[str, Any]]) -> dict[tuple[int, int], set[int]]:
    """(partition, offset) of each record, and the plans with which it was written."""
    found: dict[tuple[int, int], set[int]] = {}
    for line in lines:
        if line["what"] == "done":
            number = int(line["plan_id"].rpartition(".")[2])
            for partition, first, last, _ in line["ranges"]:
                for offset in range(first, last + 1):
                    found.setdefault((partition, offset), set()).add(number)
    return found


def out_of_order(lines: Iterable[dict[str, Any]]) -> list[str]:
    """The records that were written after later ones of their partition, by the numbers of the plans; records that
    several plans wrote are left out."""
    lines = [line for line in lines if line["what"] == "done"]
    several = {where for where, numbers in numbers_by_record(lines).items() if len(numbers) > 1}
    last: dict[int, int] = {}
    found = []
    for line in sorted(lines, key=lambda line: int(line["plan_id"].rpartition(".")[2])):
        for partition, first, end, _ in sorted(line["ranges"]):
            late = [(partition, offset) for offset in range(first, end + 1) if offset < last.get(partition, 0)]
            found += [f"{where} is written after {last[partition]}" for where in late if where not in several]
            last[partition] = max(end, last.get(partition, 0))
    return found


def doubled(audit: Audit, lines: Iterable[dict[str, Any]]) -> tuple[int, list[str]]:
    """How many records were written with several plans; and those of them whose lock was not lost before: what the
    guarantee does not excuse."""
    several = {where: numbers for where, numbers in numbers_by_record(lines).items() if len(numbers) > 1}
    kept = {
        where: sorted(number for number in numbers if (*where, number) not in audit.lost_locks)
        for where, numbers in several.items()
    }
    return len(several), [f"{where} written by plans {kept[where]}" for where in sorted(kept) if len(kept[where]) > 1]
