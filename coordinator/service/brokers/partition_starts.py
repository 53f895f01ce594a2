"""The start offsets of new share partitions (docs/learn/concepts.md). A partition that a member brings to the group
begins where that member's policy says. A partition that was added after a subscription that has it begins at its
earliest record.

Rule: each partition is decided alone, by topic id. An assignment of one partition says nothing about others. If an
administrator deleted a partition's state, the next member brings that partition again.

Pure: the offsets of both rules are looked up beforehand; the transaction of the join decides which rule holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.protocol.values import SharePartitionKey
from coordinator.service.brokers.subscription import Subscription, TopicIdPartition


@dataclass(frozen=True, slots=True)
class Known:
    """What decides where a partition begins: the group's topics, the last subscriptions of all its members, with or
    without a session, and the share partitions whose state an administrator deleted."""

    topics: frozenset[str] = frozenset()
    subscriptions: frozenset[Subscription] = frozenset()
    deleted: frozenset[SharePartitionKey] = frozenset()

    @classmethod
    def of(cls, group: ShareGroup) -> Known:
        subscriptions = frozenset(Subscription.of(member) for member in group.members.values())
        begun = {key.topic_id for key in group.partitions}  # without topics whose offsets were deleted
        topics = frozenset(topic for topic, i in group.topics.items() if i in begun)
        topics |= {forgotten.topic for forgotten in group.forgotten_topics.values()}
        return cls(topics, subscriptions, frozenset(group.deleted_partitions))

    def has(self, p: TopicIdPartition) -> bool:
        """Whether the group reads the partition, or would read it if it existed. A partition that is new to the group
        was then added after the subscription, and begins at its earliest record."""
        if SharePartitionKey(p.topic_id, p.partition) in self.deleted:
            return False
        of_topic = [subscription for subscription in self.subscriptions if subscription.has(p.topic)]
        if of_topic:
            return any(subscription.has_partition(p.topic, p.partition) for subscription in of_topic)
        return p.topic in self.topics  # the members that subscribed to it were forgotten


class Start(NamedTuple):
    """The two start offsets that a share partition can have. ``earliest`` applies if the partition was added after a
    subscription that has it. ``policy`` (startingOffsets, or share.auto.offset.reset) applies if no earlier
    subscription has the partition; None: the offset was not looked up."""

    earliest: int
    policy: int | None


def where_to_begin(group: ShareGroup, starts: Mapping[TopicIdPartition, Start]) -> dict[TopicIdPartition, int]:
    """The start offsets, by the subscriptions that the group has at present.

    Raises:
        CoordinatorNotAvailable: the group's subscriptions have changed since the offsets were looked up, so the offset
        that is needed now is unknown."""
    known, begins = Known.of(group), {}
    for p, start in starts.items():
        at = start.earliest if known.has(p) else start.policy
        if at is None:
            reason = f"the members that subscribed to {p.topic} were forgotten meanwhile; join again"
            raise CoordinatorNotAvailable(group_id=group.group_id, reason=reason)
        begins[p] = at
    return begins
