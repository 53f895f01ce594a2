"""Fixtures of the tests of the Kafka store: their modules have a fixture ``topic``, the state topic of each test."""

import contextlib
from collections.abc import Iterator

import pytest

from coordinator.service.stores.kafka.state_topic import StateTopic
from tests.support.state_topics import Hosts


@pytest.fixture
def open_at(topic: StateTopic) -> Iterator[Hosts]:
    """`open_at("host")`: the store as a coordinator of that host has it; all are closed at the end."""
    with contextlib.closing(Hosts(topic)) as hosts:
        yield hosts
