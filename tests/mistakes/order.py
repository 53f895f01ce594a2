"""Order by partition: one holder, a prefix, and a part for each member that waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from coordinator.config.resolved import GroupConfig
from coordinator.core import order
from coordinator.core.commands import acknowledge, acquisition, membership, reclaim_plan
from coordinator.core.commands import acquire_for_consumer as acquire_records
from coordinator.core.commands import acquire_for_query as acquire_plan
from coordinator.core.commands.held_records import NamedOffsets
from coordinator.core.record_state import HELD
from coordinator.core.runs import Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, SmallWorld, mistake
from tests.model.walk import ORDERED
from tests.protocol.setting import Budget
from tests.protocol.worlds import ORDERED as IN_ORDER

TESTS = "core/test_order::test_"


def _when_acquiring(patch: Patch, name: str, function: Any) -> None:
    for module in (acquire_plan, acquire_records):
        patch.setattr(module, name, function)


@mistake(
    rules.ORDER_HAS_ONE_HOLDER,
    explorer=(SmallWorld(IN_ORDER, Budget(1, expiries=1, pauses=1)),),
    simulator=(Seeds("order", 0),),
    model=ORDERED,
)
def let_two_members_hold_a_partition(patch: Patch) -> None:
    _when_acquiring(patch, "free", lambda group, member, logs, now_ms, available_ms: logs)


@mistake(rules.ORDER_IS_A_PREFIX, simulator=(Seeds("order", 3),), model=ORDERED)
def pass_over_what_waits(patch: Patch) -> None:
    def returned(group: ShareGroup, partition: SharePartition, end: int, now_ms: int) -> Iterator[Segment]:
        for first, last, run in partition.runs.available(now_ms):
            if (first := max(first, partition.start_offset)) <= (last := min(last, end - 1)):
                yield Segment(first, last, run)

    _when_acquiring(patch, "returned", returned)


@mistake(rules.ORDER_IS_A_PREFIX, simulator=(Seeds("order", 1),), model=ORDERED)
def take_fresh_records_past_what_waits(patch: Patch) -> None:
    _when_acquiring(patch, "may_take_fresh", lambda group, partition, taken: True)


@mistake(rules.ORDER_IS_A_PREFIX, simulator=(Seeds("order", 22),), model=ORDERED)
def try_a_record_alone_out_of_turn(patch: Patch) -> None:
    _when_acquiring(patch, "delivered_alone", lambda group, partition: partition.runs.quarantined())


@mistake(rules.ORDER_ENDS_EARLIER_PLANS, model=ORDERED)
def leave_earlier_plans_their_rest(patch: Patch) -> None:
    patch.setattr(acquisition, "earlier_plans_ended", lambda group, held: held)


@mistake(rules.ORDER_TAKES_ALONG, simulator=(Seeds("order", 22),), model=ORDERED)
def keep_what_follows_a_quarantined_record_at_a_reclaim(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._cut

    def cut(self: reclaim_plan.Reclaim) -> None:
        self.first_left.clear()
        right(self)

    patch.setattr(reclaim_plan.Reclaim, "_cut", cut)


@mistake(rules.ORDER_TAKES_ALONG, simulator=(Seeds("order", 21),), model=ORDERED)
def keep_the_middle_of_a_batch_at_a_cut(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._return

    def returned(self: reclaim_plan.Reclaim, key: Any, segment: Segment) -> None:
        left = dict(self.first_left)
        right(self, key, segment)
        self.first_left = left

    patch.setattr(reclaim_plan.Reclaim, "_return", returned)


@mistake(rules.ORDER_TAKES_ALONG, model=ORDERED)
def keep_what_follows_a_quarantined_record_at_a_sessions_end(patch: Patch) -> None:
    right = membership.end_session

    def end_session(*of: Any, **how: Any) -> Any:
        with mock.patch.object(GroupConfig, "is_ordered", False):
            return right(*of, **how)

    patch.setattr(membership, "end_session", end_session)


@mistake(rules.ORDER_TAKES_ALONG, model=ORDERED + 30)
def keep_what_was_released_by_hand_at_a_sessions_end(patch: Patch) -> None:
    right = membership._carried
    patch.setattr(membership, "_carried", lambda group, plan: [c for c in right(group, plan) if c[1].run.state in HELD])


@mistake(rules.ORDER_TAKES_ALONG, simulator=(Seeds("order", 2),), model=ORDERED)
def keep_later_locks_when_a_lock_ends(patch: Patch) -> None:
    patch.setattr(membership, "given_back", lambda run: run)


@mistake(rules.ORDER_TAKES_ALONG, model=ORDERED)
def keep_later_records_after_a_release(patch: Patch) -> None:
    patch.setattr(acknowledge, "_give_back_later", lambda *of: None)


@mistake(rules.ORDER_TAKES_ALONG, model=ORDERED)
def keep_a_record_before_another_run_that_is_named(patch: Patch) -> None:
    right = NamedOffsets.others

    def others(self: NamedOffsets, segment: Segment) -> Iterator[tuple[int, int]]:
        if not any(first > segment.last for first, _ in self._ranges):
            yield from right(self, segment)

    patch.setattr(NamedOffsets, "others", others)


@mistake(rules.ORDER_LEAVES_A_PART, model=ORDERED)
def leave_nothing_to_a_member_that_waits(patch: Patch) -> None:
    _when_acquiring(patch, "waits", lambda group, member, logs, now_ms: ())


@mistake(rules.ORDER_LEAVES_A_PART, model=ORDERED + 30)
def leave_a_part_to_a_member_that_may_not_acquire_it(patch: Patch) -> None:
    patch.setattr(order, "_wanted", lambda group, others, keys: (len(others), set(keys)))


@mistake(rules.ORDER_LEAVES_A_PART, tests=(TESTS + "the_part_of_an_available_now_run_is_what_it_may_acquire",))
def give_an_available_now_run_what_it_released_as_its_part(patch: Patch) -> None:
    right = order.has_work
    patch.setattr(order, "has_work", lambda group, log, end, now_ms, _: right(group, log, end, now_ms, now_ms))


@mistake(
    rules.ORDER_IS_NOT_CHANGED_IN_USE,
    tests=(TESTS + "order_does_not_change_while_a_query_may_come_back",),
    model=ORDERED,
)
def change_the_order_while_records_are_held(patch: Patch) -> None:
    patch.setattr(membership, "check_order_may_change", lambda group, config: None)
