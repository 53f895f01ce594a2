"""When a ShareConsumer's lock ends, by the log.

Rule: a record that no signal came for is held for share.record.lock.duration.ms; one that is IN_PROGRESS as long as the
signals come (KAFKA-20458), and never beyond group.share.in.progress.max.lock.extension.ms after its acquisition.
"""

from __future__ import annotations

from coordinator.config.resolved import GroupConfig
from coordinator.core.members import AcquiredPlan
from coordinator.core.runs import Progress, Run


def lock_deadline_ms(plan: AcquiredPlan, run: Run, config: GroupConfig) -> int:
    """When the lock of a held run ends, in milliseconds of the coordinator's clock. Renewals are not in the log."""
    if run.progress is None:
        return plan.acquired_ms + config.share_record_lock_duration_ms
    return progress_deadline_ms(plan, run.progress, config)


def progress_deadline_ms(plan: AcquiredPlan, progress: Progress, config: GroupConfig) -> int:
    """When the lock of an IN_PROGRESS run with these signals ends."""
    stale_ms = progress.last_ms + config.group_share_in_progress_staleness_threshold_ms
    return min(stale_ms, extension_end_ms(plan, config))


def extension_end_ms(plan: AcquiredPlan, config: GroupConfig) -> int:
    """Until when signals extend the locks of the plan."""
    return plan.held_since_ms + config.group_share_in_progress_max_lock_extension_ms
