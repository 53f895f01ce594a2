"""The combiner against Kafka's PersisterStateBatchCombiner: its own cases, and generated ones (4.4.0)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.core.runs import RunMap
from coordinator.state_log import combiner
from coordinator.state_log.combiner import combine
from coordinator.state_log.record_values import StateBatch
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_it_combines_as_kafka_does(case: dict[str, Any]) -> None:
    assert outcome(case) == batches(case["expected"])


def what_was_there_wins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(combiner, "_progress", lambda run: 0)


def the_state_before_the_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(combiner, "_progress", lambda run: (run.state, run.delivery_count))


def the_count_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(combiner, "_progress", lambda run: run.delivery_count)


def forget_the_start_offset(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(combiner, "drop_below", lambda runs, start_offset: None)


def drop_a_run_that_reaches_over_the_start_offset(patch: pytest.MonkeyPatch) -> None:
    def drop_below(runs: RunMap, start_offset: int) -> None:
        while (lowest := runs.first()) is not None and lowest.first < start_offset:
            runs.drop(lowest.first)

    patch.setattr(combiner, "drop_below", drop_below)


MISTAKES = [
    what_was_there_wins,
    the_state_before_the_count,
    the_count_alone,
    forget_the_start_offset,
    drop_a_run_that_reaches_over_the_start_offset,
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_found(mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    assert any(outcome(case) != batches(case["expected"]) for case in CASES)
