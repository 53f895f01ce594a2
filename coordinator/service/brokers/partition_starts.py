"""Where share partitions begin that a group does not have yet: by the policy of the member that brings
their topic to the group, or at their earliest record if they came later than a subscription that has it
(docs/concepts.md).

Pure: offsets are looked up before, by either rule; the transaction that lets the member in decides which one holds.
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
    """What a group has, or would have if it existed: the topics that it knows, and all subscriptions that its members
    came with last, also of those whose session is over."""

    topics: frozenset[str] = frozenset()
    subscriptions: frozenset[Subscription] = frozenset()

    @classmethod
    def of(cls, group: ShareGroup) -> Known:
        subscriptions = frozenset(Subscription.of(member) for member in group.members.values())
        return cls(frozenset(group.topics), subscriptions)

    def has(self, topic: str) -> bool:
        """Whether the group reads the topic, or would if it existed: what it does not have of it yet came later than
        that subscription, and begins at its earliest record."""
        return topic in self.topics or any(subscription.has(topic) for subscription in self.subscriptions)


class Start(NamedTuple):
    """Where a share partition begins: at ``earliest`` if it came later than a subscription that has it; at
    ``policy`` if the joining member brings its topic to the group (None: not looked up)."""

    earliest: int
    policy: int | None


def where_to_begin(group: ShareGroup, starts: Mapping[TopicIdPartition, Start]) -> dict[TopicIdPartition, int]:
    """The offsets, by the subscriptions that the group has now. CoordinatorNotAvailable where that rule was not looked
    up, since the group had others then."""
    known, begins = Known.of(group), {}
    had = {topic: known.has(topic) for topic in {p.topic for p in starts}}
    for p, start in starts.items():
        at = start.earliest if had[p.topic] else start.policy
        if at is None:
            raise CoordinatorNotAvailable(group_id=group.group_id, reason=f"who read {p.topic} was forgotten meanwhile")
        begins[p] = at
    return begins
