"""Each leader is asked by itself: one that does not answer holds up no other's answer."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordinator.service.brokers.leaders import NO_LEADER, ask_leaders, by_leader

PASSING = frozenset({KafkaError._TIMED_OUT})
LEADERS = {1: [("orders", 0), ("orders", 2)], 2: [("orders", 1)], NO_LEADER: [("orders", 3), ("gone", 0)]}


def test_partitions_are_sorted_by_their_leader() -> None:
    partitions = {at: SimpleNamespace(leader=leader) for at, leader in enumerate((1, 2, 1, NO_LEADER))}
    metadata = SimpleNamespace(topics={"orders": SimpleNamespace(partitions=partitions)})
    wanted = [*(("orders", at) for at in range(4)), ("gone", 0)]
    assert by_leader(metadata, wanted) == LEADERS


def answer(of_leader: list[tuple[str, int]], error: Any = None) -> dict[tuple[str, int], int]:
    if error is not None and ("orders", 1) in of_leader:
        raise KafkaException(KafkaError(error))
    return {where: 7 for where in of_leader if where != ("orders", 2)}


def test_the_partitions_of_a_silent_leader_are_away() -> None:
    found, away = ask_leaders(LEADERS, lambda of: answer(of, KafkaError._TIMED_OUT), PASSING)
    assert found == {("orders", 0): 7}, "a partition that does not exist is not away"
    assert away == {("orders", 1), ("orders", 3), ("gone", 0)}


def test_a_leader_that_refuses_is_an_error() -> None:
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        ask_leaders(LEADERS, lambda of: answer(of, KafkaError.TOPIC_AUTHORIZATION_FAILED), PASSING)
