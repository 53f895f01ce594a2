"""The core against recorded scenarios of Kafka's share partition (inputs of 4.3.1's tests, outputs of 4.4.0)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.protocol.errors import ShareGroupError
from tests.mistakes.mistake import Make
from tests.mistakes.recordings import OF_THE_SHARE_PARTITION
from tests.vectors.share_partition_adapter import Scenario

SCENARIOS = {s["name"]: s for s in json.loads(Path(__file__).with_name("share_partition.json").read_text("utf-8"))}
NO_PERSISTER = (
    "the owner of a group reads its own log: there is no answer of another process that could carry an "
    "error, be for another partition, or be empty. A store that can't be read: tests/unit/runtime/test_runtime.py"
)
NO_LOOKUP = (
    "the core is given resolved start offsets and looks nothing up. A broker that can't be asked fails the "
    "join by name, and nothing is appended: tests/unit/service/test_coordinator_service.py"
)
RULED_OUT: dict[str, str] = {
    "testMaybeInitializeWithErrorPartitionResponse": NO_PERSISTER,
    "testMaybeInitializeWithErrorPartitionResponse#3": NO_PERSISTER,
    "testMaybeInitializeWithErrorPartitionResponse#4": NO_PERSISTER,
    "testMaybeInitializeWithErrorPartitionResponse#5": NO_PERSISTER,
    "testMaybeInitializeWithErrorPartitionResponse#6": NO_PERSISTER,
    "testMaybeInitializeWithErrorPartitionResponse#8": NO_PERSISTER,
    "testMaybeInitializeWithInvalidPartitionResponse": NO_PERSISTER,
    "testMaybeInitializeWithNullTopicsData": NO_PERSISTER,
    "testMaybeInitializeWithReadException": NO_PERSISTER,
    "testMaybeInitializeFetchOffsetForLatestTimestampThrowsError": NO_LOOKUP,
    "testMaybeInitializeFetchOffsetForEarliestTimestampThrowsError": NO_LOOKUP,
}


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in RULED_OUT])
def test_a_share_partition_ends_each_scenario_as_kafkas_does(name: str) -> None:
    scenario: dict[str, Any] = SCENARIOS[name]
    assert Scenario(scenario).play(scenario["steps"]) == []


@pytest.mark.parametrize(("mistake", "name"), OF_THE_SHARE_PARTITION, ids=lambda each: getattr(each, "__name__", each))
def test_a_mistake_is_found(mistake: Make, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, ShareGroupError, ValueError)):
        test_a_share_partition_ends_each_scenario_as_kafkas_does(name)


def test_ruled_out_scenarios_exist() -> None:
    assert set(RULED_OUT) <= set(SCENARIOS)
    assert len(SCENARIOS) == 132
