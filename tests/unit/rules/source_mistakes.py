"""Mistakes at the seams: snapshots, loads, replays of a plan, the reader, its session, and leaving when idle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadLimit

from coordinator.client.session import MemberSession
from coordinator.core import decide, group_snapshot, share_group
from coordinator.core.commands import StartOrReclaimPlan, acknowledge, acquire_plan, membership, reclaim_plan
from coordinator.core.commands.reclaim_plan import Reclaim
from coordinator.core.members import Member
from coordinator.core.record_state import RecordState
from coordinator.core.records import MemberJoined, PartitionInitialized, PlanAcquired, PlanStarted
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.errors import FencedMemberEpoch
from coordinator.protocol.messages import JoinGroup
from coordinator.service.dead_letters.dispatcher import DeadLetterDispatcher
from coordinator.service.on_demand import Coordinator
from coordinator.service.runtime import transactions
from share_source import reader
from share_source.reader import ShareGroupStreamReader
from tests.unit.rules import test_given_up_plans as given_up
from tests.unit.rules import test_plans as promises
from tests.unit.rules import test_shell as shell
from tests.unit.rules import test_source as source

Patch = pytest.MonkeyPatch


def do_not_append_the_start_offset(patch: Patch) -> None:
    patch.setattr(PartitionInitialized, "durable", False)


def acquire_without_a_start_offset(patch: Patch) -> None:
    patch.setattr(transactions, "initialize", lambda group, starts: iter(()))


def resolve_the_start_offset_at_the_first_acquire(patch: Patch) -> None:
    right = transactions.join
    patch.setattr(
        transactions, "join", lambda request, *, topic_ids, starts: right(request, topic_ids=topic_ids, starts={})
    )


def leave_live_plans_out_of_snapshots(patch: Patch) -> None:
    patch.setattr(group_snapshot, "_kept_plans", lambda self: [])


def leave_numbers_out_of_snapshots(patch: Patch) -> None:
    def progress(self: ShareGroup, record: Any) -> None:
        if record.member_id is not None:
            self.members[record.member_id].completed = record.plan_id

    patch.setitem(share_group._REPLAY, share_group.ProgressKept, progress)


def forget_newest_plans_without_runs(patch: Patch) -> None:
    right = ShareGroup._drop_plans_nobody_carries

    def drop(self: ShareGroup, partition: SharePartition) -> None:
        right(self, partition)
        for member in self.members.values():
            if member.newest is not None and member.newest.plan_id < min(self.plans, default=0):
                member.newest = None

    patch.setattr(ShareGroup, "_drop_plans_nobody_carries", drop)


def take_any_plan_up(patch: Patch) -> None:
    patch.setattr(reclaim_plan, "newest_plan", lambda group, member, number: member.newest)


def refuse_a_plan_that_was_given_up_for_ever(patch: Patch) -> None:
    """Spark has logged it, and asks for it at each start."""
    patch.setattr(Member, "superseded_plans", lambda self, number: False)


def take_a_given_up_plan_up_in_spite_of_the_newest(patch: Patch) -> None:
    """The newest one is used: it is in Spark's log, and this one can't be."""
    patch.setattr(
        Member,
        "superseded_plans",
        lambda self, number: self.pending is not None and number in self.pending.superseded_plans,
    )


def keep_what_took_the_place_of_a_given_up_plan(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._leave_out

    def leave_out(self: Reclaim, key: Any, segment: Segment, run: Run, reason: str) -> None:
        if self.plan.superseded_plans:
            run = segment.run
        right(self, key, segment, run, reason)

    patch.setattr(reclaim_plan.Reclaim, "_leave_out", leave_out)


def forget_what_was_given_up(patch: Patch) -> None:
    """With the coordinator: a snapshot does not say it."""
    right = group_snapshot._plan_record
    patch.setattr(
        group_snapshot,
        "_plan_record",
        lambda self, plan: msgspec.structs.replace(right(self, plan), superseded_plans=()),
    )


def nobody_comes_back_after_a_load(patch: Patch) -> None:
    patch.setattr(ShareGroup, "loaded", lambda self, now_ms: None)


def no_time_to_come_back_after_a_load(patch: Patch) -> None:
    right = ShareGroup.loaded

    def loaded(self: ShareGroup, now_ms: int) -> None:
        right(self, now_ms - self.config.share_session_timeout_ms)

    patch.setattr(ShareGroup, "loaded", loaded)


def keep_the_number_on_release(patch: Patch) -> None:
    right = acknowledge.released
    patch.setattr(acknowledge, "released", lambda run, c: right(run, c)._replace(plan_id=run.plan_id))


def keep_the_number_on_a_cut(patch: Patch) -> None:
    def returned(self: reclaim_plan.Reclaim, key: Any, segment: Segment) -> None:
        self._leave_out(key, segment, segment.run._replace(state=RecordState.AVAILABLE), "cut")

    patch.setattr(reclaim_plan.Reclaim, "_return", returned)


def keep_the_number_on_setting_aside(patch: Patch) -> None:
    right = reclaim_plan.quarantined
    patch.setattr(reclaim_plan, "quarantined", lambda run, *rest: right(run, *rest)._replace(plan_id=run.plan_id))


def a_lock_duration_for_queries_too(patch: Patch) -> None:
    acquired, planned = acquire_plan.acquired, ShareGroup._plan_acquired

    def locked(before: Run, number: int, now_ms: int) -> Run:
        return acquired(before, number, now_ms, now_ms + 30_000)

    def plan_acquired(self: ShareGroup, record: PlanAcquired) -> None:
        planned(self, record)
        self.plans[record.plan_id].query = False

    patch.setattr(acquire_plan, "acquired", locked)
    patch.setitem(share_group._REPLAY, PlanAcquired, plan_acquired)


def renew_a_query_up_to_the_cap(patch: Patch) -> None:
    def renewed(group: ShareGroup, run: Run, config: Any, now_ms: int) -> Run:
        assert run.plan_id is not None
        plan = group.plans[run.plan_id]
        plan.query = False
        cap_ms = plan.acquired_ms + config.share_max_lock_extension_ms
        return run._replace(deadline_ms=min(now_ms + config.share_record_lock_duration_ms, cap_ms))

    patch.setattr(acknowledge, "_renewed", renewed)


def do_not_append_the_epoch(patch: Patch) -> None:
    patch.setattr(MemberJoined, "durable", False)


def lapsed_readers_ignore_newer_epochs(patch: Patch) -> None:
    patch.setattr(membership, "_same_process", lambda group, member, command: True)


def return_an_unused_plan_unchanged_to_anybody(patch: Patch) -> None:
    patch.setattr(reclaim_plan.Reclaim, "later_process", property(lambda self: False))


def reclaim_at_each_call(patch: Patch) -> None:
    right = decide._DECIDERS[StartOrReclaimPlan]

    def take_up(group: ShareGroup, command: Any, now_ms: int) -> Any:
        plan = group.members[command.member_id].newest
        if plan is not None:
            plan.member_epoch -= 1
        return right(group, command, now_ms)

    patch.setitem(decide._DECIDERS, StartOrReclaimPlan, take_up)


def ask_for_a_plan_at_each_call(patch: Patch) -> None:
    def partitions(self: ShareGroupStreamReader, start: Any, end: Any) -> Any:
        return self._start_plan(reader.PlanOffset.parse(end, self._options.group_id))

    patch.setattr(ShareGroupStreamReader, "partitions", partitions)


def tell_losses_without_archiving(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._sort_out

    def sort_out(self: reclaim_plan.Reclaim, key: Any, segment: Segment, log_start: int) -> None:
        if segment.last < log_start:
            self.data_loss.append(
                reclaim_plan.left_out_entry(self.group, key, segment.first, segment.last, "data_loss")
            )
        else:
            right(self, key, segment, log_start)

    patch.setattr(reclaim_plan.Reclaim, "_sort_out", sort_out)


def a_plan_that_fails_for_a_loss_is_used(patch: Patch) -> None:
    right = ShareGroup._plan_started

    def taken_up(self: ShareGroup, record: PlanStarted) -> None:
        right(self, record)
        newest = self.members[record.member_id].newest
        assert newest is not None
        newest.started = True

    patch.setitem(share_group._REPLAY, PlanStarted, taken_up)


def never_fail_for_a_loss(patch: Patch) -> None:
    def take_up(self: ShareGroupStreamReader, offset: Any) -> Any:
        session = self._joined_as(offset.member_id)
        reply = session.call(reader.StartPlan, plan_id=offset.plan_id, fail_on_data_loss=True)
        return [reader.TaskPartition(task) for task in self._tasks(reply.plan, session.isolation_level)]

    patch.setattr(ShareGroupStreamReader, "_start_plan", take_up)


def available_now_has_no_end(patch: Patch) -> None:
    right = transactions.bounds
    patch.setattr(transactions, "bounds", lambda partitions, facts, until: right(partitions, facts, None))


def available_now_is_not_known(patch: Patch) -> None:
    patch.setattr(ShareGroupStreamReader, "prepareForTriggerAvailableNow", lambda self: None)


def available_now_until_everything_is_acknowledged(patch: Patch) -> None:
    """An answer that is not `start` as long as anything is not delivered to completion."""
    right = ShareGroupStreamReader.latestOffset

    def latest(self: ShareGroupStreamReader, start: Any, limit: Any) -> Any:
        end = right(self, start, limit)
        group = self._session._client.group  # type: ignore[union-attr]
        undone = any(run.state in (0, 1) for _, _, run in group.partition().runs)
        return {**end, "asked": start.get("asked", 0) + 1} if undone else end

    patch.setattr(ShareGroupStreamReader, "latestOffset", latest)


def backoff_is_over_at_once(patch: Patch) -> None:
    right = acquire_plan.Acquisition._take_quarantined

    def take(self: acquire_plan.Acquisition, bounds: Any, *, on_trial: bool) -> bool:
        self.now_ms += 60_000
        return right(self, bounds, on_trial=on_trial)

    patch.setattr(acquire_plan.Acquisition, "_take_quarantined", take)


def take_trigger_once(patch: Patch) -> None:
    patch.setattr(reader, "ReadAllAvailable", type("Never", (ReadLimit,), {}))


def a_fenced_reader_joins_again(patch: Patch) -> None:
    def call(self: MemberSession, request: Any, **fields: Any) -> Any:
        try:
            return self._call(request, fields)
        except FencedMemberEpoch:
            self._fenced = None
            again = JoinGroup(group_id=self.group_id, member_id=self.member_id, process_id="again")
            self._joined = self._client.call(again)
            return self._call(request, fields)

    patch.setattr(MemberSession, "call", call)


def a_fenced_reader_asks_on(patch: Patch) -> None:
    right = MemberSession._call

    def call(self: MemberSession, request: Any, fields: Any) -> Any:
        self._fenced = None
        return right(self, request, fields)

    patch.setattr(MemberSession, "_call", call)


def a_lapsed_reader_comes_back_as_a_new_process(patch: Patch) -> None:
    def again(self: MemberSession) -> None:
        self._joined = self._client.call(JoinGroup(group_id="billing", member_id=self.member_id, process_id="again"))

    patch.setattr(MemberSession, "_join_again", again)


def leave_while_something_is_acquired(patch: Patch) -> None:
    patch.setattr(SharePartition, "acquired_count", 0)


def leave_while_something_is_delayed(patch: Patch) -> None:
    patch.setattr(SharePartition, "waits", lambda self, now_ms: False)


def leave_while_a_dead_letter_waits(patch: Patch) -> None:
    patch.setattr(DeadLetterDispatcher, "may_rest", lambda self: True)


def wait_for_letters_that_nobody_can_write(patch: Patch) -> None:
    patch.setattr(DeadLetterDispatcher, "may_rest", lambda self: not self._slots)


def leave_when_nobody_asks(patch: Patch) -> None:
    patch.setattr(Coordinator, "wait_until_idle", lambda self, told: "idle")


MISTAKES: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (leave_while_something_is_acquired, shell.test_on_demand_does_not_leave_while_something_is_acquired),
    (leave_while_something_is_delayed, shell.test_on_demand_does_not_leave_while_something_is_delayed),
    (
        leave_while_something_is_delayed,
        shell.test_on_demand_does_not_leave_while_a_record_that_was_set_aside_backs_off,
    ),
    (leave_while_a_dead_letter_waits, shell.test_on_demand_does_not_leave_while_a_dead_letter_waits),
    (
        wait_for_letters_that_nobody_can_write,
        shell.test_on_demand_leaves_when_the_letters_that_wait_need_a_person,
    ),
    (leave_when_nobody_asks, shell.test_on_demand_leaves_when_it_is_idle_but_not_while_a_member_is_there),
    (
        do_not_append_the_start_offset,
        shell.test_the_start_offset_that_a_policy_resolved_is_appended_before_the_first_acquire,
    ),
    (
        resolve_the_start_offset_at_the_first_acquire,
        shell.test_the_start_offset_that_a_policy_resolved_is_appended_before_the_first_acquire,
    ),
    (
        acquire_without_a_start_offset,
        shell.test_a_partition_that_came_later_has_its_start_appended_before_its_first_acquire,
    ),
    (leave_live_plans_out_of_snapshots, promises.test_a_snapshot_appends_live_plans_and_numbers_again),
    (leave_numbers_out_of_snapshots, promises.test_a_snapshot_appends_live_plans_and_numbers_again),
    (forget_newest_plans_without_runs, promises.test_newest_plan_without_runs_replays_empty),
    (nobody_comes_back_after_a_load, promises.test_after_a_load_every_holder_has_one_session_to_come_back),
    (no_time_to_come_back_after_a_load, promises.test_after_a_load_every_holder_has_one_session_to_come_back),
    (keep_the_number_on_release, promises.test_release_cut_and_setting_aside_clear_the_number),
    (keep_the_number_on_a_cut, promises.test_release_cut_and_setting_aside_clear_the_number),
    (keep_the_number_on_setting_aside, promises.test_release_cut_and_setting_aside_clear_the_number),
    (a_lock_duration_for_queries_too, promises.test_limits_of_time_never_end_a_querys_lock),
    (renew_a_query_up_to_the_cap, promises.test_the_renewal_cap_never_applies_to_a_query),
    (do_not_append_the_epoch, promises.test_epoch_outlives_the_session),
    (lapsed_readers_ignore_newer_epochs, promises.test_epoch_outlives_the_session),
    (a_fenced_reader_joins_again, source.test_a_fenced_reader_fails_by_name_and_never_rejoins_by_itself),
    (a_fenced_reader_asks_on, source.test_a_fenced_reader_fails_by_name_and_never_rejoins_by_itself),
    (a_lapsed_reader_comes_back_as_a_new_process, source.test_a_lapsed_reader_comes_back_naming_its_epoch),
    (return_an_unused_plan_unchanged_to_anybody, promises.test_a_later_process_reclaims),
    (take_any_plan_up, promises.test_an_old_plan_is_refused_by_name),
    (refuse_a_plan_that_was_given_up_for_ever, given_up.test_it_is_taken_up_empty_and_what_took_its_place_goes_back),
    (
        keep_what_took_the_place_of_a_given_up_plan,
        given_up.test_it_is_taken_up_empty_and_what_took_its_place_goes_back,
    ),
    (
        take_a_given_up_plan_up_in_spite_of_the_newest,
        given_up.test_of_two_drivers_on_one_checkpoint_the_first_to_use_its_plan_wins,
    ),
    (forget_what_was_given_up, given_up.test_its_state_outlives_the_coordinator),
    (reclaim_at_each_call, promises.test_partitions_is_idempotent_per_process_and_end),
    (ask_for_a_plan_at_each_call, source.test_partitions_is_asked_for_once_per_process_and_end),
    (tell_losses_without_archiving, promises.test_offsets_below_log_start_are_archived_then_fail_once),
    (
        tell_losses_without_archiving,
        source.test_data_loss_fails_the_query_once_by_name_and_goes_on_after_a_restart,
    ),
    (
        a_plan_that_fails_for_a_loss_is_used,
        source.test_data_loss_fails_the_query_once_by_name_and_goes_on_after_a_restart,
    ),
    (never_fail_for_a_loss, source.test_data_loss_fails_the_query_once_by_name_and_goes_on_after_a_restart),
    (available_now_has_no_end, source.test_available_now_drains_what_was_there_when_it_began_and_ends),
    (available_now_is_not_known, source.test_available_now_drains_what_was_there_when_it_began_and_ends),
    (
        available_now_until_everything_is_acknowledged,
        source.test_available_now_does_not_wait_for_the_locks_of_others,
    ),
    (backoff_is_over_at_once, source.test_available_now_does_not_wait_for_backoff),
    (take_trigger_once, source.test_trigger_once_is_refused_by_name),
]
