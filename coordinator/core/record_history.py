"""The history of one record: its deliveries and how each ended, as far as a group's log has them.

Rule: the history is read from the log's records alone, and changes nothing. What the log does not say is left empty,
and never guessed: a snapshot keeps counts and the newest delivery, but not those before.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from coordinator.core.record_codec import RunsFilter, decode_head, decode_record
from coordinator.core.record_state import HELD, TERMINAL, RecordState
from coordinator.core.records import (
    GroupDeleted,
    LogStartMoved,
    MemberJoined,
    MemberProgressKept,
    OffsetsAltered,
    PartitionInitialized,
    PlanAcquired,
    PlanCompleted,
    PlanKept,
    PlanStaged,
    Record,
    RunsChanged,
)
from coordinator.core.runs import FRESH, Run
from coordinator.protocol.admin_messages import HistoryEntry
from coordinator.protocol.values import Disposition, SharePartitionKey

SMALL_BYTES = 4_096
"""Records up to this size are decoded, whatever they are of. Larger ones with runs of other share partitions are passed
over: a group of many runs has hundreds of megabytes of them. Of the rest the head is decoded, and those alone whole
that have something of the share partition."""

Logged: TypeAlias = tuple[int | None, bytes]
"""A record of the log, and when it was written, in ms by the wall clock; None: the store does not say."""


class _Fact(NamedTuple):
    """A statement of one record of the log about the offset. ``kind``: run (``run``); begun (the share partition began
    here), or kept (a snapshot of the share partition; ``has_run``: the offset's run follows); altered, log start,
    completed (``plan_id``), deleted."""

    kind: str
    at_ms: int | None = None
    run: Run | None = None
    has_run: bool = False
    plan_id: int = 0


class _Holder(NamedTuple):
    """The member that acquired a plan, and when."""

    member_id: str
    acquired_ms: int


ACQUIRED, IN_PROGRESS = "acquired", "in progress"
ALTERED, BY_HAND = "start offset altered by an administrator", "released by an administrator"
DELETED = "deleted from its topic"
_GIVEN_UP = {
    Disposition.REJECTED: "rejected",
    Disposition.DELIVERY_LIMIT: "given up at the limit of tries",
    Disposition.EXPIRED: "lock lost, and given up at the limit of tries",
    Disposition.UNDECIDED: "undecided, and given up at the limit of tries",
}


class RecordHistory:
    """Collects what a log says of one offset, from the newest part of the log to the oldest one."""

    def __init__(self, key: SharePartitionKey, offset: int) -> None:
        self._key, self._offset = key, offset
        self._topic = key.topic_id.encode()
        self._others = RunsFilter(key)
        self._parts: list[list[_Fact]] = []
        self._holders: dict[int, _Holder] = {}
        self._queries: dict[str, str] = {}
        self._hosts: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<RecordHistory {self._key.topic_id}-{self._key.partition}@{self._offset}>"

    def add(self, part: Iterable[Logged]) -> None:
        """Take in the part of the log before those that were taken in, its records in order."""
        facts: list[_Fact] = []
        hosts, queries = self._hosts, self._queries
        self._hosts, self._queries = {}, {}
        for at_ms, data in part:
            if len(data) <= SMALL_BYTES:
                facts += self._facts(decode_record(data), at_ms)
            elif not self._others.skips(data) and self._topic in data:
                facts += self._facts_of_large(data, at_ms)
        self._hosts.update(hosts)
        self._queries.update(queries)
        self._parts.append(facts)

    @property
    def is_whole(self) -> bool:
        """Whether the parts reach back to the record's first delivery, and say who had it."""
        for fact in self._facts_in_order():
            if fact.kind == "begun":
                return True
            if fact.kind == "kept":
                return False
            if fact.kind == "run":
                run = fact.run
                return (
                    run is not None and run.delivery_count == 1 and run.state in HELD and run.plan_id in self._holders
                )
        return False

    def entries(self) -> list[HistoryEntry]:
        """The record's entries, in the order of the log."""
        found: list[HistoryEntry] = []
        before: Run | None = None
        is_kept = False
        facts = [*self._facts_in_order(), _Fact("")]
        for fact, following in itertools.pairwise(facts):
            if fact.kind == "deleted":
                found, before = [], None
            elif fact.kind == "begun":
                before = FRESH
            elif fact.kind == "kept":
                is_kept = fact.has_run
            elif fact.kind == "altered":
                found.append(HistoryEntry(event=ALTERED, at_ms=fact.at_ms))
                before = FRESH
            elif fact.kind == "log start" and (before is None or before.state not in TERMINAL):
                found.append(HistoryEntry(event=DELETED, at_ms=fact.at_ms))
            elif fact.run is not None:
                by_query = following.kind == "completed" and before is not None and following.plan_id == before.plan_id
                event = "" if is_kept else _event(before, fact.run, by_query=by_query)
                found += [self._entry(event, before, fact.run, fact.at_ms)] if event else []
                before, is_kept = fact.run, False
        return found

    def _facts_in_order(self) -> Iterator[_Fact]:
        return itertools.chain.from_iterable(reversed(self._parts))

    # --- inside

    def _facts_of_large(self, data: bytes, at_ms: int | None) -> list[_Fact]:
        """As :meth:`_facts`, of a record whose lists are decoded only if they may name the offset."""
        head = decode_head(data)
        if head.acquired_ms is not None and head.plan_id is not None and head.member_id is not None:
            self._holders.setdefault(head.plan_id, _Holder(head.member_id, head.acquired_ms))
        elif head.query_id and head.member_id is not None:
            self._queries[head.member_id] = head.query_id
        elif head.topic_id == self._key.topic_id and head.partition in (self._key.partition, None):
            return self._facts(decode_record(data), at_ms)
        return []

    def _facts(self, record: Record, at_ms: int | None) -> list[_Fact]:
        """The facts that the record has of the offset. The holders of plans, queries and hosts are kept besides."""
        if isinstance(record, PlanAcquired | PlanKept):
            self._holders.setdefault(record.plan_id, _Holder(record.member_id, record.acquired_ms))
        elif isinstance(record, MemberJoined):
            self._hosts[record.member_id] = record.client_host
        elif isinstance(record, MemberProgressKept | PlanStaged) and record.query_id:
            self._queries[record.member_id] = record.query_id
        elif isinstance(record, PlanCompleted):
            return [_Fact("completed", at_ms, plan_id=record.plan_id)]
        elif isinstance(record, GroupDeleted):
            return [_Fact("deleted", at_ms)]
        elif isinstance(record, OffsetsAltered) and record.topic_id == self._key.topic_id:
            return [_Fact("altered", at_ms) for index, _ in record.starts if index == self._key.partition]
        elif isinstance(record, PartitionInitialized | LogStartMoved | RunsChanged) and self._is_here(record):
            return self._facts_here(record, at_ms)
        return []

    def _is_here(self, record: PartitionInitialized | LogStartMoved | RunsChanged) -> bool:
        return (record.topic_id, record.partition) == self._key

    def _facts_here(self, record: PartitionInitialized | LogStartMoved | RunsChanged, at_ms: int | None) -> list[_Fact]:
        if isinstance(record, LogStartMoved):
            return [_Fact("log start", at_ms)] if record.log_start > self._offset else []
        if isinstance(record, PartitionInitialized):
            if record.end_offset is None:
                return [_Fact("begun", at_ms)]
            return [_Fact("kept", at_ms, has_run=record.start_offset <= self._offset < record.end_offset)]
        index = bisect_right(record.runs, self._offset, key=lambda entry: entry[0]) - 1
        if index < 0 or record.runs[index][1] < self._offset:
            return []
        return [_Fact("run", at_ms, record.runs[index][2])]

    def _entry(self, event: str, before: Run | None, after: Run, at_ms: int | None) -> HistoryEntry:
        plan_id = after.plan_id if after.plan_id is not None or before is None else before.plan_id
        holder = self._holders.get(plan_id) if plan_id is not None else None
        member_id = "" if holder is None else holder.member_id
        return HistoryEntry(
            event=event,
            at_ms=holder.acquired_ms if at_ms is None and event == ACQUIRED and holder is not None else at_ms,
            delivery_count=after.delivery_count,
            failures=after.failures,
            releases=after.releases,
            plan_id="" if plan_id is None else str(plan_id),
            member_id=member_id,
            query_id=self._queries.get(member_id, ""),
            client_host=self._hosts.get(member_id, ""),
            not_before_ms=after.not_before_ms,
            reason=after.reason,
        )


def _event(before: Run | None, after: Run, *, by_query: bool) -> str:
    """The event between the two states, in words; empty: nothing that a person asks for. ``before`` None: not
    known. ``by_query``: the completion of the batch that had the record changed it."""
    was_held = before is not None and before.state in HELD
    if after.state in HELD:
        return _delivery(before, after)
    if after.state == RecordState.ACKNOWLEDGED:
        return "accepted"
    if after.state == RecordState.AVAILABLE:
        return _available_again(before, after)
    if before is not None and before.state == RecordState.ARCHIVING:
        return "dead letter written, or not possible" if after.state == RecordState.ARCHIVED else ""
    if after.disposition == Disposition.REJECTED and before is not None and not was_held and not by_query:
        return "archived by an administrator"
    if before is None and after.state == RecordState.ARCHIVED:
        return "archived"
    return _GIVEN_UP.get(after.disposition, "not in its topic's log")


def _delivery(before: Run | None, after: Run) -> str:
    if before is None:
        return IN_PROGRESS if after.state == RecordState.IN_PROGRESS else ACQUIRED
    if after.delivery_count > before.delivery_count:
        return "delivered again to its query" if before.plan_id == after.plan_id else ACQUIRED
    return IN_PROGRESS if after.state != before.state else ""


def _available_again(before: Run | None, after: Run) -> str:
    if before is None:
        return "available again"
    if after.quarantined and not before.quarantined:
        return "failed, and quarantined"
    if after.tries < before.tries:
        return BY_HAND
    if after.releases > before.releases:
        return "released"
    if before.state not in HELD:
        return ""
    if after.failures > before.failures:
        gave_back = before.state == RecordState.IN_PROGRESS and after.plan_id is None
        return "released" if gave_back else "failed: its lock was lost"
    return "given back, which is no try" if after.plan_id is None else "its lock was lost before the work began"
