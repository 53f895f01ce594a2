"""Deferred records: they go back as if they had not been delivered, and come again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

import msgspec

from coordinator.core import order
from coordinator.core.commands import acknowledge, complete_plan, reclaim_plan, stage_outcomes
from coordinator.core.commands import acquire_for_consumer as acquire_records
from coordinator.core.commands import acquire_for_query as acquire_plan
from coordinator.core.log_records import PlanStaged
from coordinator.core.looks import snapshot
from coordinator.core.release_backoff import NO_DELAY, backoff
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.core.staging import StagedRun, pieces
from coordinator.protocol.values import AcknowledgeType
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, SmallWorld, mistake
from tests.model.walk import DEFERRING, ORDERED
from tests.protocol.setting import Budget
from tests.protocol.worlds import DEFERS

TESTS = "core/test_outcomes::test_"
DEFER = AcknowledgeType.DEFER


def _give_back(patch: Patch, changed: Any) -> None:
    """Deferred records go back as ``changed`` makes them of what they were."""
    right = complete_plan.given_back
    patch.setattr(complete_plan, "given_back", lambda run: right(changed(run)))


@mistake(
    rules.DEFERRAL_IS_NO_TRY,
    explorer=(SmallWorld(DEFERS, Budget(1, deferrals=1)),),
    simulator=(Seeds("deferrals", 0),),
    model=DEFERRING,
)
def count_a_try_for_a_deferral(patch: Patch) -> None:
    _give_back(patch, lambda run: run._replace(releases=run.releases + 1))


@mistake(rules.DEFERRAL_IS_NO_TRY, simulator=(Seeds("deferrals", 0),), model=DEFERRING)
def count_a_failure_for_a_deferral(patch: Patch) -> None:
    _give_back(patch, lambda run: run._replace(failures=run.failures + 1))


@mistake(rules.DEFERRAL_IS_NO_TRY, tests=(TESTS + "a_deferred_quarantined_record_keeps_its_stage",))
def end_the_quarantine_of_a_deferred_record(patch: Patch) -> None:
    _give_back(patch, lambda run: run._replace(quarantined=False, failed_alone_ms=None, last_tried_ms=None))


@mistake(
    rules.DEFERRAL_IS_NO_TRY,
    explorer=(SmallWorld(DEFERS, Budget(1, deferrals=1)),),
    simulator=(Seeds("deferrals", 0),),
    model=DEFERRING,
)
def keep_a_deferred_record_locked(patch: Patch) -> None:
    patch.setattr(complete_plan, "given_back", lambda run: run)


@mistake(rules.DEFERRAL_IS_NO_TRY, simulator=(Seeds("deferrals", 0),), model=DEFERRING)
def delay_a_deferral_as_a_release(patch: Patch) -> None:
    right = complete_plan._Completion._decision

    def decision(self: Any, run: Run, verdict: Any) -> Any:
        outcome, after = right(self, run, verdict)
        if outcome != DEFER or verdict.not_before_ms is not None:
            return outcome, after
        delay = backoff(self._group.config, 1, 0, self._now_ms, by_query=True)
        return outcome, lambda first: after(first)._replace(**delay._asdict())

    patch.setattr(complete_plan._Completion, "_decision", decision)


@mistake(rules.DEFERRAL_IS_NO_TRY, model=DEFERRING)
def lose_the_delay_of_a_deferral(patch: Patch) -> None:
    patch.setattr(stage_outcomes, "GIVES_BACK", frozenset({AcknowledgeType.RELEASE}))


@mistake(
    rules.AVAILABLE_NOW_RELEASES_ONCE, tests=(TESTS + "a_run_that_began_before_a_deferral_does_not_get_the_record",)
)
def give_an_available_now_run_what_it_deferred(patch: Patch) -> None:
    patch.setattr(complete_plan._Completion, "_at_once", NO_DELAY)


@mistake(rules.ORDER_IS_A_PREFIX, simulator=(Seeds("deferrals", 4),), model=DEFERRING + ORDERED + 1)
def let_later_records_pass_a_deferred_one(patch: Patch) -> None:
    def returned(group: ShareGroup, partition: SharePartition, end: int, now_ms: int) -> Iterator[Segment]:
        runs: Iterable[Segment] = partition.runs.available(now_ms)
        if group.config.is_ordered:
            waits = (s for s in partition.runs.all_available() if s.run.releases or order._is_due(s.run, now_ms))
            runs = takewhile(lambda segment: order._is_due(segment.run, now_ms), waits)
        for first, last, run in runs:
            if (first := max(first, partition.start_offset)) <= (last := min(last, end - 1)):
                yield Segment(first, last, run)

    for module in (acquire_plan, acquire_records):
        patch.setattr(module, "returned", returned)


@mistake(rules.REPLAY_RECLAIMS_ALL, model=DEFERRING)
def leave_deferred_records_out_of_a_replay(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._come_back

    def come_back(self: reclaim_plan.Reclaim, key: Any, segment: Segment) -> None:
        for first, last, run, verdict in pieces([segment], self.plan.staged.get(key, [])):
            if verdict is None or verdict.outcome != DEFER:
                right(self, key, Segment(first, last, run))

    patch.setattr(reclaim_plan.Reclaim, "_come_back", come_back)


def _without_deferrals(staged: Iterable[StagedRun]) -> tuple[StagedRun, ...]:
    return tuple(run for run in staged if run[2].outcome != DEFER)


@mistake(
    rules.SNAPSHOT_IS_WHOLE,
    explorer=(SmallWorld(DEFERS, Budget(2, deferrals=1, restarts=1)),),
    simulator=(Seeds("deferrals", 14),),
    model=DEFERRING,
)
def leave_staged_deferrals_out_of_snapshots(patch: Patch) -> None:
    right = snapshot._staged_records

    def staged(group: ShareGroup) -> Iterator[PlanStaged]:
        for record in right(group):
            partitions = tuple((*of, _without_deferrals(runs)) for *of, runs in record.partitions)
            yield msgspec.structs.replace(record, partitions=partitions)

    patch.setattr(snapshot, "_staged_records", staged)


@mistake(rules.DEFERRALS_ALONE_PAUSE, simulator=(Seeds("deferrals", 4),), model=DEFERRING + 17)
def slow_no_query_that_defers_all(patch: Patch) -> None:
    right = complete_plan._Completion._judge

    def judge(self: Any) -> None:
        self._deferred = 0
        right(self)

    patch.setattr(complete_plan._Completion, "_judge", judge)


@mistake(rules.DEFERRALS_ALONE_PAUSE, model=DEFERRING)
def slow_a_query_that_defers_beside_others(patch: Patch) -> None:
    right = complete_plan.judged

    def judged(breaker: Any, config: Any, released: int, records: int, **of: Any) -> Any:
        return right(breaker, config, records, records, **of)

    patch.setattr(complete_plan, "judged", judged)


@mistake(rules.DEFERRAL_IS_A_SINKS, tests=(TESTS + "a_share_consumer_can_not_defer",))
def take_a_share_consumers_deferral_for_a_release(patch: Patch) -> None:
    patch.setitem(acknowledge._TYPES, DEFER.value, AcknowledgeType.RELEASE)
