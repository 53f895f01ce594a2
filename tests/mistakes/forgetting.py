"""Members that are forgotten: too early, with what they hold, or as if they had never been; and what nobody forgets."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from coordinator.core import decide, replay
from coordinator.core.commands import Decision, forget, membership
from coordinator.core.log_records import MemberSeen, MembersForgotten
from coordinator.core.members import Member
from coordinator.core.plan_state import PlanState
from coordinator.core.replays import partition_replay as partitions
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import Joined, JoinGroup
from coordinator.service.runtime.runtime import CoordinatorRuntime
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, mistake

Members = Callable[[ShareGroup, int], tuple[tuple[str, ...], int]]


@mistake(rules.HOLDERS_ARE_NOT_FORGOTTEN, simulator=(Seeds("members"),), model=0)
def forget_members_that_hold_records(patch: Patch) -> None:
    right: Members = forget._members

    def members(group: ShareGroup, now_ms: int) -> tuple[tuple[str, ...], int]:
        plans, group.plans = group.plans, {}
        try:
            return right(group, now_ms)
        finally:
            group.plans = plans

    patch.setattr(forget, "_members", members)


@mistake(rules.HOLDERS_ARE_NOT_FORGOTTEN, simulator=(Seeds("members", 3),), model=12)
def forget_members_half_an_hour_early(patch: Patch) -> None:
    right: Members = forget._members
    patch.setattr(forget, "_members", lambda group, now_ms: right(group, now_ms + 1_800_000))


@mistake(rules.HOLDERS_ARE_NOT_FORGOTTEN, simulator=(Seeds("members", 158),), model=0)
def log_a_member_that_is_back_at_its_first_heartbeat_only(patch: Patch) -> None:
    """A coordinator that dies before knows of no session, and forgets the member as if it were still away."""
    right = membership.join

    def join(group: ShareGroup, command: JoinGroup, now_ms: int) -> Decision[Joined]:
        decision = right(group, command, now_ms)
        records = tuple(record for record in decision.records if not isinstance(record, MemberSeen))
        return msgspec.structs.replace(decision, records=records)

    patch.setitem(decide._DECIDERS, JoinGroup, join)


@mistake(rules.FORGOTTEN_STAYS_FORGOTTEN, simulator=(Seeds("members"),), model=0)
def give_epochs_of_forgotten_members_again(patch: Patch) -> None:
    right = replay._REPLAY[MembersForgotten]

    def forgotten(self: ShareGroup, record: MembersForgotten) -> None:
        right(self, msgspec.structs.replace(record, forgotten_epoch=0))

    patch.setitem(replay._REPLAY, MembersForgotten, forgotten)


@mistake(rules.FORGOTTEN_STAYS_FORGOTTEN, simulator=(Seeds("members", 22),), model=26)
def begin_anew_for_a_query_that_was_forgotten(patch: Patch) -> None:
    """The plan in the checkpoint of a forgotten query counts as completed; the checkpoint may be an old copy."""
    right = Member.plan_state

    def state(self: Member, plan_id: int) -> PlanState:
        return PlanState.COMPLETED if self.newest is None else right(self, plan_id)

    patch.setattr(Member, "plan_state", state)


@mistake(rules.NOTHING_GROWS_WITH_AGE, year="a_new_checkpoint_each_time")
def never_forget_a_member(patch: Patch) -> None:
    patch.setattr(forget, "_members", lambda group, now_ms: ((), now_ms + 3_600_000))


@mistake(rules.NOTHING_GROWS_WITH_AGE, year="the_same_checkpoint_each_time")
def never_snapshot(patch: Patch) -> None:
    patch.setattr(CoordinatorRuntime, "_snapshot", lambda *a: None)


@mistake(rules.NOTHING_GROWS_WITH_AGE, year="the_same_checkpoint_each_time")
def keep_all_processes_of_a_member(patch: Patch) -> None:
    """A query that is started again each minute from its checkpoint is one member."""
    patch.setattr(membership, "FENCED_PROCESSES_KEPT", 10**9)


@mistake(rules.NOTHING_GROWS_WITH_AGE, year="a_new_checkpoint_each_time")
def keep_plans_that_no_run_carries(patch: Patch) -> None:
    patch.setattr(partitions, "_drop_plans_nobody_carries", lambda *a: None)


@mistake(
    rules.NOTHING_GROWS_WITH_AGE,
    tests=("core/test_forgotten_topics::test_a_deleted_topic_is_forgotten_and_its_counts_are_kept",),
    year="dated_topics",
)
def never_forget_a_topic(patch: Patch) -> None:
    patch.setattr(forget, "_topics", lambda group, now_ms: ([], False))


@mistake(
    rules.OFFSETS_ARE_ACCOUNTED_FOR,
    tests=("core/test_forgotten_topics::test_a_deleted_topic_is_forgotten_and_its_counts_are_kept",),
    model=0,
)
def drop_the_counts_of_forgotten_partitions(patch: Patch) -> None:
    patch.setattr(partitions, "_drop", lambda group, partition: None)


@mistake(
    rules.HELD_TOPICS_ARE_KEPT,
    tests=("core/test_forgotten_topics::test_a_topic_is_kept_until_its_dead_letters_are_written",),
    model=39,
)
def forget_topics_whose_records_are_not_done(patch: Patch) -> None:
    patch.setattr(forget, "_is_over", lambda partition: True)


@mistake(
    rules.FORGOTTEN_TOPIC_REPEATS_NOTHING,
    tests=("core/test_forgotten_topics::test_a_topic_that_is_back_after_it_is_forgotten_repeats_no_record",),
)
def begin_a_forgotten_topic_at_the_start_policy(patch: Patch) -> None:
    patch.setattr(ShareGroup, "forgotten_end", lambda self, key: (0, 0))
