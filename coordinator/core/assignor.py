"""Divides the partitions of a group among its ShareConsumers, as Kafka's SimpleAssignor does (KIP-932).

Rule: every assignable partition with a subscriber has at least one member, the numbers of partitions of two members
differ by at most one, and within that a member keeps what it has. With more members than partitions, members share
partitions. A member's part of an ordered group's partitions is found in :mod:`coordinator.core.order`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from coordinator.protocol.values import SharePartitionKey

Assignment = Mapping[str, frozenset[SharePartitionKey]]
"""The partitions of each member, by member id."""


def assign(
    subscribed: Mapping[str, frozenset[str]], assignable: Mapping[str, Iterable[int]], current: Assignment
) -> dict[str, frozenset[SharePartitionKey]]:
    """The next assignment. ``subscribed``: the topic ids of each member, the longest-standing member first;
    ``assignable``: the partitions of each topic that may be assigned.

    Raises:
        KeyError: a member is subscribed to a topic that ``assignable`` does not know.
    """
    targets = {
        topic_id: [SharePartitionKey(topic_id, partition) for partition in sorted(assignable[topic_id])]
        for topic_id in sorted(frozenset[str]().union(*subscribed.values()))
    }
    if len(set(subscribed.values())) <= 1:  # all are subscribed alike: their topics are divided together
        together = [key for keys in targets.values() for key in keys]
        return _divided(list(subscribed), together, current)
    assigned: dict[str, frozenset[SharePartitionKey]] = dict.fromkeys(subscribed, frozenset())
    for topic_id, keys in targets.items():
        members = [member_id for member_id, topic_ids in subscribed.items() if topic_id in topic_ids]
        for member_id, part in _divided(members, keys, current).items():
            assigned[member_id] |= part
    return assigned


def _divided(
    member_ids: Sequence[str], targets: Sequence[SharePartitionKey], current: Assignment
) -> dict[str, frozenset[SharePartitionKey]]:
    """Returns these partitions divided among these members, who are all subscribed to all of them."""
    if not targets or not member_ids:
        return dict.fromkeys(member_ids, frozenset())
    sharing = -(-len(member_ids) // len(targets))  # how many members a partition has
    counts = _counts(member_ids, sharing * len(targets))
    holders: dict[SharePartitionKey, list[str]] = {key: [] for key in targets}
    parts: dict[str, list[SharePartitionKey]] = {}
    for member_id in member_ids:
        kept = sorted(key for key in current.get(member_id, frozenset()) if key in holders)
        parts[member_id] = kept[max(0, len(kept) - counts[member_id]) :]
        for key in parts[member_id]:
            holders[key].append(member_id)
    for key, of_key in holders.items():
        for member_id in of_key[sharing:]:
            parts[member_id].remove(key)
        del of_key[sharing:]
    unfilled = deque(member_id for member_id in member_ids if len(parts[member_id]) < counts[member_id])
    for key, of_key in holders.items():
        for _ in range(len(unfilled)):
            if len(of_key) == sharing:
                break
            member_id = unfilled.popleft()
            if member_id not in of_key:
                of_key.append(member_id)
                parts[member_id].append(key)
            if len(parts[member_id]) < counts[member_id]:
                unfilled.append(member_id)
    return {member_id: frozenset(part) for member_id, part in parts.items()}


def _counts(member_ids: Sequence[str], total: int) -> dict[str, int]:
    """Returns how many partitions each member may have. The numbers differ by up to one, and their sum is ``total``."""
    size = len(member_ids)
    ends = [-(-total * i // size) for i in range(size + 1)]
    return {member_id: ends[i + 1] - ends[i] for i, member_id in enumerate(member_ids)}
