"""The combiner against Kafka's PersisterStateBatchCombiner: its own cases, and generated ones (4.4.0)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.state_log.combiner import combine
from coordinator.state_log.record_values import StateBatch
from tests.mistakes.mistake import Make
from tests.mistakes.recordings import OF_THE_COMBINER
from tests.support.state_records import batch_of

CASES: list[dict[str, Any]] = [
    case
    for file in ("combiner.json", "combiner_generated.json")
    for case in json.loads(Path(__file__).with_name(file).read_text("utf-8"))
]


def batches(entries: list[list[int]]) -> list[StateBatch]:
    return [batch_of(entry) for entry in entries]


def outcome(case: dict[str, Any]) -> list[StateBatch]:
    start_offset = None if case["start_offset"] == -1 else case["start_offset"]
    return list(combine(batches(case["batches_so_far"]), batches(case["new_batches"]), start_offset))


def test_batches_are_combined_as_by_kafka() -> None:
    for case in CASES:
        assert outcome(case) == batches(case["expected"])


@pytest.mark.parametrize("mistake", OF_THE_COMBINER, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_found(mistake: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    assert any(outcome(case) != batches(case["expected"]) for case in CASES)
