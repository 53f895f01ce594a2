"""Describes groups and share partitions with their lag: the brokers say where the logs end.

Rule: if the brokers do not answer, the description comes without the lag."""

from __future__ import annotations

import logging

from coordinator.core.looks.description import WithLag
from coordinator.protocol.admin_messages import ListOffsets
from coordinator.protocol.errors import BrokerNotReachable, BrokerRefused, TopicIdsMissing
from coordinator.protocol.messages import GroupRequest, Reply
from coordinator.protocol.values import TopicAndPartition
from coordinator.service.brokers.cluster import LATEST, KafkaCluster
from coordinator.service.runtime import transactions
from coordinator.service.runtime.transaction import Access, Groups

_log = logging.getLogger(__name__)


def with_lag(groups: Groups, cluster: KafkaCluster, request: GroupRequest[Reply]) -> Reply:
    """The answer to a DescribeGroup or a ListOffsets. A share partition has its lag if the end of its log is known.
    Raises GroupIdNotFound if the group does not exist."""
    named = (request.topics, request.partitions) if isinstance(request, ListOffsets) else ()
    shown = transactions.shown_partitions(request.group_id, *named)
    partitions, read_committed = groups.call(request.group_id, shown, Access.PEEK)
    ends: dict[TopicAndPartition, int] = {}
    try:
        ends = cluster.offsets([p.topic_partition for p in partitions], LATEST, read_committed=read_committed)
    except (BrokerNotReachable, BrokerRefused, TopicIdsMissing) as error:
        _log.warning("group described without lag: group=%s %s", request.group_id, error)
    bounds = transactions.bounds_of_ends(partitions, ends)
    look = WithLag(group_id=request.group_id, request=request, bounds=bounds)
    return groups.call(request.group_id, transactions.single_command(look), Access.PEEK)
