"""Named errors of the source; their form is that of coordinator.protocol.errors."""

from __future__ import annotations

from coordinator.protocol.errors import ShareGroupError

# --- options: found before the query starts


class NoSubscription(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """No option names the topics to read: set exactly one of subscribe, subscribePattern and assign."""


class SeveralSubscriptions(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """The options {options} contradict each other: set exactly one of subscribe, subscribePattern and assign."""


class BatchReadRefused(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """A share group can't be read as a batch (spark.read, or SQL on a table): a batch has no checkpoint that says
    which records it took and which are done. Use spark.readStream.format("sharegroup") and
    writeStream.trigger(availableNow=True): the query takes the available records, and ends. To look at the group's
    records without taking them, name the view records: .option("view", "records"). Other views show the group: groups,
    members, offsets, in-flight, dead-letters."""


class ViewIsNoStream(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """A view of share groups can't be read as a stream: use spark.read instead of spark.readStream, or remove the
    option view to read records."""


class SchemaRefused(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The columns of the sharegroup source are fixed ({fixed}), and .schema(...) names others: {columns}. Remove
    .schema(...), and parse the record's value in the query, for example with from_json(col("value").cast("string"),
    SCHEMA)."""


class ExecutorsUnfit(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """Executors on {hosts} can't run tasks of sharegroup {version}: {reason}. Install that version, with its packages,
    in the Python that PYSPARK_PYTHON names on every executor."""


# --- checkpoints: found when the query starts


class ForeignCheckpoint(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The checkpoint belongs to share group {checkpoint_group_id}, and the option kafka.group.id says {group_id}: set
    it to {checkpoint_group_id}, or give the query a checkpointLocation of its own."""


class CheckpointOfAnotherSource(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The checkpoint was written by {source}, and not by sharegroup ({offset}). Nothing was changed. Give the query a
    new checkpointLocation.{then}"""


class UnreadableOffset(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The checkpoint's offset was not written by this version of the sharegroup source: {reason} ({offset}). Nothing
    was changed. Give the query a new checkpointLocation (records not yet acknowledged stay with the group), or run the
    version that wrote it."""


class TriggerOnceRefused(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """Trigger.Once is refused: it would take all available records as one batch, and a share group has no end to read
    up to. Use trigger(availableNow=True), which reads the available records in batches of maxOffsetsPerTrigger."""


class LogNotTold(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """Spark asked the source for the next offset before it told the source the last offset in the query's offset log
    (in the checkpoint), or asked again without writing the answer to that log. So the source can't know which batch is
    committed, and acquires nothing. Spark 4.0 and 4.1 call the source in this order if
    spark.sql.streaming.triggerAvailableNowWrapper.enabled=true: remove that setting, or use Spark 4.2 or newer."""


class CheckpointChanged(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The function given to keep_running started query {started}, but the query that had failed is {ended}. Their
    checkpoints differ, so the failed batch would not be replayed. The new query was stopped; nothing is lost. Let the
    function set the same checkpointLocation at each start."""


class QueryStillRuns(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """Query {query} has not ended, and completes its batches itself: call complete_run after awaitTermination()."""


# --- reading: found by a task, on an executor


class RecordsGone(ShareGroupError, kafka_error="OFFSET_OUT_OF_RANGE"):
    """{count} record(s) of {topic}-{partition} can't be read any more, offsets {first} to {last}: {reason}.
    They were removed from the log (retention, delete-records), or the topic was deleted: restart the query to continue
    without them, or set failOnDataLoss=false to never fail for lost records. If an unclean leader election has
    shortened the log, a restart fails again until other records are at these offsets: only failOnDataLoss=false
    continues without them."""


class RecordsDamaged(ShareGroupError, kafka_error="CORRUPT_MESSAGE"):
    """The record batch of {topic}-{partition} with the offsets {first} to {last} can't be read; it was read {readings}
    times, each time over another connection. The client's error is: {reason}. The batch is damaged on the broker's
    disk, or was already damaged when it was produced. {then}"""


class ReadTimeout(ShareGroupError, kafka_error="REQUEST_TIMED_OUT", retriable=True):
    """No record of {topic}-{partition} came within {timeout_ms} ms: offset {offset} is the next one to read (up to
    {last}). The client's last error was: {reason}. Executors, and a ShareConsumer's host, have to reach
    every broker of the cluster by its advertised address. A query waits for kafkaConsumer.pollTimeoutMs, a
    ShareConsumer for share.broker.outage.timeout.ms: raise that, or poll again."""


class ReadDenied(ShareGroupError, kafka_error="TOPIC_AUTHORIZATION_FAILED"):
    """Topic {topic} may not be read: {reason}. Grant Read and Describe on it to the Kafka principal of the query or
    ShareConsumer."""


class ReadFailed(ShareGroupError):
    """Reading {topic}-{partition} failed at offset {offset}, and retries don't help: {reason}. Remove the cause (the
    brokers' logs may say more); then restart the query, which replays its batch, or poll again."""


# --- the read path: found by the first task of a process


class UnknownReader(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """The environment variable SHAREGROUP_READER is {value}: set it to native, python or auto, or remove it."""


class NativeReaderMissing(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """SHAREGROUP_READER=native demands the compiled reader, which can't be used here: {reason}. Install sharegroup from
    a wheel for this platform, or with a C compiler; or set SHAREGROUP_READER=auto, to read with Python where it is
    missing."""
