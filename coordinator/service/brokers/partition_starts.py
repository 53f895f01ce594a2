"""The start offsets of new share partitions (docs/concepts.md): by the policy of the member that brings their topic to
the group, or at their earliest record if they were added after a subscription that has the topic.

Pure: the offsets of both rules are looked up before; the transaction of the join decides which rule holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.service.brokers.subscription import Subscription, TopicIdPartition


@dataclass(frozen=True, slots=True)
class Known:
    """The topics of a group, and the last subscriptions of all its members, also of those without a session."""

    topics: frozenset[str] = frozenset()
    subscriptions: frozenset[Subscription] = frozenset()

    @classmethod
    def of(cls, group: ShareGroup) -> Known:
        subscriptions = frozenset(Subscription.of(member) for member in group.members.values())
        begun = {key.topic_id for key in group.partitions}  # not the topics whose offsets were deleted
        return cls(frozenset(topic for topic, i in group.topics.items() if i in begun), subscriptions)

    def has(self, topic: str) -> bool:
        """Whether the group reads the topic, or would if the topic existed. New partitions of such a topic were added
        after the subscription, and begin at their earliest record."""
        return topic in self.topics or any(subscription.has(topic) for subscription in self.subscriptions)


class Start(NamedTuple):
    """The two start offsets that a share partition can have: ``earliest`` if it was added after a subscription that has
    its topic, ``policy`` if the joining member brings the topic to the group (None: not looked up)."""

    earliest: int
    policy: int | None


def where_to_begin(group: ShareGroup, starts: Mapping[TopicIdPartition, Start]) -> dict[TopicIdPartition, int]:
    """The start offsets, by the subscriptions that the group has now.

    Raises:
        CoordinatorNotAvailable: the offset of the rule that holds was not looked up, since the group had other
            subscriptions then.
    """
    known, begins = Known.of(group), {}
    had = {topic: known.has(topic) for topic in {p.topic for p in starts}}
    for p, start in starts.items():
        at = start.earliest if had[p.topic] else start.policy
        if at is None:
            reason = f"the members that subscribed to {p.topic} were forgotten meanwhile; join again"
            raise CoordinatorNotAvailable(group_id=group.group_id, reason=reason)
        begins[p] = at
    return begins
