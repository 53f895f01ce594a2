"""Assign the group's partitions to its ShareConsumers (KIP-932; :mod:`coordinator.core.assignor`).

Rule: there is one assignment for all changes within share.assignment.interval.ms. Its epoch is durable, so that no
later owner goes back to a lower epoch. Who has which partition is soft state, as sessions are.
"""

from __future__ import annotations

from coordinator.core.assignor import assign
from coordinator.core.commands import AssignPartitions, Decision
from coordinator.core.log_records import AssignmentMade, PartitionsAssigned
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import Done


def assign_partitions(group: ShareGroup, command: AssignPartitions, now_ms: int) -> Decision[Done]:
    """Make a new assignment if the last one is old and the interval has passed. Partitions that have a start offset are
    assigned, if their topics exist."""
    if not group.assignment_is_old or now_ms - group.assigned_ms < group.config.share_assignment_interval_ms:
        return Decision((), Done())
    members = [group.members[member_id] for member_id in group.sessions if group.members[member_id].is_assigned]
    if not members:
        return Decision((), Done())
    assignable = group.existing_partitions()
    subscriptions = {
        member.subscription: frozenset(t for t in assignable if member.subscribes(group.topic_names[t]))
        for member in {member.subscription: member for member in members}.values()
    }
    subscribed = {member.member_id: subscriptions[member.subscription] for member in members}
    found = assign(subscribed, assignable, group.assignment)
    by_topic: dict[tuple[str, str], list[int]] = {}
    for member_id, keys in found.items():
        for key in sorted(keys):
            by_topic.setdefault((member_id, key.topic_id), []).append(key.partition)
    assigned = tuple((*of_member, tuple(partitions)) for of_member, partitions in by_topic.items())
    made = AssignmentMade(assignment_epoch=group.assignment_epoch + 1)
    return Decision((made, PartitionsAssigned(now_ms=now_ms, assigned=assigned)), Done())
