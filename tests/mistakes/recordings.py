"""Mistakes that the recordings of Kafka's own engine find (tests/vectors).

Each list is of one recording: of the combiner of state batches, of the records of the state topic, and of the share
partition, there with the name of the scenario that finds the mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.config.resolved import GroupConfig
from coordinator.core.commands import acknowledge, membership
from coordinator.core.commands import acquire_for_consumer as acquire_records
from coordinator.core.log_records import RunsChanged
from coordinator.core.release_backoff import Delay
from coordinator.core.runs import Run, RunMap, Segment
from coordinator.state_log import combiner, partition_log
from coordinator.state_log.record_keys import Key, ShareSnapshotKey, ShareUpdateKey
from tests.mistakes.mistake import Make, Patch
from tests.support.kafka_partition_log import KafkaPartitionLog

# --- the combiner


def what_was_there_wins(patch: Patch) -> None:
    patch.setattr(combiner, "_progress", lambda run: 0)


def the_state_before_the_count(patch: Patch) -> None:
    patch.setattr(combiner, "_progress", lambda run: (run.state, run.delivery_count))


def the_count_alone(patch: Patch) -> None:
    patch.setattr(combiner, "_progress", lambda run: run.delivery_count)


def forget_the_start_offset(patch: Patch) -> None:
    patch.setattr(combiner, "drop_below", lambda runs, start_offset: None)


def drop_a_run_that_reaches_over_the_start_offset(patch: Patch) -> None:
    def drop_below(runs: RunMap, start_offset: int) -> None:
        while (lowest := runs.first()) is not None and lowest.first < start_offset:
            runs.drop(lowest.first)

    patch.setattr(combiner, "drop_below", drop_below)


OF_THE_COMBINER: list[Make] = [
    what_was_there_wins,
    the_state_before_the_count,
    the_count_alone,
    forget_the_start_offset,
    drop_a_run_that_reaches_over_the_start_offset,
]

# --- the records of the state topic


def change_at(patch: Patch, method: str, **fields: Callable[[KafkaPartitionLog], Any]) -> None:
    """Have a method see, or leave behind, other numbers than those that are remembered."""
    right = getattr(KafkaPartitionLog, method)

    def wrong(self: KafkaPartitionLog, *args: Any, **kwargs: Any) -> Any:
        for name, value in fields.items():
            setattr(self, name, value(self))
        return right(self, *args, **kwargs)

    patch.setattr(KafkaPartitionLog, method, wrong)


def after_replay(patch: Patch, spoil: Callable[[KafkaPartitionLog, Key], None]) -> None:
    right = KafkaPartitionLog.replay

    def replay(self: KafkaPartitionLog, key: Key, value: bytes | None) -> None:
        right(self, key, value)
        spoil(self, key)

    patch.setattr(KafkaPartitionLog, "replay", replay)


def one_update_too_many(patch: Patch) -> None:
    right = KafkaPartitionLog.write

    def write(self: KafkaPartitionLog, *args: Any, updates_per_snapshot: int, **kwargs: Any) -> Any:
        return right(self, *args, updates_per_snapshot=updates_per_snapshot + 1, **kwargs)

    patch.setattr(KafkaPartitionLog, "write", write)


def count_no_updates(patch: Patch) -> None:
    after_replay(patch, lambda log, key: setattr(log, "updates", 0))


def count_snapshots_as_updates(patch: Patch) -> None:
    after_replay(patch, lambda log, key: setattr(log, "updates", log.updates + isinstance(key, ShareSnapshotKey)))


def an_update_has_an_epoch_of_its_own(patch: Patch) -> None:
    def spoil(log: KafkaPartitionLog, key: Key) -> None:
        if isinstance(key, ShareUpdateKey):
            log.snapshot_epoch = 0

    after_replay(patch, spoil)


def the_same_epoch_for_each_snapshot(patch: Patch) -> None:
    change_at(patch, "_snapshot", snapshot_epoch=lambda log: log.snapshot_epoch and log.snapshot_epoch - 1)


def a_cold_snapshot_begins_anew(patch: Patch) -> None:
    change_at(patch, "snapshot", create_timestamp_ms=lambda log: log.create_timestamp_ms + 1)


def snapshot_the_cold_for_ever(patch: Patch) -> None:
    patch.setattr(KafkaPartitionLog, "snapshotted_cold", False)


def snapshot_the_warm_as_well(patch: Patch) -> None:
    patch.setattr(KafkaPartitionLog, "is_cold", lambda log, now_ms, interval_ms: True)


def write_whatever_leads(patch: Patch) -> None:
    change_at(patch, "lead", leader_epoch=lambda log: None)


def nobody_leads_at_first(patch: Patch) -> None:
    patch.setattr(partition_log, "INITIAL_LEADER_EPOCH", None)


def forget_the_state_epoch(patch: Patch) -> None:
    after_replay(patch, lambda log, key: setattr(log, "state_epoch", 0))


OF_THE_STATE_TOPIC: list[Make] = [
    one_update_too_many,
    count_no_updates,
    count_snapshots_as_updates,
    an_update_has_an_epoch_of_its_own,
    the_same_epoch_for_each_snapshot,
    a_cold_snapshot_begins_anew,
    snapshot_the_cold_for_ever,
    snapshot_the_warm_as_well,
    write_whatever_leads,
    nobody_leads_at_first,
    forget_the_state_epoch,
]

# --- the share partition


def keep_the_lock_at_its_deadline(patch: Patch) -> None:
    patch.setattr(membership, "consumer_lost_lock", lambda run, config: run)


def never_reach_the_limit(patch: Patch) -> None:
    patch.setattr(Run, "tries", property(lambda run: 0))


def forget_what_fell_below_the_log_start(patch: Patch) -> None:
    patch.setattr(membership, "_below_log_start", lambda *a: None)


def anybody_may_acknowledge(patch: Patch) -> None:
    patch.setattr(acknowledge, "check_held", lambda *a: None)


def renew_though_it_is_disabled(patch: Patch) -> None:
    patch.setattr(acknowledge, "_renewed", lambda group, run, config, now_ms: run)


def give_a_count_back(patch: Patch) -> None:
    right = acknowledge.released

    def released(run: Run, config: GroupConfig, *delay: Delay) -> Run:
        return right(run._replace(delivery_count=run.delivery_count - 1), config, *delay)

    patch.setattr(acknowledge, "released", released)


def take_more_than_the_limit(patch: Patch) -> None:
    right = acquire_records.PartitionFetch._take

    def take(self: acquire_records.PartitionFetch, segment: Segment) -> int:
        return right(self, segment._replace(last=min(segment.last + 1, self.end - 1)))

    patch.setattr(acquire_records.PartitionFetch, "_take", take)


def forget_to_append_runs(patch: Patch) -> None:
    patch.setattr(RunsChanged, "durable", False)


OF_THE_SHARE_PARTITION: list[tuple[Make, str]] = [
    (keep_the_lock_at_its_deadline, "testAcquisitionLockForAcquiringMultipleRecordsWithOverlapAndNewBatch"),
    (never_reach_the_limit, "testAcquisitionLockTimeoutCauseMaxDeliveryCountExceed"),
    (forget_what_fell_below_the_log_start, "testLsoMovementWithPendingAcknowledgementsForBatches"),
    (anybody_may_acknowledge, "testAcknowledgeWithAnotherMemberRollbackSubsetError"),
    (renew_though_it_is_disabled, "testRenewAcknowledgeDisabledWithPerOffsetAck"),
    (give_a_count_back, "testAcquireWithMaxInFlightRecordsAndReleaseLastOffset"),
    (take_more_than_the_limit, "testAcquisitionLockSingleRecordBatchInRecordLimitMode"),
    (forget_to_append_runs, "testAcknowledgeMultipleRecordBatch"),
]
