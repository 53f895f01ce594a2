"""Known mistakes, each with a small world in which the explorer finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from coordinator.core.commands import acquire_plan
from coordinator.core.runs import Run
from coordinator.protocol.messages import OutcomesStaged
from coordinator.service.runtime import runtime
from coordinator.service.runtime.runtime import CoordinatorRuntime
from tests.protocol import coordinators
from tests.protocol.coordinators import OneLog
from tests.protocol.members import Query
from tests.protocol.setting import Budget, Setting
from tests.unit.rules.sink_mistakes import (
    a_commit_without_rows_says_nothing,
    an_older_attempt_vetoes_though_its_output_is_replaced,
    an_older_attempts_silence_is_unheard,
    every_target_is_taken_for_one_that_replaces,
    forget_that_an_attempt_was_passed_over,
    forget_that_attempts_disagree,
    forget_what_the_target_does_in_snapshots,
    leave_staged_outcomes_out_of_snapshots,
    leave_what_is_decided_out_of_a_replay,
    stage_without_appending,
)
from tests.unit.rules.source_mistakes import (
    forget_newest_plans_without_runs,
    forget_what_was_given_up,
    keep_the_number_on_a_cut,
    keep_what_took_the_place_of_a_given_up_plan,
    leave_live_plans_out_of_snapshots,
    nobody_comes_back_after_a_load,
    refuse_a_plan_that_was_given_up_for_ever,
    tell_losses_without_archiving,
)
from tests.unit.rules.test_mistakes import (
    acquire_without_appending,
    clear_the_number_at_expiry,
    count_time_in_which_nobody_was_heard,
    forget_that_the_cut_comes_first,
    forget_the_cut,
    forget_the_receipt,
    match_by_count_instead_of_number,
)

Patch = pytest.MonkeyPatch


class Mistake(NamedTuple):
    """What is made wrong, and the world in which it shows."""

    make: Callable[[Patch], None]
    setting: Setting
    budget: Budget


# --- the shell and its store


def skip_the_fence(patch: Patch) -> None:
    class Unfenced(OneLog):
        def __init__(self, records: Iterable[Any], *, fenced: bool = False, fault: str = "") -> None:
            super().__init__(records, fault=fault)

    patch.setattr(coordinators, "OneLog", Unfenced)


def reply_before_the_append(patch: Patch) -> None:
    def step(self: CoordinatorRuntime, now_ms: int, stalled_ms: int = 0) -> int:
        round_ = runtime._Round(now_ms=now_ms)
        self._load_again(round_)
        self._expire(round_)
        while self._waiting:
            self._run(round_, self._waiting.popleft())
        self._finish(round_, {})
        self._commit(round_)
        return len(round_.outcomes)

    patch.setattr(CoordinatorRuntime, "step", step)


# --- plans and numbers


def acquire_anew_while_a_plan_is_not_used(patch: Patch) -> None:
    patch.setattr(acquire_plan, "_pending_again", lambda *a: None)


def merge_unequal_runs(patch: Patch) -> None:
    patch.setattr(Run, "__eq__", lambda run, other: run.state == other.state)


# --- isolation, retention, receipts


# --- the source and Spark


def complete_when_the_sink_has_written(patch: Patch) -> None:
    """Instead of with the next ``latestOffset``: commits/N is not there yet."""
    right = Query.wrote

    def wrote(self: Query, log_start: int, setting: Setting) -> Query:
        after = right(self, log_start, setting)
        return after._replace(phase="complete") if after.up else after

    patch.setattr(Query, "wrote", wrote)


def commit_before_the_sink_wrote(patch: Patch) -> None:
    right = Query.goes_on

    def goes_on(self: Query, log_start: int, setting: Setting) -> Query:
        if self.phase != "write":
            return right(self, log_start, setting)
        if self.commits < len(self.offsets):
            return self._replace(commits=self.commits + 1)
        after = self.wrote(log_start, setting)
        return after._replace(phase="ask", batch=0) if after.up else after

    patch.setattr(Query, "goes_on", goes_on)


def take_the_member_from_start(patch: Patch) -> None:
    """A new process of a batch that is replayed has another initial offset."""
    right = Query.started

    def started(self: Query) -> Query:
        after = right(self)
        return after._replace(member=f"{self.name}{after.processes}") if len(self.offsets) == 1 else after

    patch.setattr(Query, "started", started)


# --- the sink


def write_before_acknowledging(patch: Patch) -> None:
    """What is written is there when nothing is staged yet."""
    right_decides, right_heard, right_wrote = Query.decides, Query.heard, Query.wrote

    def decides(self: Query, setting: Setting) -> list[Query]:
        return [decided._replace(phase="write") for decided in right_decides(self, setting)]

    def wrote(self: Query, log_start: int, setting: Setting) -> Query:
        after = right_wrote(self, log_start, setting)
        return after._replace(phase="stage") if after.up and setting.sink else after

    def heard(self: Query, answer: Any, error: str, setting: Setting) -> Query:
        after = right_heard(self, answer, error, setting)
        return after._replace(phase="commit") if isinstance(answer, OutcomesStaged) else after

    for name, wrong in (("decides", decides), ("wrote", wrote), ("heard", heard)):
        patch.setattr(Query, name, wrong)


TWO = Setting()
ONE_RECORD = Setting(records=1, most=(1, 1))
SLICES = Setting(limit=3, base=1)
CONSUMER = Setting(records=1, most=(1,), fetches=2, releases=True)
STOPPED = Setting(records=3, most=(1,), fetches=1)

REJECTS = Setting(sink=("accept",), rejects=1)
ROLLS = Setting(records=1, most=(1,), sink=("accept", "release"))
SILENT = Setting(records=1, most=(1,), sink=("accept", "nothing"))
REPLACED = Setting(records=1, most=(1,), sink=("accept", "release", "reject"), replaces=True)
SILENT_AND_REPLACED = Setting(records=1, most=(1,), sink=("accept", "nothing"), replaces=True)

MISTAKES = (
    Mistake(skip_the_fence, ONE_RECORD, Budget(1, takeovers=1)),
    Mistake(reply_before_the_append, ONE_RECORD, Budget(1, restarts=1)),
    Mistake(acquire_without_appending, ONE_RECORD, Budget(1, restarts=1)),
    Mistake(leave_live_plans_out_of_snapshots, ONE_RECORD, Budget(1, restarts=1)),
    Mistake(nobody_comes_back_after_a_load, ONE_RECORD, Budget(2, restarts=1, crashes=1)),
    Mistake(count_time_in_which_nobody_was_heard, ONE_RECORD, Budget(1, stalls=1)),
    Mistake(match_by_count_instead_of_number, TWO, Budget(1, expiries=1, pauses=1)),
    Mistake(clear_the_number_at_expiry, ONE_RECORD, Budget(1, expiries=1, pauses=1)),
    Mistake(acquire_anew_while_a_plan_is_not_used, ONE_RECORD, Budget(1, lost=1)),
    Mistake(forget_newest_plans_without_runs, ONE_RECORD, Budget(1, expiries=1, pauses=1)),
    Mistake(merge_unequal_runs, TWO, Budget(1, crashes=1)),
    Mistake(forget_the_cut, SLICES, Budget(1, crashes=1)),
    Mistake(forget_that_the_cut_comes_first, SLICES, Budget(1, crashes=1)),
    Mistake(keep_the_number_on_a_cut, SLICES, Budget(1, crashes=1)),
    Mistake(tell_losses_without_archiving, TWO, Budget(1, retention=1)),
    Mistake(forget_the_receipt, CONSUMER, Budget(2, expiries=1, delays=1)),
    Mistake(complete_when_the_sink_has_written, ONE_RECORD, Budget(1, crashes=1)),
    Mistake(commit_before_the_sink_wrote, ONE_RECORD, Budget(1, crashes=1)),
    Mistake(take_the_member_from_start, ONE_RECORD, Budget(1, crashes=1)),
    Mistake(refuse_a_plan_that_was_given_up_for_ever, STOPPED, Budget(2, expiries=1, stops=1)),
    Mistake(keep_what_took_the_place_of_a_given_up_plan, STOPPED, Budget(2, expiries=1, stops=1)),
    Mistake(forget_what_was_given_up, STOPPED, Budget(2, expiries=1, stops=1)),
    Mistake(stage_without_appending, REJECTS, Budget(1, restarts=1)),
    Mistake(leave_staged_outcomes_out_of_snapshots, REJECTS, Budget(1, restarts=1)),
    Mistake(leave_what_is_decided_out_of_a_replay, REJECTS, Budget(1, crashes=1)),
    Mistake(forget_that_attempts_disagree, ROLLS, Budget(1, crashes=1)),
    Mistake(write_before_acknowledging, ROLLS, Budget(1, crashes=1)),
    Mistake(every_target_is_taken_for_one_that_replaces, ROLLS, Budget(1, crashes=1)),
    Mistake(every_target_is_taken_for_one_that_replaces, SILENT, Budget(1, crashes=1)),
    Mistake(an_older_attempt_vetoes_though_its_output_is_replaced, REPLACED, Budget(1, crashes=1)),
    Mistake(an_older_attempt_vetoes_though_its_output_is_replaced, SILENT_AND_REPLACED, Budget(1, crashes=1)),
    Mistake(forget_what_the_target_does_in_snapshots, REPLACED, Budget(2, crashes=1, restarts=1)),
    Mistake(an_older_attempts_silence_is_unheard, SILENT, Budget(1, crashes=1)),
    Mistake(a_commit_without_rows_says_nothing, SILENT, Budget(1, crashes=1)),
    Mistake(forget_that_an_attempt_was_passed_over, SILENT, Budget(2, crashes=2)),
)
