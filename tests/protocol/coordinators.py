"""Coordinator processes as values: a request at a process comes to another memory, another log, and an answer.

What runs is the real runtime on the real transactions and core, one round a request, on a store of one log with faults.
A memory is a snapshot of the group with its sessions, interned as a number; so is a log: after each append it is what a
snapshot would make of it. The same request at the same memory comes to the same, so it is served once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from coordinator.config.group_keys import IN_FLIGHT
from coordinator.config.resolved import GroupConfig
from coordinator.core.log_records import (
    ConfigsAltered,
    MemberJoined,
    PartitionInitialized,
    PlanKept,
    Record,
    SessionRenewed,
)
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import decode_record, encode_record
from coordinator.core.record_state import HELD
from coordinator.core.replay import replay
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import DescribeGroup
from coordinator.service.runtime import transactions
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.transaction import ORIGIN, FromAnotherHost, Transaction
from coordinator.service.stores.store import Append, SoleOwner, StoredRecord, StoreOutcomeUnknown, StoreRefused
from tests.protocol.happened import Flow, Happened, runs_by_record, what_happened
from tests.protocol.memory import later, of_process, ordered
from tests.protocol.requests import GROUP, TOPIC_IDS, Request, number_of_log, transaction_of, transaction_of_a_new_group
from tests.protocol.setting import EXTENSION_MS, GRACE_MS, LOCK_MS, NOW_MS, SESSION_MS, STALE_MS, TTL_MS, Setting
from tests.protocol.work import Receipt
from tests.support.faulty_store import Died


class Served(NamedTuple):
    """The result of a request. ``memory`` 0: the process has no state any more. No answer and no error: the process
    died before."""

    memory: int
    log: int
    answer: Any
    error: str
    happened: Happened


class OneLog(SoleOwner):
    """The group's log as one process of its owner has it. ``fenced``: another process owns it by now."""

    name = "one log"

    def __init__(self, records: Iterable[Record], *, fenced: bool = False, fault: str = "", tenure: str = "") -> None:
        self.records = [encode_record(record) for record in records]
        self.appended: list[bytes] = []
        self.fenced, self.fault, self._tenure = fenced, fault, tenure

    def tenure(self, group_id: str) -> str:
        return self._tenure

    def load(self, group_id: str) -> Iterable[StoredRecord]:
        if self.fenced:
            raise StoreRefused("another process has taken the group")
        return [StoredRecord(i, data) for i, data in enumerate([*self.records, *self.appended])]

    def append(self, appends: Mapping[str, Append], now_ms: int) -> None:
        if self.fenced:
            raise StoreRefused("another process has taken the group")
        appended = [data for each in appends.values() for data in each.data]
        if not appended:
            return
        fault, self.fault = self.fault, ""
        if fault == "die before the append":
            raise Died
        if fault == "refuse":
            raise StoreRefused("append was refused")
        self.appended += appended
        if fault == "doubt, written":
            raise StoreOutcomeUnknown("append is in doubt")
        if fault == "die after the append":
            raise Died


class Coordinators:
    """Every memory and log that was met, and what came of every request at them."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._records: list[tuple[Record, ...]] = [()]
        self._numbers: dict[tuple[bytes, ...], int] = {(): 0}
        self._sessions: dict[int, tuple[str, ...]] = {}
        self._served: dict[Any, Served] = {}
        self._groups: dict[int, ShareGroup] = {}
        """The groups after a round, by the round's number: whoever goes on from there first need not build one."""

    def __repr__(self) -> str:
        return f"<Coordinators memories={len(self._records)} served={len(self._served)}>"

    # --- asked by the world

    def begin(self) -> Served:
        """A new group with one partition, and the process that made it."""
        configs = {
            "share.session.timeout.ms": str(SESSION_MS),
            "share.record.lock.duration.ms": str(LOCK_MS),
            "share.delivery.count.limit": str(self.setting.limit),
            "share.isolation.base": str(self.setting.base),
            "share.acknowledgement.mode": self.setting.acknowledgement_mode,
            "share.release.backoff.ms": "0",
            **({"share.order": "partition"} if self.setting.ordered else {}),
            **({IN_FLIGHT: str(self.setting.in_flight)} if self.setting.in_flight else {}),
            **({"share.record.ttl.ms": str(TTL_MS)} if self.setting.ttl else {}),
        }
        if self.setting.signals:
            configs |= {
                "group.share.in.progress.staleness.threshold.ms": str(STALE_MS),
                "group.share.in.progress.max.lock.extension.ms": str(EXTENSION_MS),
                "group.share.in.progress.rebalance.grace.ms": str(GRACE_MS),
            }
        return self._round(0, 0, transaction_of_a_new_group(configs, self.setting.partitions), Round())

    def serve(
        self,
        memory: int,
        log: int,
        request: Request,
        *,
        fenced: bool = False,
        fault: str = "",
        tenure: str = "",
        origin: FromAnotherHost | None = None,
    ) -> Served:
        """The request at the process with this memory, and this tenure, if it came from another host (``origin``)."""
        key = (memory, log, request, fenced, fault, tenure, origin)
        if key not in self._served:
            missing = (1 << request.topic * self.setting.records + request.log_start) - 1
            at = Round(fenced=fenced, fault=fault, missing=missing, tenure=tenure, origin=origin)
            self._served[key] = self._round(memory, log, transaction_of(request, self.setting), at)
        return self._served[key]

    def load(self, log: int) -> Served:
        """Another process has loaded the log."""
        if log not in self._served:
            self._served[log] = self._round(0, log, transactions.single_command(DescribeGroup(group_id=GROUP)), Round())
        return self._served[log]

    def time_passes(self, memory: int, log: int, ms: int, silent: frozenset[str]) -> Served:
        """So much time, in which all members but the silent ones send heartbeats; what is due then happens."""
        key = (memory, log, ms, silent)
        if key not in self._served:
            moved, log = self._intern(later(self._records[memory], ms, silent)), self.older(log, ms)
            self._served[key] = self._round(moved, log, None, Round())
        return self._served[key]

    def stands_still(self, memory: int, log: int, ms: int) -> Served:
        """So much time, in which the process heard nobody."""
        key = (memory, log, ms)
        if key not in self._served:
            silent = frozenset(self.sessions(memory))
            moved, log = self._intern(later(self._records[memory], ms, silent)), self.older(log, ms)
            self._served[key] = self._round(moved, log, None, Round(stalled_ms=ms))
        return self._served[key]

    def older(self, number: int, ms: int) -> int:
        """A log, or the memory of a process that does nothing while time passes."""
        return self._intern(later(self._records[number], ms))

    def sessions(self, memory: int) -> tuple[str, ...]:
        """Members with a live session."""
        if memory not in self._sessions:
            found = (record.member_id for record in self._records[memory] if isinstance(record, SessionRenewed))
            self._sessions[memory] = tuple(found)
        return self._sessions[memory]

    def runs(self, memory: int) -> dict[int, Run]:
        """The run of each record."""
        return runs_by_record(self._records[memory], self.setting.records)

    def held(self, memory: int, offset: int) -> Receipt:
        """The holder of the record, and at which delivery count."""
        run = self.runs(memory).get(offset)
        if run is None or run.state not in HELD:
            return Receipt()
        plans = (record for record in self._records[memory] if isinstance(record, PlanKept))
        member = next(plan.member_id for plan in plans if plan.plan_id == run.plan_id)
        return Receipt(member, run.delivery_count, run.progress is not None)

    def partitions(self, memory: int) -> dict[int, PartitionInitialized]:
        """The start of each share partition in a snapshot, and the start of its log, by the log's number."""
        found = (record for record in self._records[memory] if isinstance(record, PartitionInitialized))
        return {number_of_log(record.topic_id, record.partition): record for record in found}

    def mode_of(self, memory: int, plan_id: int) -> str:
        """The acknowledgement mode in which the plan was started or reclaimed; empty for one that is not kept."""
        kept = (record for record in self._records[memory] if isinstance(record, PlanKept))
        return next(("explicit" if plan.explicit else "implicit" for plan in kept if plan.plan_id == plan_id), "")

    def config(self, memory: int) -> GroupConfig:
        """The group's value, as in a snapshot."""
        altered = (record for record in self._records[memory] if isinstance(record, ConfigsAltered))
        return GroupConfig.parse(next((record.configs for record in altered), {}))

    # --- inside

    def _round(self, memory: int, log: int, transaction: Transaction[Any] | None, at: Round) -> Served:
        """One round of the runtime, and, if that dropped the group, the next, which loads it again."""
        store = OneLog(self._records[log], fenced=at.fenced, fault=at.fault, tenure=at.tenure)
        runtime = CoordinatorRuntime(store, snapshot_after=1_000_000)  # type: ignore[arg-type]
        if memory:
            runtime.serve(self._group(memory), NOW_MS)
        ORIGIN.set(at.origin)
        asked = None if transaction is None else runtime.submit(GROUP, transaction)
        died = False
        try:
            runtime.step(NOW_MS, at.stalled_ms)
            runtime.step(NOW_MS)
        except Died:
            died = True
        try:
            after = self._log_of(log, store)
        except (AssertionError, LookupError, ValueError) as error:
            return Served(memory, log, None, "", Happened(complaint=f"what was appended can't be loaded: {error!r}"))
        left = 0
        if GROUP in runtime.groups and not died:
            totals, still_there = runtime.groups[GROUP].totals()
            if totals.left != still_there:
                lost = totals.left - still_there
                return Served(memory, log, None, "", Happened(complaint=f"{lost} offsets are not accounted for"))
            left = self._intern(of_process(runtime.groups[GROUP]))
            self._groups[left] = runtime.groups[GROUP]
        answer, error = None, ""
        if asked is not None and asked.done():
            failed = asked.exception()
            answer, error = (None, type(failed).__name__) if failed is not None else (asked.result(), "")
        return Served(left, after, answer, error, self._happened(log, store, at, time_passed=transaction is None))

    def _happened(self, log: int, store: OneLog, at: Round, *, time_passed: bool) -> Happened:
        if not log or not store.appended:
            return Happened()
        records, config = self.setting.records, self.config(log)
        missing, rejectable = at.missing, 0
        partitions = self.partitions(log)
        for number, partition in partitions.items():
            missing |= (1 << number * records + partition.log_start) - (1 << number * records)
        for topic in range(len(TOPIC_IDS)):
            rejectable |= sum(1 << topic * records + o for o in range(records) if "reject" in self.setting.may_say(o))
        return what_happened(
            self.runs(log),
            [decode_record(data) for data in store.appended],
            time_passed=time_passed,
            missing=missing,
            ordered=self.setting.ordered,
            limit=config.share_delivery_count_limit,
            base=config.share_isolation_base,
            of_a_log=records,
            ends={n: p.start_offset if p.end_offset is None else p.end_offset for n, p in partitions.items()},
            has_queries=any(isinstance(r, MemberJoined) and r.query for r in self._records[log]),
            rejectable=rejectable,
            may_release=self.setting.may_release,
            flow=Flow(bool(config.share_paused_topics), config.share_max_in_flight_records),
        )

    def _group(self, number: int) -> ShareGroup:
        """One that the caller may change."""
        group = self._groups.pop(number, None)
        if group is None:
            group = ShareGroup(GROUP)
            for record in self._records[number]:
                replay(group, record)
        return group

    def _log_of(self, log: int, store: OneLog) -> int:
        if not store.appended:
            return log
        group = self._group(log)
        for data in store.appended:
            replay(group, decode_record(data))
        after = self._intern(snapshot_of(group))
        self._groups[after] = group
        return after

    def _intern(self, records: Iterable[Record]) -> int:
        """Equal states have equal numbers."""
        pairs = ordered(records)
        key = tuple(data for data, _ in pairs)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._records)
            self._records.append(tuple(record for _, record in pairs))
        return number


class Round(NamedTuple):
    """The faults of the process and its store in a round, and the records that the broker did not have any more."""

    fenced: bool = False
    fault: str = ""
    missing: int = 0
    stalled_ms: int = 0
    tenure: str = ""
    origin: FromAnotherHost | None = None
