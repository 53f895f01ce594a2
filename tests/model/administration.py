"""An administrator's steps: new start offsets of a share partition."""

from __future__ import annotations

import functools

from coordinator.core.commands.administer import AlterStartOffsets
from tests.model.compare import share_partition_key
from tests.model.steps import Steps


def alter_start(steps: Steps, index: int, start: int, *, force: bool) -> None:
    """The share partition begins anew at ``start``; ``force``: also while the group has members."""
    now_ms = steps.core.now_ms
    command = AlterStartOffsets(starts=((*share_partition_key(index), start),), execute=True, force=force)
    naive = functools.partial(steps.model.alter_start, index, start, force=force, now_ms=now_ms)
    reply = steps.both(f"alter {index} {start} {force}", command, naive)
    if reply is not None:
        steps.model.settle()
        steps.comparison.spso[index] = steps.model.partitions[index].start
