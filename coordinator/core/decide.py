"""Decide: turn a command into log records and a reply, or raise a named error and change nothing.

The same group, command and ``now_ms`` always give the same decision. The runtime appends ``Decision.records``, replays
them, and only then sends the reply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.core.commands import (
    AcquireForConsumer,
    AcquirePlan,
    AlterConfigs,
    ArchiveDeletedTopics,
    ArchiveGaps,
    AssignPartitions,
    CompletePlan,
    CreateGroup,
    Decision,
    Expire,
    ExtendDeadlines,
    InitializePartitions,
    MarkDeadLettersWritten,
    MoveLogStarts,
    StageRuns,
    StartOrReclaimPlan,
)
from coordinator.core.commands.acknowledge import acknowledge
from coordinator.core.commands.acquire_for_consumer import acquire_records
from coordinator.core.commands.acquire_for_query import acquire_plan
from coordinator.core.commands.actions import RememberAction, remember_action
from coordinator.core.commands.administer import (
    AlterStartOffsets,
    alter_start_offsets,
    decide_records,
    delete_group,
    release_member,
)
from coordinator.core.commands.assign_partitions import assign_partitions
from coordinator.core.commands.complete_plan import complete_plan
from coordinator.core.commands.mark_in_progress import mark_in_progress
from coordinator.core.commands.membership import (
    alter_configs,
    create_group,
    expire,
    extend_deadlines,
    heartbeat,
    join,
    leave,
)
from coordinator.core.commands.partitions import (
    archive_deleted_topics,
    archive_gaps,
    initialize_partitions,
    move_log_starts,
)
from coordinator.core.commands.reclaim_plan import start_or_reclaim_plan
from coordinator.core.commands.report_progress import report_progress
from coordinator.core.commands.stage_outcomes import mark_dead_letters_written, stage_outcomes
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import (
    DecideRecords,
    DeleteGroup,
    ReleaseMember,
)
from coordinator.protocol.messages import (
    Acknowledge,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    MarkInProgress,
    Reply,
    Request,
)
from coordinator.protocol.task_messages import ReportProgress

_DECIDERS: dict[type[Request[Any]], Callable[[ShareGroup, Any, int], Decision[Any]]] = {
    CreateGroup: create_group,
    AlterConfigs: alter_configs,
    JoinGroup: join,
    Heartbeat: heartbeat,
    LeaveGroup: leave,
    InitializePartitions: initialize_partitions,
    MoveLogStarts: move_log_starts,
    ArchiveGaps: archive_gaps,
    ArchiveDeletedTopics: archive_deleted_topics,
    AcquirePlan: acquire_plan,
    StartOrReclaimPlan: start_or_reclaim_plan,
    StageRuns: stage_outcomes,
    CompletePlan: complete_plan,
    MarkDeadLettersWritten: mark_dead_letters_written,
    AssignPartitions: assign_partitions,
    AcquireForConsumer: acquire_records,
    Acknowledge: acknowledge,
    MarkInProgress: mark_in_progress,
    ReportProgress: report_progress,
    Expire: expire,
    ExtendDeadlines: extend_deadlines,
    AlterStartOffsets: alter_start_offsets,
    DeleteGroup: delete_group,
    ReleaseMember: release_member,
    DecideRecords: decide_records,
    RememberAction: remember_action,
}


def decide(group: ShareGroup, command: Request[Reply], now_ms: int) -> Decision[Reply]:
    """The decision on ``command``. ``now_ms`` must be of a clock that starts at wall time and never jumps.

    Raises:
        ShareGroupError: the command is refused; the subclass says why. The group is unchanged.
    """
    decision: Decision[Reply] = _DECIDERS[type(command)](group, command, now_ms)
    return decision
