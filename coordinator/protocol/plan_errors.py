"""Named errors of a query's plan; their form is that of coordinator.protocol.errors, which has them too: import them
from there."""

from __future__ import annotations

from coordinator.protocol.error_base import ShareGroupError


class StalePlan(ShareGroupError):
    """Plan {plan_id} of member {member_id} is refused: {reason}. The checkpoint was rolled back or copied from an older
    state of this query; its records were delivered and completed since, or belong to a newer batch. Start the query
    with a new checkpointLocation: records not yet acknowledged stay with the group."""

    kafka_error = "INVALID_RECORD_STATE"


class ForeignPlan(ShareGroupError):
    """Plan {plan_id} does not belong to this incarnation of share group {group_id} (now {incarnation}): the group, or
    its state store, was deleted and created anew, or the checkpoint belongs to another group. Start the query with a
    new checkpointLocation."""

    kafka_error = "INVALID_REQUEST"


class PlanDiffersFromLog(ShareGroupError):
    """The checkpoint and the coordinator disagree about plan {plan_id} of share group {group_id} (member {member_id}):
    {difference}. The checkpoint or the group's state was restored from a backup, or the checkpoint was edited. Nothing
    of the batch was read, and nothing was changed in the group. Give the query a new checkpointLocation: it goes on
    with the records that the group has not completed, and may deliver records of this batch a second time."""

    kafka_error = "INVALID_REQUEST"


class DataLoss(ShareGroupError):
    """Share group {group_id} lost {count} record(s) before they were read: {ranges}. They were removed from the log
    (retention, delete-records, or the topic was deleted) and are now archived. Restart the query to go on without them,
    or set failOnDataLoss=false to never fail for this."""

    kafka_error = "OFFSET_OUT_OF_RANGE"
