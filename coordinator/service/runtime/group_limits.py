"""How many groups and members a coordinator takes. Checked where a member joins, in the round that lets it in."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.config.resolved import ServerConfig
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import GroupMaxSizeReached, MaxGroupsReached
from coordinator.protocol.messages import Joined, JoinGroup
from coordinator.service.runtime.runtime import Transaction, TransactionSteps


class GroupLimits:
    """``count_groups`` is asked only when a group would be new, in the event_loop's thread."""

    def __init__(self, config: ServerConfig, count_groups: Callable[[], int] = lambda: 0) -> None:
        self._max_members = config.group_share_max_size
        self._max_groups = config.group_share_max_groups
        self._count_groups = count_groups

    def within(self, request: JoinGroup, join: Transaction[Joined]) -> Transaction[Joined]:
        """The transaction, refused by GroupMaxSizeReached or MaxGroupsReached before it changes anything."""

        def transaction(group: ShareGroup) -> TransactionSteps[Joined]:
            self._check(group, request)
            return (yield from join(group))

        return transaction

    def _check(self, group: ShareGroup, request: JoinGroup) -> None:
        others = sum(member.active for member in group.members.values() if member.member_id != request.member_id)
        if others >= self._max_members:
            raise GroupMaxSizeReached(group_id=request.group_id, limit=self._max_members)
        if not group.exists and self._count_groups() >= self._max_groups:
            raise MaxGroupsReached(group_id=request.group_id, limit=self._max_groups)
