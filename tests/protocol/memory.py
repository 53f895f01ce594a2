"""A group's state as a value: records in an order that does not depend on who came first; and the same, later."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from coordinator.core.log_records import (
    ConfigsAltered,
    DataLost,
    GroupCreated,
    GroupProgressKept,
    MemberJoined,
    MemberProgressKept,
    PartitionInitialized,
    PlanKept,
    PlanStaged,
    QueryEnded,
    Record,
    RunsChanged,
    SessionRenewed,
    TopicDeleted,
    TopicRegistered,
)
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import encode_record
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from tests.protocol.setting import NOW_MS, SESSION_MS

ORDER: tuple[type, ...] = (
    GroupCreated,
    ConfigsAltered,
    TopicRegistered,
    TopicDeleted,
    MemberJoined,
    PlanKept,
    PlanStaged,
    GroupProgressKept,
    MemberProgressKept,
    PartitionInitialized,
    RunsChanged,
    DataLost,
    SessionRenewed,
)
RANKS = {kind: rank for rank, kind in enumerate(ORDER)}
EXTENSION = "group.share.in.progress.max.lock.extension.ms"
LONG_AGO_MS = NOW_MS - 20 * SESSION_MS


def ordered(records: Iterable[Record]) -> list[tuple[bytes, Record]]:
    """A snapshot with each record's bytes, in the order in which it can be replayed; of a kind, by their bytes (plan
    numbers are below 128, so that they are in order too). How queries ended is left out: nothing depends on it."""
    records = [_without_ratio(record) for record in records if not isinstance(record, QueryEnded)]
    pairs = [(encode_record(record), record) for record in records]
    return sorted(pairs, key=lambda pair: (RANKS[type(pair[1])], pair[0]))


def _without_ratio(record: Record) -> Record:
    """No query of these worlds is stopped for what it rejects, so worlds that differ in the count of it are one."""
    if isinstance(record, GroupProgressKept):
        return GroupProgressKept(last_plan_id=record.last_plan_id, dropped=record.dropped)
    if isinstance(record, MemberProgressKept):
        return msgspec.structs.replace(record, query_id="")
    return record


def of_process(group: ShareGroup) -> list[Record]:
    """All that a process has in memory: a snapshot, and the sessions that no snapshot has."""
    sessions = [
        SessionRenewed(member_id=member.member_id, deadline_ms=member.session_deadline_ms)
        for member in group.members.values()
        if member.session_deadline_ms is not None
    ]
    return [*snapshot_of(group), *sessions]


def later(records: Iterable[Record], ms: int, silent: frozenset[str] = frozenset()) -> list[Record]:
    """The same after ``ms``, in which only the silent members sent no heartbeats: what was to come is nearer."""
    records = list(records)
    signals = any(isinstance(record, ConfigsAltered) and EXTENSION in record.configs for record in records)
    return [_later(record, ms, silent, signals=signals) for record in records]


def _later(record: Record, ms: int, silent: frozenset[str], *, signals: bool) -> Record:
    if isinstance(record, SessionRenewed):
        since_ms = ms if record.member_id in silent else 0
        return SessionRenewed(member_id=record.member_id, deadline_ms=NOW_MS + SESSION_MS - since_ms)
    if isinstance(record, RunsChanged):
        runs = tuple((first, last, _earlier(run, ms)) for first, last, run in record.runs)
        return RunsChanged(topic_id=record.topic_id, partition=record.partition, runs=runs)
    if isinstance(record, PlanKept) and signals:  # elsewhere nothing depends on when a plan was acquired
        return msgspec.structs.replace(record, acquired_ms=max(LONG_AGO_MS, record.acquired_ms - ms))
    return record


def _earlier(run: Run, ms: int) -> Run:
    """0 and None are no times; what is long ago stays so."""
    names = ("deadline_ms", "not_before_ms", "failed_alone_ms", "last_tried_ms")
    times = {name: max(LONG_AGO_MS, at - ms) for name in names if (at := getattr(run, name))}
    run = run._replace(**times) if times else run
    if run.progress is None:
        return run
    first_ms, last_ms = (max(LONG_AGO_MS, at - ms) for at in run.progress[:2])
    return run._replace(progress=run.progress._replace(first_ms=first_ms, last_ms=last_ms))
