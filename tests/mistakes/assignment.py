"""The assignment of partitions to ShareConsumers: its epoch, members that are gone, and partitions that are revoked."""

from __future__ import annotations

from coordinator.core import replay
from coordinator.core.commands import acknowledge
from coordinator.core.commands.acquire_for_consumer import may_acquire
from coordinator.core.log_records import AssignmentMade, SessionEnded
from coordinator.core.runs import Segment
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.values import SharePartitionKey
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, mistake

OF_ASSIGNMENTS = "core/test_assignment::"


@mistake(rules.ASSIGNMENT_EPOCH_NEVER_FALLS, model=0)
def begin_the_assignment_epochs_anew(patch: Patch) -> None:
    """A later owner counts from the last snapshot on."""
    patch.setattr(AssignmentMade, "durable", False)


@mistake(
    rules.EVERY_PARTITION_IS_ASSIGNED,
    tests=(f"{OF_ASSIGNMENTS}test_the_partitions_of_a_member_that_left_are_assigned_again",),
    simulator=(Seeds(),),
    model=15,
)
def keep_the_partitions_of_a_lost_member(patch: Patch) -> None:
    right = replay._REPLAY[SessionEnded]

    def session_ended(group: ShareGroup, record: SessionEnded) -> None:
        was_old = group.assignment_is_old
        right(group, record)
        group.assignment_is_old = was_old

    patch.setitem(replay._REPLAY, SessionEnded, session_ended)


@mistake(rules.REVOKED_IS_STILL_HELD, model=0)
def refuse_what_a_revoked_member_acknowledges(patch: Patch) -> None:
    right = acknowledge.check_held

    def check(group: ShareGroup, member_id: str, delivery_count: int, segment: Segment) -> None:
        right(group, member_id, delivery_count, segment)
        topic_id, index, _ = group.plans[segment.run.plan_id or 0].ranges[0]
        if not may_acquire(group, group.members[member_id], SharePartitionKey(topic_id, index)):
            right(group, "", delivery_count, segment)

    patch.setattr(acknowledge, "check_held", check)
