"""The coordinator's runtime and its store: fences, appends and answers."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future
from typing import Any

from coordinator.core.record_codec import decode_record, encode_record
from coordinator.core.replay import replay
from coordinator.core.share_group import ShareGroup
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.state_log.retention import Retention
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, SmallWorld, mistake
from tests.protocol.coordinators import OneLog
from tests.protocol.setting import Budget
from tests.protocol.worlds import ONE_RECORD
from tests.simulation.simulated_store import OwnedStore, StateLog


@mistake(rules.FENCED_OWNER, explorer=(SmallWorld(ONE_RECORD, Budget(1, takeovers=1)),), simulator=(Seeds(),))
def skip_the_fence(patch: Patch) -> None:
    """An owner that was replaced continues to append, in the simulator's store and in the explorer's."""
    right = OneLog.__init__
    patch.setattr(OwnedStore, "_check_owner", lambda *a: None)
    patch.setattr(OneLog, "__init__", lambda self, records, *, fenced=False, **given: right(self, records, **given))


@mistake(rules.APPEND_BEFORE_ANSWER, explorer=(SmallWorld(ONE_RECORD, Budget(1, restarts=1)),), simulator=(Seeds(),))
def reply_before_the_append(patch: Patch) -> None:
    right = CoordinatorRuntime._commit

    def step(self: CoordinatorRuntime, now_ms: int, stalled_ms: int = 0, unread_ms: int = 0) -> int:
        early: list[Any] = []

        def commit_later(round_: Any) -> dict[str, Exception]:
            early.append(round_)
            return {}

        self._commit = commit_later  # type: ignore[method-assign]
        answered = right_step(self, now_ms, stalled_ms, unread_ms)
        for round_ in early:
            right(self, round_)
        return answered

    right_step = CoordinatorRuntime.step
    patch.setattr(CoordinatorRuntime, "step", step)


@mistake(rules.APPEND_BEFORE_ANSWER, simulator=(Seeds(),))
def answer_at_once_what_appends_nothing(patch: Patch) -> None:
    """The answer shows what others in the same round were given, which may never be written."""
    right = CoordinatorRuntime._run

    def run(self: CoordinatorRuntime, round_: Any, submission: Any) -> None:
        before = sum(map(len, round_.records.values()))
        right(self, round_, submission)
        _, outcome, error = round_.outcomes[-1]
        if sum(map(len, round_.records.values())) == before and error is None:
            submission.answer.set_result(outcome)
            round_.outcomes[-1] = (dataclasses.replace(submission, answer=Future()), outcome, None)

    patch.setattr(CoordinatorRuntime, "_run", run)


@mistake(rules.FENCED_OWNER, simulator=(Seeds(first=76),))
def answer_from_memory_without_a_proof(patch: Patch) -> None:
    """An owner that was replaced still answers from its memory."""
    patch.setattr(OwnedStore, "must_prove", lambda *a: False)


@mistake(
    rules.APPEND_BEFORE_ANSWER,
    tests=("service/test_deletion_crashes::test_a_request_in_the_round_of_a_deletion_finds_the_deleted_group",),
)
def load_a_group_in_the_round_that_deletes_it(patch: Patch) -> None:
    """A join loads the group from the log, which does not have the deletion yet."""
    patch.setattr(CoordinatorRuntime, "_must_wait", lambda *a: False)


@mistake(rules.APPEND_BEFORE_ANSWER, simulator=(Seeds(),))
def keep_memory_when_an_append_fails(patch: Patch) -> None:
    """The append is lost, and memory still has its changes."""
    patch.setattr(CoordinatorRuntime, "_drop", lambda *a: None)


@mistake(rules.APPEND_BEFORE_ANSWER, simulator=(Seeds(first=9),))
def take_an_unknown_outcome_for_not_written(patch: Patch) -> None:
    """Memory goes back to the state before the append, and nobody reads the log."""
    sure: dict[tuple[int, str], list[bytes]] = {}
    right_read, right_append = CoordinatorRuntime._replayed, CoordinatorRuntime._append

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

    def drop(self: CoordinatorRuntime, group_id: str, reload_ms: int, *expired: Any) -> None:
        group = ShareGroup(group_id)
        for each in sure[id(self), group_id]:
            replay(group, decode_record(each))
        group.loaded(reload_ms)
        self.serve(group, reload_ms)

    patch.setattr(CoordinatorRuntime, "_replayed", read)
    patch.setattr(CoordinatorRuntime, "_append", append)
    patch.setattr(CoordinatorRuntime, "_drop", drop)


@mistake(rules.APPEND_IS_ONE, simulator=(Seeds("", 37),))
def tear_an_append(patch: Patch) -> None:
    """A store that keeps only some of what it was writing when its owner died."""

    def write_in_part(self: StateLog, appends: Any) -> None:
        lost = {group_id: self.world.chance.randrange(len(data)) for group_id, data in appends.items()}
        self.write({g: [*data[: lost[g]], *data[lost[g] + 1 :]] for g, data in appends.items()})

    patch.setattr(StateLog, "write_in_part", write_in_part)


@mistake(rules.FENCED_OWNER, simulator=(Seeds(first=16),))
def let_an_append_arrive_after_a_load(patch: Patch) -> None:
    patch.setattr(StateLog, "settle", lambda self: None)


@mistake(
    rules.UPKEEP_FREES_MORE_THAN_IT_COSTS,
    tests=("state_log/test_retention::test_what_groups_at_rest_need_is_not_there_to_free",),
)
def take_what_groups_need_for_what_can_be_freed(patch: Patch) -> None:
    patch.setattr(Retention, "not_needed", lambda self: self.read_to - self.lowest())
