"""Computes when a ShareConsumer's lock ends, from what the log has.

Rule: without a signal, a record is held for share.record.lock.duration.ms. With signals it is IN_PROGRESS, and held as
long as they come (KAFKA-20458), but not beyond group.share.in.progress.max.lock.extension.ms after the record was
acquired.
"""

from __future__ import annotations

from coordinator.config.resolved import GroupConfig
from coordinator.core.members import AcquiredPlan
from coordinator.core.runs import Progress, Run


def lock_deadline_ms(plan: AcquiredPlan, run: Run, config: GroupConfig) -> int:
    """Returns when the lock of a held run ends, in milliseconds of the coordinator's clock. Renewals are not in the
    log."""
    if run.progress is None:
        return plan.acquired_ms + config.share_record_lock_duration_ms
    return progress_deadline_ms(plan, run.progress, config)


def progress_deadline_ms(plan: AcquiredPlan, progress: Progress, config: GroupConfig) -> int:
    """Returns when the lock of an IN_PROGRESS run with these signals ends."""
    stale_ms = progress.last_ms + config.group_share_in_progress_staleness_threshold_ms
    return min(stale_ms, extension_end_ms(plan, config))


def extension_end_ms(plan: AcquiredPlan, config: GroupConfig) -> int:
    """The time beyond which signals extend no lock of the plan."""
    return plan.held_since_ms + config.group_share_in_progress_max_lock_extension_ms
