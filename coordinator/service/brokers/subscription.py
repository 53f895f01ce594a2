"""Resolves subscriptions against the cluster: their partitions, which of their topics are deleted, and starting
offsets.

Rule: a broker that does not know a topic yet, or still knows its predecessor, answers as if the topic was deleted. So
the brokers are asked again before a topic counts as deleted, and its records as lost."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from tenacity import retry_if_result

from coordinator.config.group_keys import offset_reset
from coordinator.core.looks.view import Subscribed
from coordinator.core.members import Member
from coordinator.kafka.retries import retry_after
from coordinator.protocol.errors import (
    InvalidRequest,
    InvalidStartingOffsets,
    TopicIdsMissing,
    UnknownPartition,
    UnknownTopic,
)
from coordinator.protocol.messages import JoinGroup
from coordinator.protocol.topic_names import check_pattern, check_topic, matches
from coordinator.protocol.values import TopicAndPartition
from coordinator.protocol.wire import derived_topic_id
from coordinator.service.brokers.cluster import EARLIEST, LATEST, KafkaCluster, TopicInfo

PAUSES_S = (0.1, 0.3, 0.6)
"""Pauses, in seconds, before the second, the third and the last request."""


_EVERY_NUMBER = range(sys.maxsize)


class TopicIdPartition(NamedTuple):
    """A subscribed partition: the cluster knows it by the topic's name, the group by the topic's id."""

    topic: str
    topic_id: str
    partition: int

    @property
    def topic_partition(self) -> TopicAndPartition:
        return self.topic, self.partition


@dataclass(frozen=True, kw_only=True, slots=True)
class Subscription:
    """A subscription: one of ``topics``, ``pattern`` (matched against the whole name) and ``assign``."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @classmethod
    def of(cls, owner: Member | JoinGroup | Subscribed) -> Subscription:
        assign = tuple((topic, tuple(partitions)) for topic, partitions in sorted((owner.assign or {}).items()))
        return cls(topics=tuple(owner.topics), pattern=owner.topic_pattern, assign=assign)

    def has(self, topic: str) -> bool:
        """Whether the subscription has the topic, whether the topic exists or not."""
        if self.pattern is not None:
            return matches(self.pattern, topic)
        return topic in self.topics or topic in dict(self.assign)

    def has_partition(self, topic: str, partition: int) -> bool:
        return self.has(topic) and partition in self._numbers(topic)

    def _numbers(self, topic: str) -> Container[int]:
        return dict(self.assign).get(topic, ()) if self.assign else _EVERY_NUMBER

    @property
    def named(self) -> tuple[str, ...]:
        return *self.topics, *dict(self.assign)

    def find(self, cluster: KafkaCluster) -> dict[str, TopicInfo]:
        if self.pattern is not None:
            return cluster.topics(name for name in cluster.topic_names() if self.has(name))
        return cluster.topics(self.topics or dict(self.assign))

    def check_names(self) -> None:
        """Check the names, without asking the cluster.

        Raises:
            InvalidRequest: more than one of topics, pattern and partitions is given.
            InvalidTopicPattern: the pattern is no regular expression.
            TopicKept: a topic is one of Kafka's own or ours."""
        if sum((bool(self.topics), self.pattern is not None, bool(self.assign))) > 1:
            raise InvalidRequest(
                what="A subscription is one of topics, topic_pattern and assign, and the request has several."
            )
        if self.pattern is not None:
            check_pattern(self.pattern)
        for topic in self.named:
            check_topic(topic)

    def check(self, found: Mapping[str, TopicInfo], cluster: KafkaCluster) -> None:
        """Check that the named topics and partitions are among those ``found``. Raises UnknownTopic or UnknownPartition
        if a named topic or partition does not exist."""
        for topic in self.named:
            if topic not in found:
                raise UnknownTopic(topic=topic, addresses=cluster.addresses)
        for topic, partitions in self.assign:
            for partition in partitions:
                if not 0 <= partition < found[topic].partitions:
                    raise UnknownPartition(topic=topic, partition=partition, partitions=found[topic].partitions)

    def partitions(self, found: Iterable[TopicInfo], group_id: str, *, topic_ids: bool) -> list[TopicIdPartition]:
        """The subscribed partitions, with the topic ids that the group uses. Raises TopicIdsMissing if the group has
        topic ids, and the cluster gives none."""
        return [
            TopicIdPartition(topic.name, id_of(topic, group_id, topic_ids=topic_ids), partition)
            for topic in found
            for numbers in (self._numbers(topic.name),)
            for partition in range(topic.partitions)
            if partition in numbers
        ]


def id_of(topic: TopicInfo, group_id: str, *, topic_ids: bool) -> str:
    """The topic's id in a group; derived from the name where the cluster had no ids when the group was created. Raises
    TopicIdsMissing if the group has topic ids, and the cluster gives none."""
    if not topic_ids:
        return derived_topic_id(topic.name)
    if not topic.topic_id:
        raise TopicIdsMissing(group_id=group_id, topic=topic.name)
    return topic.topic_id


class NotShown(NamedTuple):
    """Topic ids that no topic of their name has now: ``remade``, another topic has the name; ``missing``, none has."""

    remade: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        return self.remade | self.missing


def topic_ids_not_shown(
    cluster: KafkaCluster,
    topics: Mapping[str, str],
    group_id: str,
    *,
    topic_ids: bool,
    past: frozenset[str] = frozenset(),
) -> NotShown:
    """Returns the ids, of ``topics`` (names by id), that no topic of that name has now.
    :mod:`coordinator.service.brokers.topic_doubts` decides which of the missing topics count as deleted. ``topic_ids``:
    whether the group uses the cluster's ids. ``past``: ids of topics that were deleted before; a broker that answers
    with one of these ids does not know the newer topic yet."""

    def look() -> NotShown:
        found = cluster.topics(set(topics.values()))
        ids = {name: id_of(topic, group_id, topic_ids=topic_ids) for name, topic in found.items()}
        other = {i: name for i, name in topics.items() if ids.get(name) not in past - {i} and ids.get(name) != i}
        missing = frozenset(i for i, name in other.items() if name not in ids)
        return NotShown(frozenset(other) - missing, missing)

    not_shown: NotShown = retry_after(PAUSES_S, retry_if_result(lambda looked: bool(looked.all)))(look)
    return not_shown


def starting_offsets(
    cluster: KafkaCluster, text: str, partitions: Iterable[TopicAndPartition], now_ms: int, *, read_committed: bool
) -> dict[TopicAndPartition, int]:
    """Returns the starting offsets that ``text`` describes: ``earliest``, ``latest``, ``by_duration:PT1H`` or Spark's
    JSON of offsets by partition. Raises InvalidStartingOffsets if the JSON is invalid, or lacks a partition."""
    wanted = list(partitions)
    reset = offset_reset(text.strip())
    if reset is None:
        return _named_offsets(cluster, text, wanted, read_committed=read_committed)
    at = {"earliest": EARLIEST, "latest": LATEST}.get(reset.strategy, now_ms - reset.duration_ms)
    return cluster.offsets(wanted, at, read_committed=read_committed)


def _named_offsets(
    cluster: KafkaCluster, text: str, wanted: list[TopicAndPartition], *, read_committed: bool
) -> dict[TopicAndPartition, int]:
    try:
        named = msgspec.json.decode(text.encode(), type=dict[str, dict[str, int]])
        given = {(topic, int(partition)): at for topic, by in named.items() for partition, at in by.items()}
    except (ValueError, msgspec.DecodeError) as error:  # newer versions of msgspec raise ValueError
        raise InvalidStartingOffsets(value=text, reason=str(error)) from error
    if missing := [f"{topic}-{partition}" for topic, partition in wanted if (topic, partition) not in given]:
        raise InvalidStartingOffsets(value=text, reason=f"no offset is given for {', '.join(missing)}")
    earliest = cluster.offsets(wanted, EARLIEST)
    latest = cluster.offsets(wanted, LATEST, read_committed=read_committed)
    return {where: _within(given[where], earliest[where], latest[where], text) for where in wanted if where in latest}


def _within(offset: int, earliest: int, latest: int, text: str) -> int:
    if offset < EARLIEST:
        raise InvalidStartingOffsets(value=text, reason=f"{offset} is no offset")
    named = {EARLIEST: earliest, LATEST: latest}.get(offset, offset)
    return min(max(named, earliest), latest)
