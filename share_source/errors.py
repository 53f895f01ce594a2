"""Named errors of the source; their form is that of coordinator.protocol.errors."""

from __future__ import annotations

from coordinator.protocol.errors import ShareGroupError

# --- options: found before the query starts


class NoSubscription(ShareGroupError):
    """No option names the topics to read: set exactly one of subscribe, subscribePattern and assign."""

    kafka_error = "INVALID_CONFIG"


class SeveralSubscriptions(ShareGroupError):
    """The options {options} contradict each other: set exactly one of subscribe, subscribePattern and assign."""

    kafka_error = "INVALID_CONFIG"


# --- checkpoints: found when the query starts


class ForeignCheckpoint(ShareGroupError):
    """The checkpoint belongs to share group {checkpoint_group_id}, and the option kafka.group.id says {group_id}: set
    it to {checkpoint_group_id}, or give the query a checkpointLocation of its own."""

    kafka_error = "INVALID_REQUEST"


class UnreadableOffset(ShareGroupError):
    """The checkpoint's offset was not written by this version of the sharegroup source: {reason} ({offset}). Nothing
    was changed. Give the query a new checkpointLocation (records not yet acknowledged stay with the group), or run the
    version that wrote it."""

    kafka_error = "INVALID_REQUEST"


class PlanDiffersFromLog(ShareGroupError):
    """The checkpoint and the coordinator disagree about plan {plan_id} of share group {group_id} (member {member_id}):
    {difference}. The checkpoint or the group's state was restored from a backup, or the checkpoint was edited. Nothing
    of the batch was read. Give the query a new checkpointLocation: it goes on with the records that the group has not
    completed, and may deliver records of this batch a second time."""

    kafka_error = "INVALID_REQUEST"


class TriggerOnceRefused(ShareGroupError):
    """Trigger.Once is refused: it would take all available records as one batch, and a share group has no end to read
    up to. Use trigger(availableNow=True), which reads the available records in batches of maxOffsetsPerTrigger."""

    kafka_error = "INVALID_REQUEST"


# --- reading: found by a task, on an executor


class RecordsGone(ShareGroupError):
    """{count} record(s) of {topic}-{partition} were lost before they were read, offsets {first} to {last}: {reason}.
    They were removed from the log (retention, delete-records), or the topic was deleted: restart the query to continue
    without them, or set failOnDataLoss=false to never fail for lost records. If an unclean leader election has
    shortened the log, a restart fails again until other records are at these offsets: only failOnDataLoss=false
    continues without them."""

    kafka_error = "OFFSET_OUT_OF_RANGE"


class ReadTimeout(ShareGroupError):
    """No record of {topic}-{partition} came within {timeout_ms} ms: offset {offset} is the next one to read (up to
    {last}). The client's last error was: {reason}. Executors have to reach every broker of the cluster by its
    advertised address; kafkaConsumer.pollTimeoutMs sets how long to wait."""

    kafka_error = "REQUEST_TIMED_OUT"
    retriable = True


class ReadDenied(ShareGroupError):
    """Executors may not read the topic {topic}: {reason}. The principal of kafka.* needs READ and DESCRIBE on it."""

    kafka_error = "TOPIC_AUTHORIZATION_FAILED"


class ReadFailed(ShareGroupError):
    """Reading {topic}-{partition} failed at offset {offset}: {reason}"""
