"""Handles the requests of people who run groups (:mod:`coordinator.protocol.admin_messages`).

Rule: a read never takes a group from its owner, and writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from coordinator.core.looks.runs import OffsetsWithBounds
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
    ListGroups,
    ListInFlight,
    ListOffsets,
    ListPlans,
    ListWindows,
    OffsetChanges,
    OffsetsListed,
    ReadHistory,
    ReleaseMember,
)
from coordinator.protocol.errors import BrokerNotReachable, BrokerRefused, InvalidRequest, TopicIdsMissing
from coordinator.protocol.messages import GroupRequest, Message, Reply, Request
from coordinator.service.admin_actions import act, alter_configs, alter_offsets, delete_offsets, done_before
from coordinator.service.brokers.cluster import LATEST, Cluster
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.histories import Histories, StoredLogs, locate
from coordinator.service.runtime import transactions
from coordinator.service.runtime.event_loop import RuntimeApi
from coordinator.service.runtime.transaction import Access, Transaction

T = TypeVar("T", Altered, OffsetChanges)
_log = logging.getLogger(__name__)


class StoredGroups(StoredLogs, Protocol):
    """The groups of a coordinator's state store, whether they are served now or not."""

    def stored_groups(self) -> list[GroupListing]:
        """The groups that the store has, with the state of those that no process serves."""


class AdminService:
    """Answers the requests of :mod:`coordinator.protocol.admin_messages`."""

    def __init__(
        self, event_loop: RuntimeApi, cluster: Cluster, stored: StoredGroups, doubts: TopicDoubts | None = None
    ) -> None:
        self._event_loop, self._cluster, self._stored = event_loop, cluster, stored
        self._doubts = doubts or TopicDoubts()
        self._histories = Histories(stored)
        self._handlers: dict[type[Request[Any]], Callable[[Any], Message]] = {
            ListGroups: self._list_groups,
            ListOffsets: self._list_offsets,
            ListInFlight: self._look,
            ListPlans: self._look,
            ListWindows: self._look,
            ReadHistory: self._read_history,
            AlterOffsets: lambda request: alter_offsets(self._event_loop, self._cluster, self._doubts, request),
            DeleteOffsets: lambda request: self._act(request, delete_offsets(request)),
            DeleteGroup: self._single_command,
            AlterGroupConfigs: lambda request: alter_configs(self._event_loop, self._cluster, request),
            ReleaseMember: self._single_command,
            DecideRecords: self._single_command,
        }

    def __repr__(self) -> str:
        return f"<AdminService {self._event_loop!r}>"

    def handles(self, request: Request[Any]) -> bool:
        """Whether the request is one of an administrator's."""
        return type(request) in self._handlers

    def handle(self, request: Request[Any]) -> Message:
        """The reply to the request.

        Raises:
            ShareGroupError: the request is refused; the subclass says why.
        """
        if isinstance(request, GroupRequest) and not request.group_id:
            raise InvalidRequest(what=f"{type(request).__name__} needs a group id.")
        if isinstance(request, Action) and (before := done_before(self._event_loop, request)) is not None:
            return before
        return self._handlers[type(request)](request)

    # --- looks

    def _look(self, request: GroupRequest[Reply]) -> Reply:
        return self._event_loop.call(request.group_id, transactions.single_command(request), Access.PEEK)

    def _read_history(self, request: ReadHistory) -> HistoryRead:
        """The event loop is asked for the location alone; the log is read on the request's own thread."""
        location = self._event_loop.call(request.group_id, locate(request), Access.PEEK)
        return self._histories.read(request, location)

    # --- actions

    def _single_command(self, request: Action[Altered]) -> Altered:
        return self._act(request, transactions.single_command(request))

    def _act(self, request: Action[Any], transaction: Transaction[T]) -> T:
        return act(self._event_loop, request, transaction)

    # --- lists

    def _list_groups(self, request: ListGroups) -> GroupsListed:
        served = self._event_loop.served_groups()
        listings = (
            {listing.group_id: listing for listing in self._stored.stored_groups()} if not request.group_ids else {}
        )
        for group_id, has_members in served.items():
            listings[group_id] = GroupListing(group_id=group_id, state="STABLE" if has_members else "EMPTY")
        for group_id in request.group_ids:
            listings.setdefault(group_id, GroupListing(group_id=group_id, state="EMPTY"))
        wanted = sorted(request.group_ids or listings)
        return GroupsListed(groups=tuple(listings[group_id] for group_id in wanted))

    def _list_offsets(self, request: ListOffsets) -> OffsetsListed:
        shown = transactions.shown_partitions(request.group_id, request.topics, request.partitions)
        partitions, read_committed = self._event_loop.call(request.group_id, shown, Access.PEEK)
        where = [p.topic_partition for p in partitions]
        try:
            ends = self._cluster.offsets(where, LATEST, read_committed=read_committed)
        except (BrokerNotReachable, BrokerRefused, TopicIdsMissing) as error:
            _log.warning("offsets listed without lag: group=%s %s", request.group_id, error)
            return self._look(request)
        bounds = transactions.bounds_of_ends(partitions, ends)
        return self._look(OffsetsWithBounds(**msgspec.structs.asdict(request), bounds=bounds))
