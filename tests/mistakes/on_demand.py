"""A coordinator on demand: when it may leave."""

from __future__ import annotations

from coordinator.service import on_demand
from coordinator.service.dead_letters.dispatcher import DeadLetterDispatcher
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, mistake


@mistake(
    rules.LEAVES_WHEN_IDLE, tests=("service/test_on_demand_leaves::test_a_coordinator_stays_while_a_dead_letter_waits",)
)
def leave_while_a_dead_letter_waits(patch: Patch) -> None:
    patch.setattr(DeadLetterDispatcher, "may_rest", lambda self: True)


@mistake(
    rules.LEAVES_WHEN_IDLE,
    tests=("service/test_on_demand_leaves::test_a_coordinator_leaves_when_dead_letters_need_a_person",),
)
def wait_for_dead_letters_that_nobody_can_write(patch: Patch) -> None:
    patch.setattr(DeadLetterDispatcher, "may_rest", lambda self: not self._slots)


@mistake(
    rules.LEAVES_WHEN_IDLE,
    tests=("service/test_on_demand_leaves::test_a_coordinator_leaves_when_idle_but_not_while_a_member_is_there",),
)
def leave_when_nobody_asks(patch: Patch) -> None:
    patch.setattr(on_demand, "wait_until_idle", lambda coordinator, told: "idle")
