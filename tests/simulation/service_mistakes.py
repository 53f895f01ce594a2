"""Known mistakes, each a switch: what the runtime or its store would be if a rule of the protocol were left out.

``SWITCHES`` is the list; a run of the simulation has to find each of them within a bounded number of seeds.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest
from sortedcontainers import SortedList

from coordinator.core import decide
from coordinator.core.commands import Expire, MarkDeadLettersWritten, acquire_plan, complete_plan, membership
from coordinator.core.records import decode_record, encode_record
from coordinator.core.runs import RunMap
from coordinator.core.share_group import ShareGroup
from coordinator.service.dead_letters import group_backlog
from coordinator.service.runtime.runtime import CoordinatorRuntime
from tests.simulation.coordinator_process import CoordinatorProcess
from tests.simulation.faulty_store import OwnedStore, StateLog
from tests.simulation.world import Task
from tests.unit.rules.sink_mistakes import (
    a_commit_takes_effect_at_once,
    accept_what_no_sink_decided,
    an_older_attempt_always_vetoes,
    an_older_attempt_has_no_veto,
    archive_without_waiting_for_the_letter,
    forget_disagreements_in_snapshots,
    forget_that_attempts_disagree,
    leave_staged_outcomes_out_of_snapshots,
    match_rows_by_their_offsets,
    retention_takes_what_waits_for_its_letter,
    silence_is_none,
    stage_without_appending,
    take_rows_of_any_life_of_the_group,
    the_first_attempt_counts,
    the_window_passes_over_what_waits_for_its_letter,
)
from tests.unit.rules.source_mistakes import (
    do_not_append_the_epoch,
    keep_what_took_the_place_of_a_given_up_plan,
    leave_live_plans_out_of_snapshots,
    refuse_a_plan_that_was_given_up_for_ever,
    return_an_unused_plan_unchanged_to_anybody,
)
from tests.unit.rules.test_mistakes import (
    acquire_without_appending,
    archive_at_the_limit,
    forget_that_the_cut_comes_first,
    forget_the_cut,
    forget_the_receipt,
    match_by_count_instead_of_number,
    skip_the_epoch_check,
    use_without_appending,
)

Patch = pytest.MonkeyPatch
Switch = Callable[[Patch], None]


# --- the store and the runtime


def skip_the_fence(patch: Patch) -> None:
    """An owner that was replaced goes on to append."""
    patch.setattr(OwnedStore, "_check_owner", lambda *a: None)


def reply_before_the_append(patch: Patch) -> None:
    right = CoordinatorRuntime._commit

    def step(self: CoordinatorRuntime, now_ms: int, stalled_ms: int = 0) -> int:
        early: list[Any] = []

        def commit_later(round_: Any) -> dict[str, Exception]:
            early.append(round_)
            return {}

        self._commit = commit_later  # type: ignore[method-assign]
        answered = right_step(self, now_ms, stalled_ms)
        for round_ in early:
            right(self, round_)
        return answered

    right_step = CoordinatorRuntime.step
    patch.setattr(CoordinatorRuntime, "step", step)


def answer_at_once_what_appends_nothing(patch: Patch) -> None:
    """The answer tells of what others in the same round were given, which may never be written."""
    right = CoordinatorRuntime._run

    def run(self: CoordinatorRuntime, round_: Any, submission: Any) -> None:
        before = sum(map(len, round_.records.values()))
        right(self, round_, submission)
        _, outcome, error = round_.outcomes[-1]
        if sum(map(len, round_.records.values())) == before and error is None:
            submission.answer.set_result(outcome)
            round_.outcomes[-1] = (dataclasses.replace(submission, answer=Future()), outcome, None)

    patch.setattr(CoordinatorRuntime, "_run", run)


def answer_from_memory_without_a_proof(patch: Patch) -> None:
    """An owner that was replaced still says what it remembers."""
    patch.setattr(OwnedStore, "must_prove", lambda *a: False)


def keep_memory_when_an_append_fails(patch: Patch) -> None:
    """The append is lost, and what it said is still believed."""
    patch.setattr(CoordinatorRuntime, "_drop", lambda *a: None)


def believe_that_doubt_means_not_written(patch: Patch) -> None:
    """Memory goes back to what was before the append, and nobody looks into the log."""
    sure: dict[tuple[int, str], list[bytes]] = {}
    right_read, right_append = CoordinatorRuntime._read, CoordinatorRuntime._append

    def read(self: CoordinatorRuntime, group_id: str, records: Any) -> Any:
        records = list(records)
        sure[id(self), group_id] = [r.data for r in records]
        return right_read(self, group_id, records)

    def append(self: CoordinatorRuntime, round_: Any) -> dict[str, Exception]:
        failed = right_append(self, round_)
        for group_id, records in round_.records.items():
            if group_id not in failed:
                sure[id(self), group_id].extend(encode_record(record) for record in records)
        return failed

    def drop(self: CoordinatorRuntime, group_id: str, reload_ms: int) -> None:
        group = ShareGroup(group_id)
        for each in sure[id(self), group_id]:
            group.replay(decode_record(each))
        group.loaded(reload_ms)
        self.serve(group, reload_ms)

    patch.setattr(CoordinatorRuntime, "_read", read)
    patch.setattr(CoordinatorRuntime, "_append", append)
    patch.setattr(CoordinatorRuntime, "_drop", drop)


def tear_an_append(patch: Patch) -> None:
    """A store that keeps only some of what it was writing when its owner died."""

    def write_in_part(self: StateLog, appends: Any) -> None:
        lost = {group_id: self.world.chance.randrange(len(data)) for group_id, data in appends.items()}
        self.write({g: [*data[: lost[g]], *data[lost[g] + 1 :]] for g, data in appends.items()})

    patch.setattr(StateLog, "write_in_part", write_in_part)


def let_an_append_arrive_after_a_load(patch: Patch) -> None:
    patch.setattr(StateLog, "settle", lambda self: None)


# --- what is durable


# --- the core


def merge_unequal_runs(patch: Patch) -> None:
    """Neighbours that differ in their counts only are merged."""
    right = RunMap.replace

    def replace(self: RunMap, pieces: Any) -> None:
        right(self, pieces)
        first, last = pieces[0][0] - 1, pieces[-1][1] + 1
        near = [s for s in self if s.last >= first and s.first <= last]
        for before, after in itertools.pairwise(near):
            run = after.run
            counts = {"delivery_count": run.delivery_count, "failures": run.failures, "releases": run.releases}
            if before.last == after.first - 1 and before.run._replace(**counts) == run:
                right(self, [(before.first, after.last, run)])
                return

    patch.setattr(RunMap, "replace", replace)


def forget_to_cut_what_is_acquired(patch: Patch) -> None:
    patch.setattr(acquire_plan, "slice_size", lambda *a: None)


def expire_too_early(patch: Patch) -> None:
    """Whenever somebody expires, everybody expires who would within 10 s."""
    right = membership.expire
    patch.setitem(decide._DECIDERS, Expire, lambda group, command, now_ms: right(group, command, now_ms + 10_000))


SWITCHES: list[Switch] = [
    skip_the_fence,
    reply_before_the_append,
    answer_at_once_what_appends_nothing,
    answer_from_memory_without_a_proof,
    keep_memory_when_an_append_fails,
    believe_that_doubt_means_not_written,
    tear_an_append,
    let_an_append_arrive_after_a_load,
    acquire_without_appending,
    use_without_appending,
    do_not_append_the_epoch,
    leave_live_plans_out_of_snapshots,
    forget_the_receipt,
    merge_unequal_runs,
    match_by_count_instead_of_number,
    forget_that_the_cut_comes_first,
    forget_the_cut,
    forget_to_cut_what_is_acquired,
    skip_the_epoch_check,
    return_an_unused_plan_unchanged_to_anybody,
    expire_too_early,
    archive_at_the_limit,
]

# --- sinks


def forget_at_a_restart_what_waits_for_its_letter(patch: Patch) -> None:
    """Only what was given up under the dispatcher's eyes gets its letter."""
    right = ShareGroup.loaded

    def loaded(self: ShareGroup, now_ms: int) -> None:
        right(self, now_ms)
        for partition in self.partitions.values():
            partition.runs.archiving = _Forgetful(partition.runs.archiving)

    patch.setattr(ShareGroup, "loaded", loaded)


class _Forgetful(SortedList[int]):
    """Does not show what was in it at first."""

    def __init__(self, old: Iterable[int]) -> None:
        super().__init__(old)
        self._old = frozenset(self)

    def irange(self, *args: Any, **fields: Any) -> Iterator[int]:
        return (first for first in super().irange(*args, **fields) if first not in self._old)


def file_letters_before_they_are_written(patch: Patch) -> None:
    def file(self: CoordinatorProcess, backlog: Any, written: Any) -> Task:
        yield from self._own(group_backlog.file(backlog.incarnation, group_backlog.coalesced(written)))
        yield self.world.between(0, 500)
        self._produce_letters(written)

    patch.setattr(CoordinatorProcess, "_file", file)


def file_a_letter_of_whatever_is_there(patch: Patch) -> None:
    """Not of the delivery that it is about alone."""
    right = decide._DECIDERS[MarkDeadLettersWritten]

    def filed(group: ShareGroup, command: MarkDeadLettersWritten, now_ms: int) -> Any:
        letters = tuple(msgspec.structs.replace(each, last=each.last + 1) for each in command.letters)
        return right(group, MarkDeadLettersWritten(letters=letters), now_ms)

    patch.setitem(decide._DECIDERS, MarkDeadLettersWritten, filed)


def forget_a_releases_delay(patch: Patch) -> None:
    right = complete_plan.query_released
    patch.setattr(complete_plan, "query_released", lambda run, config, not_before_ms=None, *why: right(run, config))


OF_SINKS: list[Switch] = [
    a_commit_takes_effect_at_once,
    stage_without_appending,
    the_first_attempt_counts,
    forget_that_attempts_disagree,
    silence_is_none,
    an_older_attempt_has_no_veto,
    an_older_attempt_always_vetoes,
    match_rows_by_their_offsets,
    take_rows_of_any_life_of_the_group,
    leave_staged_outcomes_out_of_snapshots,
    forget_disagreements_in_snapshots,
    accept_what_no_sink_decided,
    archive_without_waiting_for_the_letter,
    the_window_passes_over_what_waits_for_its_letter,
    retention_takes_what_waits_for_its_letter,
    forget_at_a_restart_what_waits_for_its_letter,
    file_letters_before_they_are_written,
    file_a_letter_of_whatever_is_there,
    forget_a_releases_delay,
]
"""Found where queries have sinks."""

OF_STOPPED_DRIVERS: list[Switch] = [
    refuse_a_plan_that_was_given_up_for_ever,
    keep_what_took_the_place_of_a_given_up_plan,
]
"""Found where drivers are stopped before they log a plan."""
