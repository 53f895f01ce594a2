"""Records that a group gives up although no sink rejected them: how many, which, and why.

A record is given up at the delivery limit: its holder released it, or no sink decided it, too often; it failed its
trial; or its locks ran out too often. It becomes ARCHIVING, or ARCHIVED at once where there is no dead letter queue.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.core.record_state import RecordState
from coordinator.core.records import Record, RunsChanged
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import GivenUp
from coordinator.protocol.values import Disposition, SharePartitionKey

SAMPLE = 20
"""Ranges of offsets that a report names; its count is of all offsets."""

_DISPOSITIONS = frozenset({Disposition.DELIVERY_LIMIT, Disposition.UNDECIDED, Disposition.EXPIRED})
_STATES = frozenset({RecordState.ARCHIVING, RecordState.ARCHIVED})


def given_up(group: ShareGroup, records: Iterable[Record]) -> tuple[GivenUp, ...]:
    """The records that these log records give up, one entry a disposition.

    The caller asks before it replays the log records: a record that is ARCHIVING already was given up earlier, and its
    dead letter is written now."""
    counts: dict[Disposition, int] = {}
    samples: dict[Disposition, list[tuple[str, int, int, int]]] = {}
    for record in records:
        if not isinstance(record, RunsChanged):
            continue
        partition = group.partitions[SharePartitionKey(record.topic_id, record.partition)]
        for first, last, run in record.runs:
            if run.disposition not in _DISPOSITIONS or run.state not in _STATES:
                continue
            before = partition.runs.at(first)
            if before is not None and before.run.state in _STATES:
                continue
            counts[run.disposition] = counts.get(run.disposition, 0) + last - first + 1
            sample = samples.setdefault(run.disposition, [])
            if len(sample) < SAMPLE:
                sample.append((group.topic_names[record.topic_id], record.partition, first, last))
    return tuple(
        GivenUp(disposition=kind.name.lower(), count=count, sample=tuple(samples[kind]))
        for kind, count in counts.items()
    )
