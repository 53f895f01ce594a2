"""The history of one record: its deliveries and how each ended, as far as a group's log has them.

Rule: the history is read from the records of the log alone. Facts that the log lacks stay empty, and are never guessed:
a snapshot keeps counts and the newest delivery, but no earlier one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from coordinator.core.log_records import (
    DataLost,
    GroupDeleted,
    LogStartMoved,
    OffsetsAltered,
    PartitionDeleted,
    PartitionInitialized,
    PlanCompleted,
    Record,
    RunsChanged,
)
from coordinator.core.record_codec import RunsFilter, decode_head, decode_record
from coordinator.core.record_state import HELD, TERMINAL, RecordState
from coordinator.core.runs import FRESH, Run
from coordinator.protocol.admin_messages import HistoryEntry
from coordinator.protocol.values import Disposition, SharePartitionKey

SMALL_BYTES = 4_096
"""Log records up to this size are always decoded. Larger records with runs of other share partitions, or with outcomes
alone, are skipped: a group of many runs has hundreds of megabytes of such records. Of other large records the head is
decoded, and the rest only if the head names the share partition."""

Logged: TypeAlias = tuple[int | None, bytes]
"""When a record of the log was written, in ms by the wall clock (None if the store does not keep that), and the
record."""


class _Fact(NamedTuple):
    """What one record of the log says about the offset. Kinds:

    run: the offset is in ``run``. completed: the plan whose completion may have changed the run; 0: no completion did.
    begun: the share partition begins.
    kept: a snapshot of the share partition. has_run: the snapshot may have a run with the offset.
    altered: an administrator altered the start offset.
    log start: Kafka removed the offset from the log.

    is_below: the offset lies below the start offset from now on.
    """

    kind: str
    at_ms: int | None = None
    run: Run | None = None
    completed: int = 0
    has_run: bool = False
    is_below: bool = False


class _Holder(NamedTuple):
    """The member that acquired a plan, and when."""

    member_id: str
    acquired_ms: int


class _Client(NamedTuple):
    """What a member's last join says about its client."""

    member_name: str = ""
    client_id: str = ""
    client_host: str = ""


ACQUIRED, IN_PROGRESS = "acquired", "in progress"
ALTERED, BY_HAND = "start offset altered by an administrator", "released by an administrator"
DELETED = "deleted from its topic"
_GIVEN_UP = {
    Disposition.REJECTED: "rejected",
    Disposition.DELIVERY_LIMIT: "given up at the limit of tries",
    Disposition.EXPIRED: "lock lost, and given up at the limit of tries",
    Disposition.UNDECIDED: "undecided, and given up at the limit of tries",
    Disposition.TTL: "waited for longer than share.record.ttl.ms",
}


class RecordHistory:
    """Collects what a log says about one offset. Add the newest part of the log first, and the oldest last."""

    def __init__(self, key: SharePartitionKey, offset: int) -> None:
        self._key, self._offset = key, offset
        self._others = RunsFilter(key)
        self._facts: list[_Fact] = []
        """The newest fact is the first."""
        self._completed = 0
        """The plan to whose completion the next record may belong; 0: to none."""
        self._behind: int | None = None
        """The lowest offset of that completion's runs that were read so far; None: no run was."""
        self._is_all = False
        """Whether the last record read deletes a group: what comes before is another group's."""
        self._holders: dict[int, _Holder] = {}
        self._queries: dict[str, str] = {}
        self._query_names: dict[str, str] = {}
        self._clients: dict[str, _Client] = {}

    def __repr__(self) -> str:
        return f"<RecordHistory {self._key.topic_id}-{self._key.partition}@{self._offset}>"

    def add(self, part: Sequence[Logged]) -> None:
        """Add the part of the log that ends where the parts added so far begin; its records are in the log's order."""
        for at_ms, data in reversed(part):
            if self._is_all:
                return
            if len(data) <= SMALL_BYTES:
                self._take(decode_record(data), at_ms)
            elif not self._others.skips(data):
                self._take_large(data, at_ms)

    @property
    def is_whole(self) -> bool:
        """Whether the parts added reach back to the record's first delivery, and say which member had it."""
        for fact in reversed(self._facts):
            if fact.kind == "begun":
                return True
            if fact.has_run:
                return False
            if (run := fact.run) is not None:
                return run.delivery_count == 1 and run.state in HELD and run.plan_id in self._holders
        return False

    def entries(self) -> list[HistoryEntry]:
        """The entries of the history, the oldest first."""
        found: list[HistoryEntry] = []
        before: Run | None = None
        is_kept = is_below = False
        seen: set[Run] = set()
        for fact in reversed(self._facts):
            if fact.run in seen:  # a record is never in equal runs twice, so a snapshot repeats this one
                is_kept = False
            elif fact.run is not None:
                by_query = before is not None and fact.completed == before.plan_id
                event = "" if is_kept else _event(before, fact.run, by_query=by_query)
                found += [self._entry(event, before, fact.run, fact.at_ms)] if event else []
                before, is_kept = fact.run, False
                seen.add(before)
            elif fact.kind == "log start":
                if not is_below and (before is None or before.state not in TERMINAL):
                    found.append(HistoryEntry(event=DELETED, at_ms=fact.at_ms))
                is_below = True
            else:
                if fact.kind == "altered":
                    found.append(HistoryEntry(event=ALTERED, at_ms=fact.at_ms))
                waits = fact.is_below and before is not None and before.state == RecordState.ARCHIVING
                before = before if fact.kind == "kept" or waits else FRESH
                is_kept, is_below = fact.has_run, fact.is_below
        return found

    # --- inside

    def _take_large(self, data: bytes, at_ms: int | None) -> None:
        """As :meth:`_take`, for a large record: its lists are decoded only if they may name the offset."""
        if self._others.has_outcomes_alone(data):
            self._completed = 0
            return
        head = decode_head(data)
        if head.topic_id == self._key.topic_id and head.partition in (self._key.partition, None):
            self._take(decode_record(data), at_ms, is_large=True)
        elif head.type != "DataLost":
            self._completed = 0
            self._take_member(head.type, head)

    def _take_member(self, name: str, record: Any) -> None:
        """Note what a record of the class ``name``, or its head, says about a member: the newest statement counts,
        which is read first."""
        if name in ("PlanAcquired", "PlanKept"):
            self._holders.setdefault(record.plan_id, _Holder(record.member_id, record.acquired_ms))
        elif name == "MemberJoined":
            client = _Client(record.member_name or "", record.client_id or "", record.client_host or "")
            self._clients.setdefault(record.member_id, client)
        elif name in ("MemberProgressKept", "PlanStaged"):
            for found, value in ((self._queries, record.query_id), (self._query_names, record.query_name)):
                if value:
                    found.setdefault(record.member_id, value)

    def _take(self, record: Record, at_ms: int | None, *, is_large: bool = False) -> None:
        """Note what the record says about the offset and about members."""
        if isinstance(record, RunsChanged):
            if record.runs and self._is_here(record):
                self._take_runs(record, at_ms, is_large)
        elif not isinstance(record, DataLost):
            self._completed = 0
            self._take_member(type(record).__name__, record)
            self._take_other(record, at_ms)

    def _take_other(self, record: Record, at_ms: int | None) -> None:
        if isinstance(record, PlanCompleted):
            self._completed, self._behind = record.plan_id if record.records else 0, None
        elif isinstance(record, GroupDeleted):
            self._is_all = True
        elif isinstance(record, OffsetsAltered) and record.topic_id == self._key.topic_id:
            for index, start in record.starts:
                if index == self._key.partition:
                    is_below = start is not None and self._offset < start
                    self._facts.append(_Fact("altered", at_ms, is_below=is_below))
        elif isinstance(record, PartitionInitialized | PartitionDeleted | LogStartMoved) and self._is_here(record):
            self._take_partition(record, at_ms)

    def _is_here(self, record: RunsChanged | PartitionInitialized | PartitionDeleted | LogStartMoved) -> bool:
        return (record.topic_id, record.partition) == self._key

    def _take_runs(self, record: RunsChanged, at_ms: int | None, is_large: bool) -> None:
        """Note the run with the offset. One decision's runs of a share partition are in one record, or in several large
        records of ascending offsets."""
        (first, _, _), (_, last, _) = record.runs[0], record.runs[-1]
        if self._behind is not None and not (is_large and last < self._behind):
            self._completed = 0  # these runs are those of an earlier decision
        self._behind = first
        index = bisect_right(record.runs, self._offset, key=lambda entry: entry[0]) - 1
        if index >= 0 and record.runs[index][1] >= self._offset:
            self._facts.append(_Fact("run", at_ms, record.runs[index][2], self._completed))

    def _take_partition(
        self, record: PartitionInitialized | PartitionDeleted | LogStartMoved, at_ms: int | None
    ) -> None:
        if isinstance(record, LogStartMoved):
            if record.log_start > self._offset:
                self._facts.append(_Fact("log start", at_ms))
            return
        is_below = isinstance(record, PartitionInitialized) and self._offset < record.start_offset
        if record.end_offset is None:
            self._facts.append(_Fact("begun", is_below=is_below))
        else:
            self._facts.append(_Fact("kept", has_run=self._offset < record.end_offset, is_below=is_below))

    def _entry(self, event: str, before: Run | None, after: Run, at_ms: int | None) -> HistoryEntry:
        plan_id = after.plan_id if after.plan_id is not None or before is None else before.plan_id
        holder = self._holders.get(plan_id) if plan_id is not None else None
        member_id = "" if holder is None else holder.member_id
        client = self._clients.get(member_id, _Client())
        return HistoryEntry(
            event=event,
            at_ms=holder.acquired_ms if at_ms is None and event == ACQUIRED and holder is not None else at_ms,
            delivery_count=after.delivery_count,
            failures=after.failures,
            releases=after.releases,
            plan_id="" if plan_id is None else str(plan_id),
            member_id=member_id,
            query_id=self._queries.get(member_id, ""),
            client_id=client.member_name or self._query_names.get(member_id, "") or client.client_id,
            client_host=client.client_host,
            not_before_ms=after.not_before_ms,
            reason=after.reason,
        )


def _event(before: Run | None, after: Run, *, by_query: bool) -> str:
    """Returns what happened between the two states, in words; empty if people need not see it. ``before`` None: the
    state before is not known. ``by_query``: the completion of the record's batch changed the state."""
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
    if after.tries < before.tries or after.reason != before.reason:
        return BY_HAND
    if after.releases > before.releases:
        return "released"
    if before.state not in HELD:
        return ""
    if after.failures > before.failures:
        gave_back = before.state == RecordState.IN_PROGRESS and after.plan_id is None
        return "released" if gave_back else "failed: its lock was lost"
    if after.plan_id is None:
        decided = after.not_before_ms is not None  # a record that nobody decided is given back without a time
        return "deferred, or released without a try" if decided else "given back, which is no try"
    # A lock with a deadline is a ShareConsumer's, whose loss would count as a failure.
    return "its lock was lost before the work began" if before.deadline_ms is None else BY_HAND
