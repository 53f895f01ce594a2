"""The core against recorded scenarios of Kafka's share partition (inputs of 4.3.1's tests, outputs of 4.4.0)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.config.resolved import GroupConfig
from coordinator.core.commands import acknowledge, acquire_records, membership
from coordinator.core.records import RunsChanged
from coordinator.core.runs import Run, Segment
from coordinator.protocol.errors import ShareGroupError
from tests.vectors.share_partition_adapter import Scenario

SCENARIOS = {s["name"]: s for s in json.loads(Path(__file__).with_name("share_partition.json").read_text("utf-8"))}
NO_PERSISTER = (
    "the owner of a group reads its own log: there is no answer of another process that could carry an "
    "error, be for another partition, or be empty. A store that can't be read: tests/unit/test_runtime.py"
)
NO_LOOKUP = (
    "the core is given resolved start offsets and looks nothing up. A broker that can't be asked fails the "
    "join by name, and nothing is appended: tests/unit/test_coordinator_service.py"
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
def test_it_does_what_kafka_does(name: str) -> None:
    scenario: dict[str, Any] = SCENARIOS[name]
    assert Scenario(scenario).play(scenario["steps"]) == []


def keep_the_lock_at_its_deadline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership, "consumer_lost_lock", lambda run, config: run)


def never_reach_the_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Run, "tries", property(lambda run: 0))


def forget_what_fell_below_the_log_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership, "_below_log_start", lambda *a: None)


def anybody_may_acknowledge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(acknowledge, "check_held", lambda *a: None)


def renew_though_it_is_disabled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(acknowledge, "_renewed", lambda group, run, config, now_ms: run)


def give_a_count_back(patch: pytest.MonkeyPatch) -> None:
    right = acknowledge.released

    def released(run: Run, config: GroupConfig) -> Run:
        return right(run._replace(delivery_count=run.delivery_count - 1), config)

    patch.setattr(acknowledge, "released", released)


def take_more_than_the_limit(patch: pytest.MonkeyPatch) -> None:
    right = acquire_records.PartitionFetch._take

    def take(self: acquire_records.PartitionFetch, segment: Segment) -> int:
        return right(self, segment._replace(last=min(segment.last + 1, self.bounds.end - 1)))

    patch.setattr(acquire_records.PartitionFetch, "_take", take)


def forget_to_append_runs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RunsChanged, "durable", False)


MISTAKES = [
    (keep_the_lock_at_its_deadline, "testAcquisitionLockForAcquiringMultipleRecordsWithOverlapAndNewBatch"),
    (never_reach_the_limit, "testAcquisitionLockTimeoutCauseMaxDeliveryCountExceed"),
    (forget_what_fell_below_the_log_start, "testLsoMovementWithPendingAcknowledgementsForBatches"),
    (anybody_may_acknowledge, "testAcknowledgeWithAnotherMemberRollbackSubsetError"),
    (renew_though_it_is_disabled, "testRenewAcknowledgeDisabledWithPerOffsetAck"),
    (give_a_count_back, "testAcquireWithMaxInFlightRecordsAndReleaseLastOffset"),
    (take_more_than_the_limit, "testAcquisitionLockSingleRecordBatchInRecordLimitMode"),
    (forget_to_append_runs, "testAcknowledgeMultipleRecordBatch"),
]


@pytest.mark.parametrize(("mistake", "name"), MISTAKES, ids=[mistake.__name__ for mistake, _ in MISTAKES])
def test_a_mistake_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, ShareGroupError, ValueError)):
        test_it_does_what_kafka_does(name)


def test_what_the_design_rules_out_is_among_the_scenarios() -> None:
    assert set(RULED_OUT) <= set(SCENARIOS)
    assert len(SCENARIOS) == 132
