"""Compares a coordinator's memory of the group with what the ledger has read in the log."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.core.record_state import RecordState
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import Disposition
from coordinator.service.stores.store import StoredRecord
from tests.simulation.broker import log_of
from tests.simulation.ledger import NEVER_ACQUIRED, Ledger, in_words
from tests.support.group_driver import durable_state


def check_group(ledger: Ledger, group: ShareGroup) -> None:
    """The group has the runs that the log says, merged where they are alike."""
    for topic_partition, partition in group.partitions.items():
        if partition.unaccounted:
            ledger.world.fail(f"{partition!r} does not account for {partition.unaccounted} offsets")
        seen, before, log = set(), None, log_of(*topic_partition)
        _check_counts(ledger, log, partition)
        for first, last, run in partition.runs:
            if before == (first, run):
                ledger.world.fail(f"{partition!r}: equal neighbours at {first} are not merged")
            before = (last + 1, run)
            for offset in range(first, last + 1):
                key = (log, offset)
                seen.add(key)
                said = ledger.runs.get(key, NEVER_ACQUIRED)
                if run._replace(deadline_ms=None) != said._replace(deadline_ms=None):
                    ledger.world.fail(f"{key} is {in_words(run)} in memory and {in_words(said)} in the log")
        for offset in range(partition.start_offset, partition.end_offset):
            if (log, offset) not in seen:
                ledger.world.fail(f"{partition!r} does not know {offset}")
        _check_start(ledger, log, partition.start_offset)


def _check_counts(ledger: Ledger, log: int, partition: SharePartition) -> None:
    """Each reason counts what is true of its records: what was accepted was read, and what Kafka removed is no gap. The
    rest, together, is what the sum leaves."""
    true, told = ledger.counts[log], partition.counts
    none = told.archived[Disposition.NONE]
    if told.accepted != true["accepted"]:
        ledger.world.fail(f"{partition!r} counts {told.accepted} accepted, and {true['accepted']} were")
    if not true["none"] <= none <= true["none"] + true["either"]:
        ledger.world.fail(f"{partition!r} counts {none} gaps, and the log has {true['none']}")
    if told.deleted and log not in ledger.broker.gone:
        ledger.world.fail(f"{partition!r} counts {told.deleted} as deleted, and the topic exists")


def check_rebuilt(ledger: Ledger, group: ShareGroup, log: Sequence[StoredRecord]) -> None:
    """Fails the world if the log rebuilds another group than the one in memory."""
    if ledger.state(group.group_id, [r.data for r in log]) != durable_state(group):
        ledger.world.fail("the state that the log rebuilds is not the state in memory")


def _check_start(ledger: Ledger, log: int, start_offset: int) -> None:
    for offset in range(ledger.starts[log], start_offset):
        run = ledger.runs.get((log, offset))
        below = run is not None and run.state == RecordState.ARCHIVING and offset < ledger.log_starts.get(log, 0)
        if not below and not ledger.is_done((log, offset)):
            ledger.world.fail(f"{(log, offset)} is below the start offset {start_offset}, and not done")
