"""Resets, deletions and decisions by hand: what an administrator's action must leave as it is."""

from __future__ import annotations

from typing import Any

import msgspec

from coordinator.core import replay
from coordinator.core.commands import AlterConfigs, actions, administer
from coordinator.core.log_records import GroupDeleted, OffsetsAltered
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.admin_messages import AlterOffsets
from coordinator.protocol.admin_messages import OffsetChanges as Altered
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.brokers.partition_starts import Known
from coordinator.service.brokers.subscription import TopicIdPartition
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.handlers import admin_actions
from coordinator.service.handlers import admin_requests as admin
from coordinator.service.runtime import transactions
from coordinator.service.runtime.transaction import Access, Groups
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, mistake

TESTS = "core/test_administer::test_"
PREVIEWS = "core/test_previews::test_"
ONCE = "service/test_actions_once::test_"
BY_PARTITION = "service/test_offsets_by_partition::test_"


@mistake(rules.RESET_KEEPS_COUNTS, simulator=(Seeds("administration"),), model=0)
def count_deliveries_from_0_after_a_reset(patch: Patch) -> None:
    def redeliver(self: SharePartition, end_offset: int) -> None:
        self.highest_count = 0

    patch.setattr(SharePartition, "redeliver", redeliver)


@mistake(rules.RESET_TAKES_FROM_PLANS, simulator=(Seeds("administration"),), model=0)
def keep_plan_ids_in_a_reset(patch: Patch) -> None:
    right = SharePartition.altered

    def altered(self: SharePartition, start_offset: int, altered_after: int) -> SharePartition:
        anew = right(self, start_offset, altered_after)
        held = [(first, last, run) for first, last, run in self.runs if run.plan_id and first >= start_offset]
        anew.apply([(f, e, run._replace(state=RecordState.AVAILABLE, deadline_ms=None)) for f, e, run in held])
        return anew

    def alter(self: ShareGroup, record: OffsetsAltered) -> None:
        kept = dict(self.plans)
        held = {plan_id: set(keys) for plan_id, keys in self.holders.items()}
        right_alter(self, record)
        self.plans, self.holders = kept, held

    right_alter = replay._REPLAY[OffsetsAltered]
    patch.setattr(SharePartition, "altered", altered)
    patch.setitem(replay._REPLAY, OffsetsAltered, alter)


@mistake(rules.DEAD_LETTER_FIRST, model=2)
def drop_waiting_dead_letters_in_a_reset(patch: Patch) -> None:
    right = SharePartition.altered

    def altered(self: SharePartition, start_offset: int, altered_after: int) -> SharePartition:
        for first, last, run in list(self.runs.archiving_from(0)):
            self.runs.put(first, last, Run(RecordState.ARCHIVED, run.delivery_count))
        return right(self, start_offset, altered_after)

    patch.setattr(SharePartition, "altered", altered)


@mistake(rules.RESET_TAKES_FROM_PLANS, rules.DELETED_GROUP_LEAVES_NOTHING, model=0)
def reset_a_group_with_members(patch: Patch) -> None:
    patch.setattr(administer, "_check_empty", lambda *_, **__: None)


@mistake(rules.SESSION_HAS_ITS_TIME, model=8)
def take_a_group_for_empty_right_after_a_load(patch: Patch) -> None:
    patch.setattr(administer, "_check_heard", lambda *_: None)


@mistake(rules.HELD_RECORDS_ARE_THEIR_HOLDERS, simulator=(Seeds("administration"),), model=0)
def archive_by_hand_what_a_member_holds(patch: Patch) -> None:
    patch.setattr(administer, "_check_not_held", lambda group, command, segment: None)


@mistake(rules.TRIES_BEGIN_ANEW_BY_HAND, model=1)
def leave_a_record_released_by_hand_with_its_trial(patch: Patch) -> None:
    right = administer._by_hand

    def by_hand(group: ShareGroup, command: Any, run: Run) -> Run | None:
        after = right(group, command, run)
        return None if after is None else after._replace(plan_id=run.plan_id)

    patch.setattr(administer, "_by_hand", by_hand)


@mistake(rules.TRIES_BEGIN_ANEW_BY_HAND, model=0)
def keep_the_tries_of_a_record_released_by_hand(patch: Patch) -> None:
    right = administer._by_hand

    def by_hand(group: ShareGroup, command: Any, run: Run) -> Run | None:
        after = right(group, command, run)
        if after is None or command.decision == administer.ARCHIVE:
            return after
        return after._replace(failures=run.failures, releases=run.releases)

    patch.setattr(administer, "_by_hand", by_hand)


@mistake(rules.RESET_KEEPS_COUNTS, model=0)
def forget_what_was_handed_out_of_deleted_offsets(patch: Patch) -> None:
    def alter(self: ShareGroup, record: OffsetsAltered) -> None:
        right(self, record)
        self.deleted_partitions.clear()

    right = replay._REPLAY[OffsetsAltered]
    patch.setitem(replay._REPLAY, OffsetsAltered, alter)


@mistake(rules.DELETED_GROUP_LEAVES_NOTHING, model=4)
def leave_the_members_of_a_deleted_group(patch: Patch) -> None:
    def delete(self: ShareGroup, record: GroupDeleted) -> None:
        members = dict(self.members)
        right(self, record)
        self.members = members

    right = replay._REPLAY[GroupDeleted]
    patch.setitem(replay._REPLAY, GroupDeleted, delete)


@mistake(
    rules.DEAD_LETTER_FIRST, tests=(TESTS + "offsets_with_unwritten_dead_letters_are_deleted_by_force_only",), model=1
)
def delete_offsets_whose_dead_letters_wait(patch: Patch) -> None:
    patch.setattr(administer, "_check_dead_letters", lambda *_: None)


@mistake(rules.RESET_IS_ONE, simulator=(Seeds("administration"),))
def reset_each_partition_in_an_append_of_its_own(patch: Patch) -> None:
    right = admin.alter_offsets

    def alter(groups: Groups, cluster: KafkaCluster, doubts: TopicDoubts, request: AlterOffsets) -> Altered:
        view = groups.call(request.group_id, admin_actions._look, Access.CLAIM if request.force else Access.SERVE)
        for p in [] if request.topics else sorted(view.starts):
            right(groups, cluster, doubts, msgspec.structs.replace(request, topics={p.topic: (p.partition,)}))
        return right(groups, cluster, doubts, request)

    patch.setattr(admin, "alter_offsets", alter)


@mistake(
    rules.ACTION_IS_CARRIED_OUT_ONCE,
    tests=(
        ONCE + "a_forced_reset_that_is_sent_twice_delivers_records_again_once",
        ONCE + "records_released_by_hand_twice_stay_with_who_acquired_them_since",
    ),
    simulator=(Seeds("administration"),),
)
def carry_an_action_out_each_time_it_is_sent(patch: Patch) -> None:
    for module in (actions, admin_actions):
        patch.setattr(module, "answer_of", lambda group, request: None)


@mistake(
    rules.ACTION_IS_CARRIED_OUT_ONCE,
    tests=(ONCE + "an_action_is_carried_out_once_though_a_crash_loses_its_answer",),
    simulator=(Seeds("administration"),),
)
def remember_an_action_in_an_append_of_its_own(patch: Patch) -> None:
    right = admin_actions.call_action

    def call(groups: Groups, request: Any, transaction: Any) -> Any:
        answer = right(groups, msgspec.structs.replace(request, action_id=""), transaction)
        if request.execute and request.action_id:
            remember = actions.RememberAction(action_id=request.action_id, answer=answer)
            groups.call(request.group_id, lambda group: admin_actions.ask(remember))
        return answer

    patch.setattr(admin_actions, "call_action", call)


@mistake(
    rules.ACTION_IS_CARRIED_OUT_ONCE,
    tests=(
        ONCE + "an_action_that_arrives_after_another_one_is_refused",
        ONCE + "a_group_made_anew_is_not_deleted_by_a_late_request",
        ONCE + "the_session_of_a_member_that_joined_again_is_not_ended_late",
        ONCE + "records_that_were_acquired_since_are_not_released_late",
    ),
)
def carry_out_what_comes_late(patch: Patch) -> None:
    patch.setattr(admin_actions, "check_seen", lambda group, request: None)


@mistake(rules.ACTION_IS_CARRIED_OUT_ONCE, tests=(ONCE + "a_join_that_is_sent_again_leaves_later_configs",))
def set_configs_with_each_join_that_is_sent_again(patch: Patch) -> None:
    right = transactions.join

    def join(request: Any, **facts: Any) -> Any:
        def steps(group: ShareGroup) -> Any:
            joined = yield from right(request, **facts)(group)
            if request.configs and request.member_epoch is None:
                yield from admin_actions.ask(AlterConfigs(configs=request.configs))
            return joined

        return steps

    patch.setattr(transactions, "join", join)


@mistake(
    rules.OFFSETS_ARE_BY_ID_AND_PARTITION,
    tests=(
        BY_PARTITION + "deleted_offsets_begin_where_the_next_member_starts",
        BY_PARTITION + "an_assigned_partition_begins_where_its_first_member_starts",
    ),
)
def take_any_subscription_to_a_topic_for_its_start(patch: Patch) -> None:
    def has(self: Known, p: TopicIdPartition) -> bool:
        return p.topic in self.topics or any(subscription.has(p.topic) for subscription in self.subscriptions)

    patch.setattr(Known, "has", has)


@mistake(
    rules.OFFSETS_ARE_BY_ID_AND_PARTITION,
    tests=(
        BY_PARTITION + "a_reset_of_all_topics_leaves_out_deleted_ones_by_name",
        BY_PARTITION + "a_reset_of_all_topics_touches_no_topic_that_was_made_anew",
    ),
)
def reset_deleted_topics_too(patch: Patch) -> None:
    patch.setattr(admin_actions, "_existing", lambda cluster, doubts, request, view: (list(view.starts), ()))


@mistake(rules.A_PREVIEW_IS_TRUE, tests=(PREVIEWS + "a_reset_says_how_many_done_records_above_the_start_come_again",))
def leave_done_records_above_the_start_out_of_a_preview(patch: Patch) -> None:
    patch.setattr(administer, "_AGAIN", {})
