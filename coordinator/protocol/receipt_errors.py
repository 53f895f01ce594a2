"""Named errors of a sink's rows whose receipts are wrong, and not merely stale; their form is that of
coordinator.protocol.errors."""

from __future__ import annotations

from coordinator.protocol.errors import ShareGroupError


class NeverDelivered(ShareGroupError):
    """The row of {row} is of no delivery of share group {group_id}: {reason}. Nothing was staged. Keep topic,
    partition, offset, deliveryCount and receipt up to the sink as they came from the source."""

    kafka_error = "INVALID_REQUEST"


class NoneHeld(ShareGroupError):
    """None of the batch's {count} row(s), {sample} for example, is of a record that its query holds in share group
    {group_id}, although the query has lost none of its batch: the rows are those of an earlier batch or of another
    query, or their offsets or deliveryCounts were changed. Nothing was staged. Write the rows of a batch inside its
    query, with topic, partition, offset, deliveryCount and receipt as they came from the source."""

    kafka_error = "INVALID_RECORD_STATE"
