"""Decide: turn a command into log records and a reply, or raise a named error and change nothing.

The same group, command and ``now_ms`` always give the same decision. The runtime appends ``Decision.records``, replays
them, and only then sends the reply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.core import commands
from coordinator.core.commands import (
    acknowledge,
    acquire_for_consumer,
    acquire_for_query,
    actions,
    administer,
    assign_partitions,
    complete_plan,
    import_position,
    mark_in_progress,
    membership,
    partitions,
    reclaim_plan,
    report_ending,
    report_progress,
    stage_outcomes,
)
from coordinator.core.share_group import ShareGroup
from coordinator.protocol import admin_messages, messages
from coordinator.protocol.messages import Reply, Request

_DECIDERS: dict[type[Request[Any]], Callable[[ShareGroup, Any, int], commands.Decision[Any]]] = {
    commands.CreateGroup: membership.create_group,
    commands.AlterConfigs: membership.alter_configs,
    messages.JoinGroup: membership.join,
    messages.Heartbeat: membership.heartbeat,
    messages.LeaveGroup: membership.leave,
    messages.ReportEnding: report_ending.report_ending,
    commands.InitializePartitions: partitions.initialize_partitions,
    commands.MoveLogStarts: partitions.move_log_starts,
    commands.ArchiveGaps: partitions.archive_gaps,
    commands.ArchiveExpired: partitions.archive_expired,
    commands.ArchiveDeletedTopics: partitions.archive_deleted_topics,
    commands.AcquirePlan: acquire_for_query.acquire_plan,
    commands.StartOrReclaimPlan: reclaim_plan.start_or_reclaim_plan,
    commands.StageRuns: stage_outcomes.stage_outcomes,
    commands.CompletePlan: complete_plan.complete_plan,
    commands.MarkDeadLettersWritten: stage_outcomes.mark_dead_letters_written,
    commands.AssignPartitions: assign_partitions.assign_partitions,
    commands.AcquireForConsumer: acquire_for_consumer.acquire_records,
    messages.Acknowledge: acknowledge.acknowledge,
    messages.MarkInProgress: mark_in_progress.mark_in_progress,
    messages.ReportProgress: report_progress.report_progress,
    commands.Expire: membership.expire,
    commands.ExtendDeadlines: membership.extend_deadlines,
    administer.AlterStartOffsets: administer.alter_start_offsets,
    admin_messages.DeleteGroup: administer.delete_group,
    admin_messages.ReleaseMember: administer.release_member,
    admin_messages.DecideRecords: administer.decide_records,
    import_position.ImportPosition: import_position.import_position,
    actions.RememberAction: actions.remember_action,
}


def decide(group: ShareGroup, command: Request[Reply], now_ms: int) -> commands.Decision[Reply]:
    """The decision on ``command``. ``now_ms`` must be of a clock that starts at wall time and never jumps.

    Raises:
        ShareGroupError: the command is refused; the subclass says why. The group is unchanged.
    """
    decision: commands.Decision[Reply] = _DECIDERS[type(command)](group, command, now_ms)
    return decision
