"""Replay of the records of a group as a whole: its life, its configs, its times, and the actions done to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.config.resolved import GroupConfig
from coordinator.core.log_records import (
    ActionDone,
    ConfigsAltered,
    DeadlinesExtended,
    DeadlinesPassed,
    GroupCreated,
    GroupDeleted,
    GroupProgressKept,
    Swept,
)
from coordinator.core.share_group import ShareGroup

ACTIONS_KEPT = 100
"""A group remembers the ids and answers of this many administrators' actions: far more than are under way at once."""


def _group_created(group: ShareGroup, record: GroupCreated) -> None:
    group.incarnation, group.topic_ids = record.incarnation, record.topic_ids


def _configs_altered(group: ShareGroup, record: ConfigsAltered) -> None:
    group.configs = dict(record.configs)
    group.config = GroupConfig.parse(group.configs, group.bounds)


def _group_deleted(group: ShareGroup, record: GroupDeleted) -> None:
    group.clear()


def _action_done(group: ShareGroup, record: ActionDone) -> None:
    group.actions[record.action_id] = record.answer
    while len(group.actions) > ACTIONS_KEPT:
        del group.actions[next(iter(group.actions))]


def _swept(group: ShareGroup, record: Swept) -> None:
    group.swept_until_ms = record.next_ms


def _deadlines_passed(group: ShareGroup, record: DeadlinesPassed) -> None:
    group.times_are_ahead = False
    group.locks.passed(record.now_ms, None if record.plan_ids is None else frozenset(record.plan_ids))


def _deadlines_extended(group: ShareGroup, record: DeadlinesExtended) -> None:
    group.deadlines_extended_until_ms = record.until_ms
    group.locks.extend(record.stalled_ms, record.until_ms if record.is_full else None)


def _group_progress_kept(group: ShareGroup, record: GroupProgressKept) -> None:
    group.assignment_epoch = record.assignment_epoch
    group.last_plan_id, group.forgotten_epoch = record.last_plan_id, record.forgotten_epoch
    group.decided, group.rejected = record.decided, record.rejected
    if record.dropped is not None:
        group.dropped = record.dropped


REPLAY_GROUP: dict[type[Any], Callable[[ShareGroup, Any], None]] = {
    GroupCreated: _group_created,
    ConfigsAltered: _configs_altered,
    GroupDeleted: _group_deleted,
    ActionDone: _action_done,
    Swept: _swept,
    DeadlinesPassed: _deadlines_passed,
    DeadlinesExtended: _deadlines_extended,
    GroupProgressKept: _group_progress_kept,
}
