"""The shard: decide → append → replay → reply, with one store transaction for all that waits (group commit).

Rule: nothing is visible before it is durable. A round decides every waiting request and replays what it decided into
memory that nobody else sees, appends all of it at once, and only then answers, those that append nothing too. When the
append fails or is in doubt, the touched groups are dropped and loaded from the store again.

No thread and no clock in here: ``submit`` from anywhere, ``step(now_ms)`` from one place at a time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

from coordinator.commands import Expire
from coordinator.decide import decide
from coordinator.errors import CoordinatorNotAvailable, InternalError, ShareGroupError, StateRecordUnreadable
from coordinator.records import Record, UnreadableRecord, decode_record, encode_record
from coordinator.service.store import Store, StoreDoubtful, StoreRefused
from coordinator.share_group import ShareGroup

T = TypeVar("T")
Steps: TypeAlias = Generator[Any, Any, T]
Script: TypeAlias = Callable[[ShareGroup], Steps[T]]
"""A request at work: it is given its group to look at, yields commands, gets back their replies (or their errors,
raised), and returns the answer. All of it happens in one round."""

MAX_ROUND = 1_000
RELOAD_AFTER_MS = 1_000
SNAPSHOT_AFTER = 500
_FAILURES = (StoreRefused, StoreDoubtful)

_log = logging.getLogger(__name__)


def one(command: Any) -> Script[Any]:
    """The script that is a single command."""

    def script(group: ShareGroup) -> Steps[Any]:
        return (yield command)

    return script


@dataclass(frozen=True, kw_only=True, slots=True)
class _Submission:
    group_id: str
    script: Script[Any]
    answer: Future[Any]


@dataclass(kw_only=True, slots=True)
class _Round:
    now_ms: int
    appends: dict[str, list[bytes]] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    outcomes: list[tuple[_Submission, Any, BaseException | None]] = field(default_factory=list)
    broken: str = ""


class Shard:
    """The groups of one store. ``on_change`` is told, after the commit, which groups something happened to."""

    def __init__(
        self,
        store: Store,
        *,
        snapshot_after: int = SNAPSHOT_AFTER,
        on_change: Callable[[set[str]], None] = lambda groups: None,
    ) -> None:
        self.store = store
        self.snapshot_after = snapshot_after
        self.on_change = on_change
        self.groups: dict[str, ShareGroup] = {}
        self._waiting: deque[_Submission] = deque()
        self._updates: dict[str, int] = {}
        self._reload_ms: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Shard {self.store.name} groups={len(self.groups)} waiting={len(self._waiting)}>"

    # --- the two ways in

    def submit(self, group_id: str, script: Script[T]) -> Future[T]:
        """Let the script run in the next round; its answer, or its ShareGroupError, comes once that is durable."""
        answer: Future[T] = Future()
        self._waiting.append(_Submission(group_id=group_id, script=script, answer=answer))
        return answer

    def step(self, now_ms: int) -> int:
        """One round: what is due, then what waits. How many requests it answered."""
        round_ = _Round(now_ms=now_ms)
        self._load_again(now_ms)
        self._expire(round_)
        while self._waiting and len(round_.outcomes) < MAX_ROUND and not round_.broken:
            self._run(round_, self._waiting.popleft())
        self._finish(round_, self._commit(round_))
        return len(round_.outcomes)

    # --- looked at from outside

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def next_deadline_ms(self) -> int | None:
        """When ``step`` has something to do by itself."""
        deadlines = [*self._reload_ms.values()]
        deadlines += [due for group in self.groups.values() if (due := group.next_deadline_ms()) is not None]
        return min(deadlines, default=None)

    def may_rest(self, now_ms: int) -> bool:
        """No group holds anything, waits for anything, or has a member."""
        return not self._waiting and not self._reload_ms and all(g.may_rest(now_ms) for g in self.groups.values())

    # --- a round

    def _expire(self, round_: _Round) -> None:
        for group in list(self.groups.values()):
            due_ms = group.next_deadline_ms()
            if due_ms is not None and due_ms <= round_.now_ms and not round_.broken:
                answer: Future[Any] = Future()
                self._run(round_, _Submission(group_id=group.group_id, script=one(Expire()), answer=answer))
                round_.touched.add(group.group_id)
                if round_.outcomes[-1][2] is not None:  # not in a circle: it has a session timeout when it is back
                    self._drop(group.group_id, round_.now_ms + RELOAD_AFTER_MS)

    def _run(self, round_: _Round, submission: _Submission) -> None:
        outcome, error = None, None
        try:
            group = self._group(submission.group_id, round_.now_ms)
            outcome = self._play(round_, group, submission.script)
        except ShareGroupError as failed:
            error = failed
        except _FAILURES as failed:
            error = CoordinatorNotAvailable(group_id=submission.group_id, reason=f"its state can't be loaded: {failed}")
        except Exception as failed:  # noqa: BLE001 - our mistake in one request must not end the others' service
            _log.exception("request failed: group=%s", submission.group_id)
            error = InternalError(what=f"a request of share group {submission.group_id}", reason=repr(failed))
        round_.outcomes.append((submission, outcome, error))

    def _play(self, round_: _Round, group: ShareGroup, script: Script[Any]) -> Any:
        steps = script(group)
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
            return stop.value

    def _decide(self, round_: _Round, group: ShareGroup, command: Any) -> Any:
        decision = decide(group, command, round_.now_ms)
        records = cast("tuple[Record, ...]", decision.records)
        data = [encode_record(record) for record in records if record.durable]
        if data:
            round_.appends.setdefault(group.group_id, []).extend(data)
            round_.touched.add(group.group_id)
        try:
            for record in records:
                group.replay(record)
        except BaseException:
            # Memory is half changed: nothing of this round may be appended, and its groups are loaded again.
            round_.broken = f"a record of {type(command).__name__} could not be replayed"
            round_.touched.add(group.group_id)
            raise
        return decision.reply

    def _commit(self, round_: _Round) -> str:
        """Make the round durable; why it is not, if so."""
        reason = round_.broken
        if not reason and round_.appends:
            try:
                self.store.append(round_.appends)
            except Exception as failed:  # noqa: BLE001 - what a store did not confirm is in doubt
                _log.warning("append failed: %s", failed)
                reason = f"its state could not be written: {failed}"
        if reason:
            for group_id in round_.touched:
                self._drop(group_id, round_.now_ms)
        return reason

    def _finish(self, round_: _Round, reason: str) -> None:
        for submission, outcome, error in round_.outcomes:
            if reason and not isinstance(error, InternalError):
                error = CoordinatorNotAvailable(group_id=submission.group_id, reason=reason)
            if not submission.answer.set_running_or_notify_cancel():
                continue
            if error is not None:
                submission.answer.set_exception(error)
            else:
                submission.answer.set_result(outcome)
        if round_.touched:
            self.on_change(round_.touched)
        if not reason:
            self._snapshot_long_logs(round_.appends)
        for group_id in {submission.group_id for submission, _, _ in round_.outcomes}:
            if group_id in self.groups and not self.groups[group_id].exists:
                del self.groups[group_id]  # only looked for

    # --- groups and the store

    def _group(self, group_id: str, now_ms: int) -> ShareGroup:
        group = self.groups.get(group_id)
        if group is None:
            group, count = self._load(group_id)
            group.loaded(now_ms)
            self._reload_ms.pop(group_id, None)
            self._updates[group_id] = count // 4  # about so many transactions; a wrong guess only moves a snapshot
            self.groups[group_id] = group
        return group

    def _load(self, group_id: str) -> tuple[ShareGroup, int]:
        group, count = ShareGroup(group_id), 0
        for sequence, data in self.store.load(group_id):
            try:
                group.replay(decode_record(data, group_id))
            except (UnreadableRecord, LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
                reason = error.fields.get("reason") if isinstance(error, ShareGroupError) else repr(error)
                raise StateRecordUnreadable(
                    sequence=sequence, group_id=group_id, path=self.store.name, reason=reason
                ) from error
            count += 1
        return group, count

    def _drop(self, group_id: str, reload_ms: int) -> None:
        self.groups.pop(group_id, None)
        self._reload_ms.setdefault(group_id, reload_ms)

    def _load_again(self, now_ms: int) -> None:
        """Dropped groups come back by themselves: their deadlines must go on."""
        for group_id in [g for g, due_ms in self._reload_ms.items() if due_ms <= now_ms]:
            try:
                self._group(group_id, now_ms)
            except Exception as error:  # noqa: BLE001 - what one group's state is like must not end the others' service
                _log.warning("loading failed: group=%s %r", group_id, error)
                self._reload_ms[group_id] = now_ms + RELOAD_AFTER_MS

    def _snapshot_long_logs(self, appended: Iterable[str]) -> None:
        for group_id in appended:
            self._updates[group_id] = self._updates.get(group_id, 0) + 1
            if self._updates[group_id] < self.snapshot_after:
                continue
            self._updates[group_id] = 0
            if group_id not in self.groups:
                continue
            try:
                snapshot = [encode_record(record) for record in self.groups[group_id].snapshot()]
                self.store.replace_with_snapshot(group_id, snapshot)
            except _FAILURES as error:
                _log.warning("snapshot failed, the log stays as it is: group=%s %s", group_id, error)
