"""Records in progress: signals, staleness, the longest extension, and members that are gone (KAFKA-20458)."""

from __future__ import annotations

from typing import Any

from coordinator.config.resolved import GroupConfig
from coordinator.core import changes, failed_deliveries, share_group
from coordinator.core.commands import acknowledge, held_records, mark_in_progress, membership
from coordinator.core.members import AcquiredPlan
from coordinator.core.record_state import HELD, Event, RecordState
from coordinator.core.runs import Progress, Run
from coordinator.core.share_group import ShareGroup
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, SmallWorld, mistake
from tests.protocol.setting import Budget
from tests.protocol.worlds import WORK

NOTHING = Budget(0)


@mistake(
    rules.SIGNALS_GO_STALE, explorer=(SmallWorld(WORK, Budget(2, expiries=2)),), simulator=(Seeds("signals"),), model=1
)
def a_stale_signal_keeps_the_lock(patch: Patch) -> None:
    def deadline_ms(plan: AcquiredPlan, progress: Progress, config: GroupConfig) -> int:
        return plan.acquired_ms + config.group_share_in_progress_max_lock_extension_ms

    patch.setattr(mark_in_progress, "progress_deadline_ms", deadline_ms)


@mistake(
    rules.SIGNALS_END,
    tests=("core/test_progress::test_signals_extend_no_lock_beyond_the_longest_extension",),
    explorer=(SmallWorld(WORK, Budget(2, expiries=2, pauses=2)),),
    simulator=(Seeds("signals"),),
    model=5,
)
def extend_a_lock_for_ever(patch: Patch) -> None:
    def deadline_ms(plan: AcquiredPlan, progress: Progress, config: GroupConfig) -> int:
        return progress.last_ms + config.group_share_in_progress_staleness_threshold_ms

    patch.setattr(mark_in_progress, "progress_deadline_ms", deadline_ms)
    patch.setattr(mark_in_progress, "extension_end_ms", lambda plan, config: 2**62)


@mistake(
    rules.SIGNALS_ARE_THE_HOLDERS,
    tests=("core/test_progress::test_a_refused_signal_changes_nothing_of_its_partition",),
    explorer=(SmallWorld(WORK, NOTHING),),
    simulator=(Seeds("signals", 10),),
)
def take_signals_of_any_member(patch: Patch) -> None:
    def check_held(group: ShareGroup, member_id: str, delivery_count: int, segment: Any) -> None:
        plan = group.plans.get(segment.run.plan_id or 0)
        holder = member_id if plan is None else plan.member_id
        held_records.check_held(group, holder, delivery_count, segment)

    patch.setattr(mark_in_progress, "check_held", check_held)


@mistake(
    rules.SIGNALS_ARE_THE_HOLDERS,
    tests=("core/test_progress::test_a_refused_signal_changes_nothing_of_its_partition",),
    explorer=(SmallWorld(WORK, Budget(1, delays=1)),),
    simulator=(Seeds("signals", 21),),
)
def take_signals_for_an_older_delivery(patch: Patch) -> None:
    def check_held(group: ShareGroup, member_id: str, delivery_count: int, segment: Any) -> None:
        held_records.check_held(group, member_id, segment.run.delivery_count, segment)

    patch.setattr(mark_in_progress, "check_held", check_held)


@mistake(
    rules.SIGNALS_ARE_THE_HOLDERS, explorer=(SmallWorld(WORK, NOTHING),), simulator=(Seeds("signals", 13),), model=16
)
def take_signals_for_what_another_has_done(patch: Patch) -> None:
    patch.setattr(mark_in_progress, "_check_whole", lambda member_id, batch, parts: None)


@mistake(rules.WORK_IS_KEPT_FOR_A_WHILE, explorer=(SmallWorld(WORK, NOTHING),), simulator=(Seeds("signals"),), model=1)
def leave_the_work_with_a_member_that_is_gone(patch: Patch) -> None:
    """The lock ends as if the member were still there."""
    patch.setattr(membership, "_orphaned", lambda group, plan, run, now_ms: run)


@mistake(rules.WORK_IS_KEPT_FOR_A_WHILE, explorer=(SmallWorld(WORK, NOTHING),), simulator=(Seeds("signals"),), model=1)
def take_fresh_work_from_a_member_at_once(patch: Patch) -> None:
    def orphaned(group: ShareGroup, plan: AcquiredPlan, run: Run, now_ms: int) -> Run:
        return failed_deliveries.consumer_lost_lock(run, group.config)

    patch.setattr(membership, "_orphaned", orphaned)


@mistake(rules.WORK_THAT_FAILED_IS_A_FAILURE, simulator=(Seeds("signals"),), model=5)
def count_no_failure_for_released_work(patch: Patch) -> None:
    right = acknowledge.released

    def released(run: Run, *args: Any) -> Run:
        return right(run._replace(state=RecordState.ACQUIRED, progress=None), *args)

    patch.setattr(acknowledge, "released", released)


@mistake(rules.SIGNALS_GO_STALE, simulator=(Seeds("signals"),), model=7)
def keep_the_signals_of_a_lost_lock(patch: Patch) -> None:
    right = changes.moved

    def moved(run: Run, event: Event, **fields: Any) -> Run:
        return right(run, event, **fields, **({"progress": run.progress} if event is Event.LOSE_LOCK else {}))

    patch.setattr(failed_deliveries, "moved", moved)


@mistake(
    rules.LOCK_OUTLIVES_ITS_OWNER,
    explorer=(SmallWorld(WORK, Budget(1, restarts=1)),),
    simulator=(Seeds("signals"),),
    model=0,
)
def give_each_lock_a_session_after_a_load(patch: Patch) -> None:
    right = ShareGroup._keep_locks
    patch.setattr(share_group, "lock_deadline_ms", lambda plan, run, config: 0)

    def kept(self: ShareGroup, plan: AcquiredPlan, held: Any, deadline_ms: int, now_ms: int) -> None:
        forgotten = [(of, each._replace(run=each.run._replace(deadline_ms=None))) for of, each in held]
        right(self, plan, forgotten, deadline_ms, now_ms)

    patch.setattr(ShareGroup, "_keep_locks", kept)


@mistake(rules.LOCK_OUTLIVES_ITS_OWNER, simulator=(Seeds("signals"),), model=2)
def forget_work_in_progress_at_a_load(patch: Patch) -> None:
    patch.setattr(share_group, "HELD", HELD - {RecordState.IN_PROGRESS})
