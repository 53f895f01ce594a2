"""Replay: apply a log record to a group, live and on recovery alike. Nothing else changes a group's durable state.

Replay copies what a command decided. Where replay computes a value instead, the function says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.core.log_records import Record
from coordinator.core.replays.group_replay import REPLAY_GROUP
from coordinator.core.replays.member_replay import REPLAY_MEMBERS
from coordinator.core.replays.partition_replay import REPLAY_PARTITIONS
from coordinator.core.replays.plan_replay import REPLAY_PLANS
from coordinator.core.share_group import ShareGroup

_REPLAY: dict[type[Any], Callable[[ShareGroup, Any], None]] = {
    **REPLAY_GROUP,
    **REPLAY_MEMBERS,
    **REPLAY_PARTITIONS,
    **REPLAY_PLANS,
}


def replay(group: ShareGroup, record: Record) -> None:
    """Apply the record to the group."""
    _REPLAY[type(record)](group, record)
