"""The limits of a coordinator's groups and members, checked in the round in which a member joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.config.resolved import ServerConfig
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import AlterGroupConfigs, ImportGroup
from coordinator.protocol.errors import GroupMaxSizeReached, MaxGroupsReached
from coordinator.protocol.messages import Joined, JoinGroup, OpenSink, Request
from coordinator.service.runtime.transaction import Transaction, TransactionSteps


class GroupLimits:
    """The limits. ``count_groups`` returns the number of groups. The event loop calls it, for a new group only."""

    def __init__(self, config: ServerConfig, count_groups: Callable[[], int] = lambda: 0) -> None:
        self._max_members = config.group_share_max_size
        self._max_groups = config.group_share_max_groups
        self._count_groups = count_groups
        self._bounds = config.group_bounds

    def check_configs(self, request: Request[Any]) -> None:
        """Check the configs that the request sets. A rejoin sets none. Raises ConfigOutOfBounds or ConfigTypeMismatch
        if a value is not accepted."""
        if isinstance(request, OpenSink | ImportGroup) or (
            isinstance(request, JoinGroup) and request.member_epoch is None
        ):
            self._bounds.check(request.configs)
        elif isinstance(request, AlterGroupConfigs):
            self._bounds.check(request.set)

    def within(self, request: JoinGroup, join: Transaction[Joined]) -> Transaction[Joined]:
        """The transaction with the limits checked before it changes anything.

        The transaction raises:
            GroupMaxSizeReached: the group has as many members with a session as it may have.
            MaxGroupsReached: the group would be one too many."""

        def transaction(group: ShareGroup) -> TransactionSteps[Joined]:
            others = sum(member.active for member in group.members.values() if member.member_id != request.member_id)
            if others >= self._max_members:
                raise GroupMaxSizeReached(group_id=request.group_id, limit=self._max_members)
            if not group.exists:
                self.check_new(request.group_id)
            return (yield from join(group))

        return transaction

    def check_new(self, group_id: str) -> None:
        """Check that there may be one more group. Raises MaxGroupsReached if there may not."""
        if self._count_groups() >= self._max_groups:
            raise MaxGroupsReached(group_id=group_id, limit=self._max_groups)
