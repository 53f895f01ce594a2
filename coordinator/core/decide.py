"""Decide: a command comes to records and a reply, or raises and leaves everything unchanged.

Pure: the same group, command and ``now_ms`` come to the same decision. The shell appends ``Decision.records``, replays
them, and only then replies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.core.commands import (
    AcquirePlan,
    AlterConfigs,
    ArchiveGaps,
    ArchiveGoneTopics,
    CompletePlan,
    CreateGroup,
    Decision,
    Expire,
    FileLetters,
    GiveTime,
    InitializePartitions,
    MoveLogStarts,
    TakeUpPlan,
)
from coordinator.core.commands.acknowledge import acknowledge
from coordinator.core.commands.acquire_plan import acquire_plan
from coordinator.core.commands.acquire_records import acquire_records
from coordinator.core.commands.complete_plan import complete_plan
from coordinator.core.commands.membership import alter_configs, create_group, expire, give_time, heartbeat, join, leave
from coordinator.core.commands.partitions import (
    archive_gaps,
    archive_gone_topics,
    initialize_partitions,
    move_log_starts,
)
from coordinator.core.commands.reclaim_plan import take_up_plan
from coordinator.core.commands.stage_outcomes import file_letters, stage_outcomes
from coordinator.core.describe import describe_group
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import (
    Acknowledge,
    AcquireRecords,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    StageOutcomes,
)


def _describe(group: ShareGroup, command: DescribeGroup, now_ms: int) -> Decision:
    return Decision((), describe_group(group, command))


_DECIDERS: dict[type[Any], Callable[[ShareGroup, Any, int], Decision]] = {
    CreateGroup: create_group,
    AlterConfigs: alter_configs,
    JoinGroup: join,
    Heartbeat: heartbeat,
    LeaveGroup: leave,
    InitializePartitions: initialize_partitions,
    MoveLogStarts: move_log_starts,
    ArchiveGaps: archive_gaps,
    ArchiveGoneTopics: archive_gone_topics,
    AcquirePlan: acquire_plan,
    TakeUpPlan: take_up_plan,
    StageOutcomes: stage_outcomes,
    CompletePlan: complete_plan,
    FileLetters: file_letters,
    AcquireRecords: acquire_records,
    Acknowledge: acknowledge,
    Expire: expire,
    GiveTime: give_time,
    DescribeGroup: _describe,
}


def decide(group: ShareGroup, command: Any, now_ms: int) -> Decision:
    """The decision on ``command`` at ``now_ms``: a clock that begins at wall time and never jumps within a process."""
    return _DECIDERS[type(command)](group, command, now_ms)
