"""The runtime: decide → append → replay → reply, with one store transaction for all that waits (group commit).

Rule: nothing is visible before it is durable. A round decides every waiting request, replays the decisions into memory
that no caller sees, appends all of them at once, and only then answers. Requests that append nothing wait for the
append, too: an owner that was replaced must not answer from memory. If a group's append fails or its outcome is
unknown, the group is dropped and loaded again; if another owner has the group, it is left to that owner.

This module has no thread and no clock: any thread may ``submit``, one thread at a time calls ``step(now_ms)``."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from math import inf
from typing import Any, Protocol, TypeVar

from coordinator.config.group_bounds import GroupBounds
from coordinator.core import left_out
from coordinator.core.commands import Expire, ExtendDeadlines
from coordinator.core.commands.counts import Count, counts_of
from coordinator.core.decide import decide
from coordinator.core.due_times import DueTimes
from coordinator.core.failed_deliveries import given_up, removed
from coordinator.core.log_records import SessionEnded
from coordinator.core.look import is_look, look
from coordinator.core.looks.measures import GroupMeasures, MeasureGroup
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import UnreadableRecord, decode_record, encode_records
from coordinator.core.replay import replay
from coordinator.core.share_group import Heard, ShareGroup
from coordinator.protocol.admin_messages import ReleaseMember
from coordinator.protocol.errors import (
    BrokerNotReachable,
    CoordinatorNotAvailable,
    GroupTakenOver,
    InternalError,
    NotCoordinator,
    ShareGroupError,
    StateRecordUnreadable,
)
from coordinator.protocol.messages import LeaveGroup, Reply, Request
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.service.process.clock import now_s
from coordinator.service.runtime.snapshots import REST_AFTER_MS, Log, Pause, SnapshotInSteps, is_large
from coordinator.service.runtime.transaction import ORIGIN, Access, Round, Submission, Transaction, error_of, one
from coordinator.service.stores.store import (
    Append,
    Store,
    StoredRecord,
    StoreFenced,
    StoreOutcomeUnknown,
    StorePartlyFailed,
    StoreRefused,
    reading,
)

T = TypeVar("T")

MAX_ROUND = 1_000  # a round answers up to this many requests, which all wait for one append
RELOAD_AFTER_MS = 1_000  # a group whose append or load failed is loaded again after at least this time
RELOAD_AT_MOST_MS = 60_000  # ... and after at most this time, so that a store that works again is noticed
RELOAD_PER_TRY = 5
"""After a failed load the group is not loaded again for this many times the load's duration: others are served then."""
TOLD_FROM_MS = 1_000  # a shorter stall is neither logged nor followed by CLAIM_PAUSE_MS
CLAIM_PAUSE_MS = 2_000
"""No group is claimed for this many milliseconds after a stall. A join that waited during the stall may be from a
client that has found another coordinator since; a client that still waits asks again. Reading a large group is no such
stall: a new member's join reads the group first, and would then keep itself from claiming it each time."""
PAUSED = "this process was paused and accepts no groups yet; retry in two seconds"
SNAPSHOT_AFTER = 500  # a snapshot is due after this many appends, so that a load reads few records
SNAPSHOT_AGAIN_AT_MOST_MS = 3_600_000  # the pause after a failed snapshot doubles up to this time
NEVER_ASKED_MS = -REST_AFTER_MS
"""The time of the last request for a group that may be unloaded at once."""
MOST_NAMED = 20  # a log line about removed records names up to this many ranges
COLD_AFTER_MS = 300_000  # after this time without an append a snapshot lets pruning delete the log
_ENDS: dict[type, str] = {LeaveGroup: "it left", ReleaseMember: "released by an administrator"}
"""How a session ended, by the command that ended it. With any other command it timed out."""
_FAILURES = (StoreRefused, StoreOutcomeUnknown)
_ELSEWHERE = (GroupTakenOver, NotCoordinator)
"""Errors of a group that another process serves: only a new request loads it again."""

_log = logging.getLogger(__name__)


class Measures(Protocol):
    """Where the measures of a coordinator's groups go: counts, and the times of writes and loads."""

    def add(self, group_id: str, count: Count) -> None:
        """Adds a count of what became durable."""

    def writing(self) -> AbstractContextManager[None]:
        """Measures an append to the store; an exception means that it failed."""

    def loading(self) -> AbstractContextManager[None]:
        """Measures the load of a group; an exception means that it failed."""

    def taken(self, why: str) -> None:
        """Counts a group that this process took from another one."""

    def passed_on(self, result: str) -> None:
        """Counts a request that was passed on to another host, as ``answered`` or ``failed``."""

    def asked_by_other_host(self, request: str) -> None:
        """Counts a request of another host."""


class CoordinatorRuntime:
    """The groups of one store. ``on_change`` is called after each commit with the changed or loaded groups."""

    def __init__(
        self,
        store: Store,
        *,
        snapshot_after: int = SNAPSHOT_AFTER,
        cold_after_ms: int = COLD_AFTER_MS,
        on_change: Callable[[set[str]], None] = lambda groups: None,
        measures: Measures | None = None,
        clock: Callable[[], int] | None = None,
        bounds: GroupBounds | None = None,
        keeps_measures: bool = False,
    ) -> None:
        """``measures`` None: nothing is measured. ``clock`` returns the time that ``step`` is called with. It is read
        again after a load, which may take long; None: a load takes no time. ``bounds``: those of the groups' stored
        configs. ``keeps_measures``: ``rested`` keeps the measures of groups that were unloaded at rest. Only for a
        store whose groups no other process can take unnoticed."""
        self.store = store
        self._bounds, self._keeps_measures = bounds, keeps_measures
        self.rested: dict[str, GroupMeasures] = {}
        self._clock = clock
        self._once = LogOnce(_log)
        self._no_claims_until_ms = 0
        self._looked_ms = 0
        """How long reads for looks have taken since the last step."""
        self.snapshot_after = snapshot_after
        self.cold_after_ms = cold_after_ms
        self.on_change = on_change
        self._measures = measures
        self._writing = contextlib.nullcontext if measures is None else measures.writing
        self._loading = contextlib.nullcontext if measures is None else measures.loading
        self.groups: dict[str, ShareGroup] = {}
        self._waiting: deque[Submission] = deque()
        self._logs: dict[str, Log] = {}
        self._reload_ms: dict[str, int] = {}
        self._heard: dict[str, Heard] = {}
        self.handed_over: dict[str, str] = {}  # tenures by group; any thread may add one
        self._loads = ""
        self.is_reading, self.read_s = False, -inf
        self._snapshot_again: dict[str, Pause] = {}
        self._under_way: dict[str, SnapshotInSteps] = {}
        self._ends, self._upkeep = DueTimes(), DueTimes()
        self._moved: set[str] = set()  # groups whose due times may have changed

    def __repr__(self) -> str:
        return f"<CoordinatorRuntime {self.store.name} groups={len(self.groups)} waiting={len(self._waiting)}>"

    # --- the two ways in

    def submit(self, group_id: str, transaction: Transaction[T], access: Access = Access.SERVE) -> Future[T]:
        """Run the transaction in the next round. Once that round is durable, the future has the answer or the
        ShareGroupError. The calling thread's ORIGIN bounds it."""
        answer: Future[T] = Future()
        waits = Submission(
            group_id=group_id, transaction=transaction, answer=answer, access=access, origin=ORIGIN.get()
        )
        self._waiting.append(waits)
        return answer

    def step(self, now_ms: int, stalled_ms: int = 0, unread_ms: int = 0) -> int:
        """Run one round: the waiting requests, then the deadlines that are due. Returns the number of requests
        answered. ``stalled_ms``: for how long before now no request could be received; ``unread_ms``: for how long
        other hosts' requests were not read. Neither counts against a member."""
        round_ = Round(now_ms=now_ms)
        try:
            self._extend_deadlines(round_, stalled_ms, unread_ms)
            self._load_again(round_)
            self._decide_all(round_)
            self._finish(round_, self._commit(round_))
        except Exception:
            for group_id in round_.touched:  # nobody knows how much of the round is durable
                self._drop(group_id, now_ms)
            raise
        self._keep_up(round_)
        self._hand_over()
        return len(round_.outcomes)

    def serve(self, group: ShareGroup, now_ms: int, *, updates: int = 0) -> None:
        """Serve the group as it is, after about ``updates`` appends since its last snapshot."""
        self.groups[group.group_id] = group
        self._logs[group.group_id] = Log(updates=updates, snapshot_ms=now_ms, asked_ms=now_ms)
        self._moved.add(group.group_id)
        self.rested.pop(group.group_id, None)

    # --- looked at from outside

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting or self.handed_over)

    def next_deadline_ms(self) -> int | None:
        """The time at which ``step`` has work even without a request; None: never."""
        self._look_at_moved()
        deadlines = list(self._reload_ms.values())
        deadlines += [0] if self._under_way else []
        if (upkeep_ms := self._upkeep.earliest_ms()) is not None:
            deadlines.append(upkeep_ms)
        if (end_ms := self._ends.earliest_ms()) is not None:
            deadlines.append(end_ms)
        return min(deadlines, default=None)

    def holds(self, group_id: str) -> bool:
        """Whether the group is served, is being loaded, or is loaded again soon. Any thread may call it."""
        return group_id == self._loads or group_id in self.groups or group_id in self._reload_ms

    @property
    def held(self) -> frozenset[str]:
        """The groups for which :meth:`holds` is true. Any thread may ask."""
        return frozenset({*self.groups, *self._reload_ms, self._loads} - {""})

    def may_rest(self, now_ms: int, *, loaded: bool = False) -> bool:
        """As :meth:`PartitionedRuntime.may_rest`, for the groups of this store."""
        waits = self._waiting or (self._reload_ms and not loaded)
        return not waits and all(group.may_rest(now_ms) for group in self.groups.values())

    def has_dead_letters_due(self, group_id: str) -> bool:
        group = self.groups.get(group_id)
        return group is not None and any(p.archiving_count for p in list(group.partitions.values()))

    # --- a round

    def _decide_all(self, round_: Round) -> None:
        while self._waiting and len(round_.outcomes) < MAX_ROUND and not round_.broken:
            if self._must_wait(round_, self._waiting[0]):
                break  # it and all later requests wait for the next round, so that requests keep their order
            self._run(round_, self._waiting.popleft())
        self._expire(round_)

    def _must_wait(self, round_: Round, submission: Submission) -> bool:
        """Whether the request would load a group that this round has deleted: the store has it until the round ends."""
        group = self.groups.get(submission.group_id)
        claims = submission.access is Access.CLAIM and submission.group_id in round_.records
        return claims and group is not None and not group.exists

    def _extend_deadlines(self, round_: Round, stalled_ms: int, unread_ms: int) -> None:
        """Extend sessions and locks by time in which no member could be heard."""
        looked_ms, self._looked_ms = self._looked_ms, 0
        if stalled_ms - looked_ms > TOLD_FROM_MS:
            self._no_claims_until_ms = round_.now_ms + CLAIM_PAUSE_MS
        if stalled_ms > TOLD_FROM_MS:
            _log.warning(
                "the process was paused, or blocked on its store, for %d ms: all sessions are extended", stalled_ms
            )
        if stalled_ms := max(stalled_ms, unread_ms):
            for group in [g for g in self.groups.values() if g.unheard or g.next_deadline_ms() is not None]:
                self._by_itself(round_, group, ExtendDeadlines(stalled_ms=stalled_ms))

    def _now(self, now_ms: int) -> int:
        return now_ms if self._clock is None else self._clock()

    def _expire(self, round_: Round) -> None:
        self._look_at_moved()
        for group_id in self._ends.due(round_.begun_ms):
            if not round_.broken:
                self._by_itself(round_, self.groups[group_id], Expire())

    def _look_at_moved(self) -> None:
        """Update the due times of the groups that may have changed."""
        for group_id in self._moved:
            group, log = self.groups.get(group_id), self._logs.get(group_id)
            self._ends.set(group_id, None if group is None else group.next_deadline_ms())
            self._upkeep.set(group_id, None if log is None else log.upkeep_ms(self.cold_after_ms))
        self._moved.clear()

    def _by_itself(self, round_: Round, group: ShareGroup, command: Request[Any]) -> None:
        answer: Future[Any] = Future()
        self._run(round_, Submission(group_id=group.group_id, transaction=one(command), answer=answer))
        round_.touched.add(group.group_id)
        if round_.outcomes[-1][2] is not None:
            # Avoids a loop: after its next load the group has a session timeout's time.
            self._drop(group.group_id, round_.now_ms + RELOAD_AFTER_MS)
            self._heard.pop(group.group_id, None)

    def _run(self, round_: Round, submission: Submission) -> None:
        outcome, error = None, None
        group_id = submission.group_id
        self._moved.add(group_id)
        if submission.answer.cancelled():
            return  # no caller waits for this request any more
        try:
            if submission.origin is not None:
                submission.origin.check(group_id, self.store.tenure(group_id), round_.now_ms)
            group = self._peeked(group_id, round_) if submission.access is Access.PEEK else None
            outcome = self._play(round_, group or self._group(submission, round_), submission.transaction)
        except ShareGroupError as failed:
            error = failed
        except _FAILURES as failed:
            error = CoordinatorNotAvailable(group_id=group_id, reason=f"its state can't be loaded: {failed}")
        except Exception as failed:  # noqa: BLE001 - a bug in one request must not fail the other requests
            _log.exception("request failed: group=%s", group_id)
            error = InternalError(what=f"a request of share group {group_id}", reason=type(failed).__name__)
        round_.outcomes.append((submission, outcome, error))

    def _play(self, round_: Round, group: ShareGroup, transaction: Transaction[T]) -> T:
        steps = transaction(group)
        try:
            command = next(steps)
            while True:
                try:
                    reply = self._decide(round_, group, command)
                except ShareGroupError as error:
                    command = steps.throw(error)
                else:
                    command = steps.send(reply)
        except StopIteration as stop:
            answer: T = stop.value
            return answer

    def _decide(self, round_: Round, group: ShareGroup, command: Request[Reply]) -> Reply:
        if is_look(command):
            return look(group, command, round_.now_ms)
        # A load in this round may have taken long; that time counts against no member.
        decision = decide(group, command, round_.begun_ms if isinstance(command, Expire) else round_.now_ms)
        if durable := [record for record in decision.records if record.durable]:
            if self.groups.get(group.group_id) is not group:
                raise InternalError(what=f"a look at share group {group.group_id}", reason="it would change the group")
            round_.records.setdefault(group.group_id, []).extend(durable)
            round_.touched.add(group.group_id)
        round_.given_up += [(group.group_id, each) for each in given_up(group, durable)]
        if gone := removed(group, durable):
            round_.removed.append((group.group_id, gone))
        if isinstance(command, Expire):
            round_.expired.setdefault(group.group_id, set()).update(group.locks.due(round_.begun_ms))
        how = _ENDS.get(type(command), "it timed out")
        ended = [record.member_id for record in decision.records if isinstance(record, SessionEnded)]
        round_.ended += [(group.group_id, group.members[member_id], how) for member_id in ended]
        if self._measures is not None:
            round_.counts += [(group.group_id, c) for c in counts_of(group, command, decision, round_.now_ms)]
        try:
            for record in decision.records:
                replay(group, record)
        except BaseException:
            # The memory is half changed, so append nothing of this round, and load its groups again.
            round_.broken = f"a record of {type(command).__name__} could not be replayed"
            round_.touched.add(group.group_id)
            raise
        return decision.reply

    def _commit(self, round_: Round) -> dict[str, Exception]:
        """Make the round durable. Returns the groups for which that failed, with the error."""
        if round_.broken:
            failed: dict[str, Exception] = dict.fromkeys(round_.touched, StoreRefused(round_.broken))
            failed |= {submission.group_id: StoreRefused(round_.broken) for submission, _, _ in round_.outcomes}
        else:
            failed = self._append(round_)
        for group_id, error in failed.items():
            if isinstance(error, StoreFenced):
                self._forget(group_id)
            elif group_id in round_.touched or not round_.broken:
                self._drop(group_id, round_.now_ms, round_.expired.get(group_id, ()))
        return failed

    def _append(self, round_: Round) -> dict[str, Exception]:
        group_ids = list(round_.records)
        for group_id in {submission.group_id for submission, _, _ in round_.outcomes} - set(group_ids):
            group = self.groups.get(group_id)
            if group is not None and group.exists and self.store.must_prove(group_id):
                group_ids.append(group_id)
        if not group_ids:
            return {}
        try:
            decided = {g: round_.records.get(g, ()) for g in group_ids}
            appends = {g: Append(self.groups[g], each, encode_records(each)) for g, each in decided.items()}
            with self._writing():
                self.store.append(appends, round_.now_ms)
            failed: dict[str, Exception] = {}
        except StorePartlyFailed as partly:
            _log.warning("append failed: %s", partly)
            failed = dict(partly.failed)
        except Exception as error:  # noqa: BLE001 - the outcome of an append that a store did not confirm is unknown
            _log.warning("append failed: %s", error)
            return dict.fromkeys(group_ids, error)
        for group_id in round_.records.keys() - failed.keys():
            if group_id in self._under_way:
                self._under_way[group_id].appended(appends[group_id].data)
            log = self._logs[group_id]
            log.updates, log.size_bytes = log.updates + 1, log.size_bytes + sum(map(len, appends[group_id].data))
            self._moved.add(group_id)
        return failed

    def _finish(self, round_: Round, failed: Mapping[str, Exception]) -> None:
        self._report(round_, failed)
        for group_id in round_.records.keys() - failed.keys():
            if not self.groups[group_id].exists:
                self._snapshot(group_id, round_.now_ms)  # the group was deleted, so nothing of its log is needed
        for submission, outcome, error in round_.outcomes:
            reason = failed.get(submission.group_id)
            if reason is not None and not isinstance(error, InternalError):
                error = error_of(submission, reason)
            if not submission.answer.set_running_or_notify_cancel():
                continue
            if error is not None:
                submission.answer.set_exception(error)
            else:
                submission.answer.set_result(outcome)
        if round_.touched:
            self.on_change(round_.touched)
        for group_id in {submission.group_id for submission, _, _ in round_.outcomes}:
            if group_id in self.groups and not self.groups[group_id].exists:
                self._forget(group_id)  # a request looked for it, and it does not exist

    def _report(self, round_: Round, failed: Mapping[str, Exception]) -> None:
        """Log which sessions ended, and which records were given up, or removed by Kafka. Count what became durable."""
        for group_id, ranges in round_.removed:
            if group_id not in failed:
                named = ", ".join(map(str, left_out.in_reply(ranges[:MOST_NAMED])))
                _log.warning(
                    "records removed before they were done: group=%s count=%d %s, by retention, a deletion of records, "
                    "or the deletion of the topic",
                    group_id,
                    left_out.count(ranges),
                    named,
                )
                for lost in ranges:
                    labels = (lost.topic, str(lost.partition))
                    round_.counts.append((group_id, Count("removed", labels, lost.count)))
        for group_id, member, how in round_.ended:
            if group_id not in failed:
                who = (group_id, member.member_id, member.client)
                _log.info("session ended: group=%s member=%s client=(%s): %s", *who, how)
        for group_id, each in round_.given_up:
            if group_id not in failed:
                what = (each.count, each.disposition, each.sample)
                _log.warning("records given up: group=%s count=%d %s %s", group_id, *what)
                round_.counts.append((group_id, Count("given_up", (each.disposition,), each.count)))
        if self._measures is not None:
            for group_id, count in round_.counts:
                if group_id not in failed:
                    self._measures.add(group_id, count)

    # --- groups and the store

    def _group(self, submission: Submission, round_: Round) -> ShareGroup:
        group_id = submission.group_id
        group, claims = self.groups.get(group_id), submission.access is Access.CLAIM
        if group is None or (claims and not group.exists):
            if claims and round_.now_ms < self._no_claims_until_ms:
                raise CoordinatorNotAvailable(group_id=group_id, reason=PAUSED)
            with round_.asking_brokers():
                if claims:
                    self.store.claim(group_id)
                self._loads = group_id
                try:
                    with self._loading(), self._reading():
                        group, count = self._replayed(group_id, self.store.load(group_id))
                finally:
                    self._loads = ""
            round_.now_ms = self._now(round_.now_ms)  # the time of all members begins after the load
            heard = self._heard.pop(group_id, None)
            group.loaded(round_.now_ms, heard if self.store.kept(group_id) else None)
            self._reload_ms.pop(group_id, None)
            # The number of appends is a guess; a wrong guess only moves a snapshot.
            self.serve(group, round_.now_ms, updates=count // 4)
            round_.touched.add(group_id)
            if submission.access is Access.UPKEEP:
                self._logs[group_id].asked_ms = NEVER_ASKED_MS
        if submission.access not in (Access.PEEK, Access.UPKEEP):  # else a look would keep the group loaded for ever
            self._logs[group_id].asked_ms = round_.now_ms
        return group

    def _peeked(self, group_id: str, round_: Round) -> ShareGroup | None:
        """A read-only copy of a group that another process may own; None if it must be loaded for writing."""
        if group_id in self.groups:
            return None
        begun_ms = self._now(round_.now_ms)
        try:
            with round_.asking_brokers(), self._reading():
                records = self.store.peek(group_id)
                return None if records is None else self._replayed(group_id, records)[0]
        finally:
            self._looked_ms += self._now(round_.now_ms) - begun_ms

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """A context in which a group's state is read. A read may take long; a store from which no record comes in time
        raises. ``read_s`` is the end of the last read."""
        self.is_reading = True
        try:
            yield
        finally:
            self.is_reading, self.read_s = False, now_s()

    def _replayed(self, group_id: str, records: Iterable[StoredRecord]) -> tuple[ShareGroup, int]:
        group, count = ShareGroup(group_id, self._bounds), 0
        with reading(records):
            for sequence, data in records:
                if data is None:
                    group, count = ShareGroup(group_id, self._bounds), 0
                    continue
                try:
                    replay(group, decode_record(data, group_id))
                except (UnreadableRecord, LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
                    reason = error.fields.get("reason") if isinstance(error, ShareGroupError) else _in_words(error)
                    raise StateRecordUnreadable(
                        sequence=sequence, group_id=group_id, path=self.store.name, reason=reason
                    ) from error
                count += 1
        return group, count

    def _drop(self, group_id: str, now_ms: int, expired: Iterable[int] = ()) -> None:
        """Forget the group's memory, which may differ from the log, and load the group again. Only when its members
        were last heard is kept: no log has that. ``expired`` as in :meth:`ShareGroup.heard`."""
        self._reload_ms.setdefault(group_id, now_ms)  # set first: other hosts may take a group that is not held
        if (group := self.groups.get(group_id)) is not None:
            self._heard[group_id] = group.heard(now_ms, expired)
        self._forget(group_id)

    def _forget(self, group_id: str) -> None:
        self.groups.pop(group_id, None)
        self._logs.pop(group_id, None)
        self._under_way.pop(group_id, None)
        self._moved.add(group_id)
        try:
            self.store.release(group_id)
        except Exception:  # noqa: BLE001 - the group is forgotten even if the store can't release it
            _log.exception("the store did not release group %s", group_id)

    def _hand_over(self) -> None:
        """Give up the groups that other hosts take. Their decisions are durable, or the groups were dropped."""
        while self.handed_over:
            group_id, tenure = self.handed_over.popitem()
            if tenure and self.store.tenure(group_id) == tenure:
                _log.info("group handed over: group=%s, which only members on other hosts have asked for", group_id)
                self.store.give_up(group_id)
                self._forget(group_id)

    def _load_again(self, round_: Round) -> None:
        """Load dropped groups again without a request, because their deadlines continue."""
        for group_id in [g for g, due_ms in self._reload_ms.items() if due_ms <= round_.now_ms]:
            begun_ms = self._now(round_.now_ms)
            try:
                self._group(Submission(group_id=group_id, transaction=one(Expire()), answer=Future()), round_)
            except _ELSEWHERE as error:
                _log.warning("group left to another coordinator: group=%s %s", group_id, error)
                del self._reload_ms[group_id]
                self._heard.pop(group_id, None)
            except Exception as error:  # noqa: BLE001 - the state of one group must not fail the other groups
                if not isinstance(error, BrokerNotReachable):  # the cluster logs one line for all groups
                    self._once.warn(f"loading {group_id}", f"loading failed: group={group_id} {_in_words(error)}")
                round_.now_ms = self._now(round_.now_ms)
                took_ms = RELOAD_PER_TRY * (round_.now_ms - begun_ms)
                self._reload_ms[group_id] = round_.now_ms + min(max(took_ms, RELOAD_AFTER_MS), RELOAD_AT_MOST_MS)

    # --- upkeep

    def _keep_up(self, round_: Round) -> None:
        """Write snapshots that are due, a step of each that is under way, and unload groups at rest."""
        now_ms, holding_back = round_.now_ms, self.store.holding_back
        self._look_at_moved()
        looked_at = {submission.group_id for submission, _, _ in round_.outcomes} | round_.touched
        looked_at.update(self._under_way, self._snapshot_again, holding_back, self._upkeep.due(now_ms))
        for group_id, under_way in list(self._under_way.items()):
            self._write_snapshot(group_id, now_ms, under_way.write_step)
        for group_id in sorted(looked_at & self._logs.keys()):
            self._keep_up_log(group_id, now_ms, must=group_id in holding_back)
            self._moved.add(group_id)

    def _keep_up_log(self, group_id: str, now_ms: int, *, must: bool) -> None:
        log, group = self._logs[group_id], self.groups[group_id]
        is_due = now_ms >= log.upkeep_ms(self.cold_after_ms)
        is_wanted = must or log.is_long(group, self.snapshot_after) or (log.updates and is_due)
        is_whole = group_id not in self._under_way
        if is_wanted and is_whole and now_ms >= self._snapshot_again.get(group_id, Pause()).until_ms:
            self._snapshot(group_id, now_ms)
        elif is_due and is_whole and now_ms >= log.asked_ms + REST_AFTER_MS and group.may_rest(now_ms):
            self._forget(group_id)
            if self._keeps_measures and group.exists:
                self.rested[group_id] = look(group, MeasureGroup(group_id=group_id), now_ms)
        elif is_due:
            log.snapshot_ms = log.busy_ms = now_ms  # nothing to do: check again when the next snapshot would be due

    def _snapshot(self, group_id: str, now_ms: int) -> None:
        log, group = self._logs[group_id], self.groups[group_id]
        log.updates, log.size_bytes, log.snapshot_ms = 0, 0, now_ms
        if is_large(group):
            self._under_way[group_id] = SnapshotInSteps(self.store, group, now_ms)
        else:
            self._write_snapshot(group_id, now_ms, lambda: self._write_at_once(group, now_ms))

    def _write_at_once(self, group: ShareGroup, now_ms: int) -> bool:
        self.store.replace_with_snapshot(group, encode_records(snapshot_of(group)), now_ms)
        return True

    def _write_snapshot(self, group_id: str, now_ms: int, write: Callable[[], bool]) -> None:
        """Write a snapshot of the group, or a step of it; ``write`` returns whether the snapshot is whole."""
        try:
            if write():
                self._snapshot_again.pop(group_id, None)
                self._under_way.pop(group_id, None)
            return
        except StoreFenced as fenced:
            _log.warning("group left to another coordinator: group=%s %s", group_id, fenced)
            self._forget(group_id)
        except StoreOutcomeUnknown as error:
            self._put_off(group_id)
            _log.warning("the snapshot may be missing, so the group is loaded again: group=%s %s", group_id, error)
            self._drop(group_id, now_ms)
        except StoreRefused as error:
            _log.warning("snapshot failed, the log stays as it is: group=%s %s", group_id, error)
            self._under_way.pop(group_id, None)

    def _put_off(self, group_id: str) -> None:
        """Double the pause before the group's next snapshot. Meanwhile the log grows. Without the pause, a group that
        is loaded again after each failed snapshot would never be served."""
        before = self._snapshot_again.get(group_id, Pause())
        pause_ms = min(2 * before.pause_ms, SNAPSHOT_AGAIN_AT_MOST_MS)
        self._snapshot_again[group_id] = Pause(pause_ms, self._now(self._logs[group_id].snapshot_ms) + pause_ms)


def _in_words(error: Exception) -> str:
    """The error's class and text; its ``repr`` may hold the bytes that could not be read."""
    return f"{type(error).__name__}: {error}"
