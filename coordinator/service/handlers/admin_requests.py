"""Handles the requests of people who run groups (:mod:`coordinator.protocol.admin_messages`).

Rule: a read never takes a group from its owner, and writes nothing."""

from __future__ import annotations

import functools
from typing import Any, Protocol

from coordinator.config.resolved import ServerConfig
from coordinator.protocol.admin_messages import (
    Action,
    Altered,
    AlterGroupConfigs,
    AlterOffsets,
    DecideRecords,
    DeleteGroup,
    DeleteOffsets,
    GroupListing,
    GroupsListed,
    HistoryRead,
    ImportGroup,
    ListGroups,
    ListInFlight,
    ListOffsets,
    ListPlans,
    ListWindows,
    ReadHistory,
    ReadPosition,
    ReleaseMember,
)
from coordinator.protocol.messages import GroupRequest, Message, Reply, Request
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.handlers.admin_actions import (
    act,
    alter_configs,
    alter_offsets,
    delete_offsets,
    done_before,
    exists,
)
from coordinator.service.handlers.group_import import import_group
from coordinator.service.handlers.handler_table import Handler, Handlers
from coordinator.service.handlers.record_history import Histories, StoredLogs, locate
from coordinator.service.questions.lags import with_lag
from coordinator.service.runtime import transactions
from coordinator.service.runtime.group_limits import GroupLimits
from coordinator.service.runtime.transaction import Access, Groups


class StoredGroups(StoredLogs, Protocol):
    """The groups of a coordinator's state store, whether they are served now or not."""

    def stored_groups(self) -> list[GroupListing]:
        """Returns the groups that the store has, with the state of those that no process serves."""


class AdminService(Handlers):
    """Answers the requests of :mod:`coordinator.protocol.admin_messages`."""

    def __init__(
        self,
        groups: Groups,
        cluster: KafkaCluster,
        stored: StoredGroups,
        doubts: TopicDoubts,
        limits: GroupLimits | None = None,
    ) -> None:
        of_groups = limits or GroupLimits(ServerConfig.parse())
        self._groups, self._stored = groups, stored
        self._histories = Histories(stored)
        looks: dict[type[Request[Any]], Handler] = {
            ListGroups: self._list_groups,
            ListOffsets: lambda request: with_lag(groups, cluster, request),
            ListInFlight: self._look,
            ListPlans: self._look,
            ListWindows: self._look,
            ReadHistory: self._read_history,
            ReadPosition: self._look,
        }
        actions: dict[type[Action[Any]], Handler] = {
            AlterOffsets: lambda request: alter_offsets(groups, cluster, doubts, request),
            DeleteOffsets: lambda request: act(groups, request, delete_offsets(request)),
            DeleteGroup: self._single_command,
            AlterGroupConfigs: lambda request: alter_configs(groups, cluster, request),
            ImportGroup: lambda request: import_group(groups, cluster, of_groups, request),
            ReleaseMember: self._single_command,
            DecideRecords: self._single_command,
        }
        super().__init__(looks | {kind: functools.partial(self._once, action) for kind, action in actions.items()})

    # --- looks

    def _look(self, request: GroupRequest[Reply]) -> Reply:
        return self._groups.call(request.group_id, transactions.single_command(request), Access.PEEK)

    def _read_history(self, request: ReadHistory) -> HistoryRead:
        """Reads the log on the request's own thread: the event loop is asked for the location alone."""
        location = self._groups.call(request.group_id, locate(request), Access.PEEK)
        return self._histories.read(request, location)

    # --- actions

    def _once(self, action: Handler, request: Action[Any]) -> Message:
        before = done_before(self._groups, request)
        return action(request) if before is None else before

    def _single_command(self, request: Action[Altered]) -> Altered:
        return act(self._groups, request, transactions.single_command(request))

    # --- lists

    def _list_groups(self, request: ListGroups) -> GroupsListed:
        if request.group_id and request.group_id not in self._groups.served_groups():
            # Raises OwnedElsewhere if another host serves the group.
            self._groups.call(request.group_id, exists, Access.PEEK)
        served = self._groups.served_groups()
        listings = (
            {listing.group_id: listing for listing in self._stored.stored_groups()} if not request.group_ids else {}
        )
        for group_id, has_members in served.items():
            listings[group_id] = GroupListing(group_id=group_id, state="STABLE" if has_members else "EMPTY")
        for group_id in request.group_ids:
            listings.setdefault(group_id, GroupListing(group_id=group_id, state="EMPTY"))
        wanted = sorted(request.group_ids or listings)
        return GroupsListed(groups=tuple(listings[group_id] for group_id in wanted))
