"""Asks each leader of some partitions separately, so that an unreachable leader delays no other leader's answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException

from coordinator.protocol.values import TopicAndPartition

FOR_ALL_S = 2.0
"""For this many seconds all partitions are requested at once; then each leader is asked alone. So short a wait is not
logged as an outage."""
NO_LEADER = -1
"""The leader id of a partition without one."""


def isolation_level(read_committed: bool) -> IsolationLevel:
    """Returns the level for requests of a log's end."""
    return IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED


def by_leader(metadata: Any, partitions: Iterable[TopicAndPartition]) -> dict[int, list[TopicAndPartition]]:
    """Returns the partitions by the id of their leader, as the cluster's metadata has it; NO_LEADER: it has none."""
    found: dict[int, list[TopicAndPartition]] = {}
    for topic, partition in partitions:
        of_topic = metadata.topics.get(topic)
        told = None if of_topic is None else of_topic.partitions.get(partition)
        found.setdefault(NO_LEADER if told is None else int(told.leader), []).append((topic, partition))
    return found


def ask_leaders(
    partitions: Mapping[int, list[TopicAndPartition]],
    ask: Callable[[list[TopicAndPartition]], dict[TopicAndPartition, int]],
    passing: Set[int],
) -> tuple[dict[TopicAndPartition, int], set[TopicAndPartition]]:
    """Ask all leaders at once. ``ask`` returns the offsets of one leader's partitions, or raises a KafkaException. A
    KafkaException with a ``passing`` code means that the leader does not answer. Returns all offsets, and the
    partitions without an answer; raises any other KafkaException."""

    def answer(of_leader: list[TopicAndPartition]) -> dict[TopicAndPartition, int] | None:
        try:
            return ask(of_leader)
        except KafkaException as raised:
            if raised.args[0].code() not in passing:
                raise
            return None

    led = [of_leader for leader, of_leader in partitions.items() if leader != NO_LEADER]
    with ThreadPoolExecutor(max(len(led), 1), thread_name_prefix="share-leaders") as threads:
        answers = list(threads.map(answer, led))
    found: dict[TopicAndPartition, int] = {}
    away = set(partitions.get(NO_LEADER, ()))
    for of_leader, told in zip(led, answers, strict=True):
        if told is None:
            away.update(of_leader)
        else:
            found.update(told)
    return found, away
