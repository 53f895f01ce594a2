"""Members: epochs, sessions, locks, receipts, and time in which the coordinator heard nobody."""

from __future__ import annotations

from typing import Any

from coordinator.core import decide, due_times, replay
from coordinator.core.commands import Decision, Expire, ExtendDeadlines, acknowledge, acquisition, membership
from coordinator.core.due_times import LockIndex
from coordinator.core.members import Member
from coordinator.core.records import DeadlinesPassed, MemberJoined, PlanAcquired, Record, RunsChanged
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import Done
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, SmallWorld, mistake
from tests.protocol.setting import Budget
from tests.protocol.worlds import CONSUMER, ONE_RECORD


@mistake(
    {
        rules.EPOCH_OUTLIVES_SESSION: ("core/test_membership::test_fenced_reader_never_rejoins",),
    },
    simulator=(Seeds(),),
)
def skip_the_epoch_check(patch: Patch) -> None:
    patch.setattr(ShareGroup, "check_epoch", lambda *a: None)


@mistake(
    {
        rules.EPOCH_OUTLIVES_SESSION: ("core/test_membership::test_epoch_outlives_the_session",),
    },
)
def forget_fenced_processes(patch: Patch) -> None:
    patch.setattr(membership, "_same_process", lambda g, m, c: c.process_id == m.process_id)


@mistake(
    {
        rules.EPOCH_OUTLIVES_SESSION: ("core/test_membership::test_epoch_outlives_the_session",),
    },
    simulator=(Seeds(),),
)
def do_not_append_the_epoch(patch: Patch) -> None:
    patch.setattr(MemberJoined, "durable", False)


@mistake(
    {
        rules.EPOCH_OUTLIVES_SESSION: ("core/test_membership::test_epoch_outlives_the_session",),
    },
)
def lapsed_readers_ignore_newer_epochs(patch: Patch) -> None:
    patch.setattr(membership, "_same_process", lambda group, member, command: True)


@mistake(
    {
        rules.QUERYS_LOCK_LIVES_WITH_ITS_SESSION: ("core/test_locks::test_limits_of_time_never_end_a_querys_lock",),
    },
)
def a_lock_duration_for_queries_too(patch: Patch) -> None:
    acquired, planned = acquisition.acquired, replay._REPLAY[PlanAcquired]

    def locked(before: Run, number: int, now_ms: int, deadline_ms: int | None) -> Run:
        return acquired(before, number, now_ms, now_ms + 30_000)

    def plan_acquired(self: ShareGroup, record: PlanAcquired) -> None:
        planned(self, record)
        self.plans[record.plan_id].query = False

    patch.setattr(acquisition, "acquired", locked)
    patch.setitem(replay._REPLAY, PlanAcquired, plan_acquired)


@mistake(
    {
        rules.QUERYS_LOCK_LIVES_WITH_ITS_SESSION: ("core/test_locks::test_the_renewal_cap_never_applies_to_a_query",),
    },
)
def renew_a_query_up_to_the_cap(patch: Patch) -> None:
    def renewed(group: ShareGroup, run: Run, config: Any, now_ms: int) -> Run:
        assert run.plan_id is not None
        plan = group.plans[run.plan_id]
        plan.query = False
        cap_ms = plan.acquired_ms + config.share_max_lock_extension_ms
        return run._replace(deadline_ms=min(now_ms + config.share_record_lock_duration_ms, cap_ms))

    patch.setattr(acknowledge, "_renewed", renewed)


@mistake(
    {
        rules.QUERYS_LOCK_LIVES_WITH_ITS_SESSION: (
            "core/test_membership::test_records_of_a_lost_member_are_available_again",
        ),
    },
    explorer=(SmallWorld(ONE_RECORD, Budget(1, departures=1)),),
)
def keep_the_records_of_a_member_that_is_gone(patch: Patch) -> None:
    """Harmless to a query that comes back; nobody gets the records of one that never does."""
    right = membership.end_session

    def end_session(group: ShareGroup, member: Member, now_ms: int, *, left: bool) -> list[Record]:
        records = right(group, member, now_ms, left=left)
        return records if left else [record for record in records if not isinstance(record, RunsChanged)]

    patch.setattr(membership, "end_session", end_session)


@mistake(
    {
        rules.UNREAD_IS_NO_TRY: ("core/test_acknowledge::test_records_that_a_member_could_not_read_cost_no_try",),
    },
)
def count_a_try_for_unread_records(patch: Patch) -> None:
    right = acknowledge.given_back
    patch.setattr(acknowledge, "given_back", lambda run: right(run)._replace(releases=run.releases + 1))


@mistake(
    {
        rules.RECEIPT_NAMES_ITS_DELIVERY: (
            "core/test_acknowledge::test_an_acknowledgement_of_an_older_delivery_is_refused",
        ),
    },
    explorer=(SmallWorld(CONSUMER, Budget(2, expiries=1, delays=1)),),
    simulator=(Seeds(),),
)
def forget_the_receipt(patch: Patch) -> None:
    right = acknowledge.check_held

    def check(group: Any, member_id: str, delivery_count: int, segment: Segment) -> None:
        run = segment.run._replace(delivery_count=delivery_count)
        right(group, member_id, delivery_count, segment._replace(run=run))

    patch.setattr(acknowledge, "check_held", check)


@mistake(
    {
        rules.STALL_IS_NOBODYS_SILENCE: ("core/test_membership::test_a_stall_ends_no_session_and_no_lock",),
    },
    explorer=(SmallWorld(ONE_RECORD, Budget(1, stalls=1)),),
    simulator=(Seeds("stalls", 550),),
    model=0,
)
def count_a_stall_as_silence(patch: Patch) -> None:
    patch.setitem(decide._DECIDERS, ExtendDeadlines, lambda group, command, now_ms: Decision((), Done()))


@mistake(
    {
        rules.STALL_IS_NOBODYS_SILENCE: (
            "core/test_membership::test_a_vanished_member_loses_its_records_also_among_many_stalls",
        ),
    },
    model=0,
)
def give_a_full_session_after_each_stall(patch: Patch) -> None:
    """A full session's time after each time in which nobody was heard."""
    right = membership.extend_deadlines

    def extend_deadlines(group: ShareGroup, command: ExtendDeadlines, now_ms: int) -> Decision:
        group.deadlines_extended_until_ms = 0
        return right(group, command, now_ms)

    patch.setitem(decide._DECIDERS, ExtendDeadlines, extend_deadlines)


@mistake(
    {
        rules.STALL_IS_NOBODYS_SILENCE: ("core/test_lock_index::test_after_a_stall_each_lock_has_a_sessions_time",),
    },
    model=4,
)
def give_no_lock_a_full_session_after_a_stall(patch: Patch) -> None:
    """Locks are extended by the time of the stall, and sessions alone to a full session's time."""
    right = LockIndex.extend
    patch.setattr(LockIndex, "extend", lambda self, by_ms, bound_ms: right(self, by_ms, None))


@mistake(
    {
        rules.STALL_IS_NOBODYS_SILENCE: ("core/test_lock_index::test_a_lock_given_after_a_stall_ends_in_its_own_time",),
    },
    model=8,
)
def extend_locks_that_are_given_after_the_stall(patch: Patch) -> None:
    right = due_times._parts
    patch.setattr(due_times, "_parts", lambda kept_ms: (-1, right(kept_ms)[1]))


@mistake(
    {
        rules.SESSION_HAS_ITS_TIME: (),
    },
    simulator=(Seeds(first=5),),
)
def expire_too_early(patch: Patch) -> None:
    """Whenever somebody expires, everybody expires who would within 10 s."""
    right = membership.expire
    patch.setitem(decide._DECIDERS, Expire, lambda group, command, now_ms: right(group, command, now_ms + 10_000))


@mistake(
    {
        rules.SESSION_HAS_ITS_TIME: ("core/test_locks::test_many_locks_that_end_at_once_end_over_several_rounds",),
    },
)
def forget_the_locks_after_the_first_part(patch: Patch) -> None:
    """An Expire that ends a part of the due locks takes the others for ended, too."""
    right = membership.expire

    def expire(group: ShareGroup, command: Expire, now_ms: int) -> Decision:
        decision = right(group, command, now_ms)
        return Decision((*decision.records, DeadlinesPassed(now_ms=now_ms, plan_ids=None)), decision.reply)

    patch.setitem(decide._DECIDERS, Expire, expire)
