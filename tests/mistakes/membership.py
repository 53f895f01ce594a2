"""Members: epochs, sessions, locks, receipts, and time in which the coordinator heard nobody."""

from __future__ import annotations

from typing import Any

from coordinator.core import decide, due_times
from coordinator.core.commands import Decision, Expire, ExtendDeadlines, acknowledge, membership
from coordinator.core.due_times import LockIndex
from coordinator.core.log_records import MemberJoined, Record, RunsChanged
from coordinator.core.members import Member
from coordinator.core.runs import Segment
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import Done
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, SmallWorld, mistake
from tests.protocol.setting import Budget
from tests.protocol.worlds import CONSUMER, ONE_RECORD


@mistake(rules.EPOCH_OUTLIVES_SESSION, simulator=(Seeds(),))
def skip_the_epoch_check(patch: Patch) -> None:
    patch.setattr(ShareGroup, "check_epoch", lambda *a: None)


@mistake(rules.EPOCH_OUTLIVES_SESSION, simulator=(Seeds(),))
def do_not_append_the_epoch(patch: Patch) -> None:
    patch.setattr(MemberJoined, "durable", False)


@mistake(rules.QUERYS_LOCK_LIVES_WITH_ITS_SESSION, explorer=(SmallWorld(ONE_RECORD, Budget(1, departures=1)),))
def keep_the_records_of_a_member_that_is_gone(patch: Patch) -> None:
    """Harmless to a query that comes back; nobody gets the records of one that never does."""
    right = membership.end_session

    def end_session(group: ShareGroup, member: Member, now_ms: int, *, left: bool) -> list[Record]:
        records = right(group, member, now_ms, left=left)
        return records if left else [record for record in records if not isinstance(record, RunsChanged)]

    patch.setattr(membership, "end_session", end_session)


@mistake(
    rules.UNREAD_IS_NO_TRY, tests=("core/test_acknowledge::test_records_that_a_member_could_not_read_cost_no_try",)
)
def count_a_try_for_unread_records(patch: Patch) -> None:
    right = acknowledge.given_back
    patch.setattr(acknowledge, "given_back", lambda run: right(run)._replace(releases=run.releases + 1))


@mistake(
    rules.RECEIPT_NAMES_ITS_DELIVERY,
    tests=("core/test_acknowledge::test_an_acknowledgement_of_an_older_delivery_is_refused",),
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
    rules.STALL_IS_NOBODYS_SILENCE,
    tests=("core/test_membership::test_a_stall_ends_no_session_and_no_lock",),
    explorer=(SmallWorld(ONE_RECORD, Budget(1, stalls=1)),),
    simulator=(Seeds("stalls", 550),),
    model=0,
)
def count_a_stall_as_silence(patch: Patch) -> None:
    patch.setitem(decide._DECIDERS, ExtendDeadlines, lambda group, command, now_ms: Decision((), Done()))


@mistake(rules.STALL_IS_NOBODYS_SILENCE, model=0)
def give_a_full_session_after_each_stall(patch: Patch) -> None:
    """A full session's time after each time in which nobody was heard."""
    right = membership.extend_deadlines

    def extend_deadlines(group: ShareGroup, command: ExtendDeadlines, now_ms: int) -> Decision:
        group.deadlines_extended_until_ms = 0
        return right(group, command, now_ms)

    patch.setitem(decide._DECIDERS, ExtendDeadlines, extend_deadlines)


@mistake(rules.STALL_IS_NOBODYS_SILENCE, model=4)
def give_no_lock_a_full_session_after_a_stall(patch: Patch) -> None:
    """Locks are extended by the time of the stall, and sessions alone to a full session's time."""
    right = LockIndex.extend
    patch.setattr(LockIndex, "extend", lambda self, by_ms, bound_ms: right(self, by_ms, None))


@mistake(rules.STALL_IS_NOBODYS_SILENCE, model=8)
def extend_locks_that_are_given_after_the_stall(patch: Patch) -> None:
    right = due_times._parts
    patch.setattr(due_times, "_parts", lambda kept_ms: (-1, right(kept_ms)[1]))


@mistake(
    rules.A_LOAD_OF_ITS_OWN_PROLONGS_NOTHING,
    tests=(
        "runtime/test_reloads::test_loads_give_a_member_that_is_gone_no_more_time",
        "runtime/test_reloads::test_loads_give_a_lock_that_is_over_no_more_time",
    ),
    simulator=(Seeds("signals", 8),),
)
def give_a_session_timeout_with_each_load(patch: Patch) -> None:
    right = ShareGroup.loaded
    patch.setattr(ShareGroup, "loaded", lambda self, now_ms, heard=None: right(self, now_ms))


@mistake(
    rules.A_LOAD_OF_ITS_OWN_PROLONGS_NOTHING,
    tests=("runtime/test_reloads::test_a_renewed_lock_stays_through_the_load",),
)
def forget_the_renewals_at_a_load_of_its_own(patch: Patch) -> None:
    right = ShareGroup.heard
    patch.setattr(ShareGroup, "heard", lambda self, *known: right(self, *known)._replace(locks={}, sessions={}))


@mistake(rules.SESSION_HAS_ITS_TIME, simulator=(Seeds(first=5),))
def expire_too_early(patch: Patch) -> None:
    """An expiry also expires everybody whose session would end within 10 s."""
    right = membership.expire
    patch.setitem(decide._DECIDERS, Expire, lambda group, command, now_ms: right(group, command, now_ms + 10_000))
