"""Named errors of the sink; their form is that of coordinator.protocol.errors."""

from __future__ import annotations

from typing import Any

from coordinator.protocol.errors import ShareGroupError

# --- found when the query starts, or a batch is written


class NoSinkOptions(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """The option {option} is missing: acknowledge() needs the brokers and the share group. Pass options to
    acknowledge(), or set them in the session's configuration as spark.sharegroup.{option}."""


class OutcomesMayChange(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The outcomes of these rows may differ when Spark computes the rows again: their query plan has {found}. Records
    that were accepted here could be missing from the output. Compute the rows once: in a block "with
    sharegroup.decide(rows) as decided:", first acknowledge decided, then write decided."""


class OverwriteRefused(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """A share group's records can be acknowledged, not overwritten: use mode("append") for a batch, and
    outputMode("append") for a stream."""


class RowsOfAnotherGroup(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """{rows} not of share group {group_id}: the receipt is of another group or cluster, of {group_id} before it was
    deleted and created anew, or of a topic whose state {group_id} no longer has. Nothing of the batch was acknowledged.
    Set the sink's kafka.group.id and kafka.bootstrap.servers to those of the source which read the rows, keep the
    column receipt as it came from the source, and write rows of several groups with a sink for each group."""


class MissingColumn(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The rows have no column {column} ({wanted}); they have {columns}. A sink needs topic, partition, offset,
    deliveryCount and receipt, as they came from the source, and acknowledgement. {instead}"""


class WrongColumn(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The column {column} can't be used: it is {found}, and has to be {wanted}. {instead}"""


# --- tables as targets of foreachBatch: found before the rows are computed, but for RecordTwice


class TableNotOpened(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """The table {table} can't be opened: {reason}. If it does not exist, create it first. If it does, start Spark with
    the package of its format, spark.sql.extensions and the catalog's settings."""


class TableUnfit(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """The table {table} can't be used: {reason}. {instead}."""


class PsycopgMissing(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """The driver needs the package psycopg for a table in PostgreSQL, and can't import it. Install it there: pip
    install "sharegroup[postgresql]"."""


class QueryNotKnown(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """append_once() does not know the query of the batch: {reason}. Call it in foreachBatch, with the rows and the
    batch_id of that call. With Spark Connect, or in a SparkSession that is not the application's first, pass
    append_once() the query's checkpointLocation in its options, or use merge_once()."""


class BatchAppendedTwice(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """append_once() has written batch {batch_id} into the table {table} already, and would leave out the rows of a
    second call. Call it once, with all rows of the batch (df.union), or use merge_once()."""


class RecordTwice(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The record {record} has {rows} rows, and merge_once() keeps one row of each record in the table {table}. Write
    one row of each record (an explode or a join may have made several), or use append_once()."""


# --- found by a task, on an executor: nothing of the batch is staged


class UnknownOutcome(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The row of {row} has the acknowledgement {value}; it has to be accept, release, reject, defer or null (which is
    accept). Nothing of its batch was acknowledged."""


class RenewRefused(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The row of {row} has the acknowledgement renew, which is for ShareConsumers: a query holds its records for as
    long as it runs. Use release to have a record delivered again."""


class IncompleteReceipt(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """A row has no {column}, so it names no delivery to acknowledge (the row of {row}). Drop such rows before the sink;
    they often come from an outer join or a union."""


class NullHeader(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """Row {row} has a null in place of a header. A header is a struct of a key and a value, and only the value may be
    null: leave nulls out of the array, for example with array_compact(headers)."""


class InvalidReleaseDelay(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The row of {row} has {column}={value}, and a delay is a number of milliseconds from 0 to {most}."""


# --- the archive


class ArchiveNotWritable(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """The archive {path} can't be written: {reason}. Set archive.path to a folder in which the driver and every
    executor may create, write and delete files, as a path or a URI that pyarrow knows (file, s3, gs, abfss, hdfs); each
    of them takes the credentials from its environment."""


class ArchiveNotFound(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """There is no archive at {path}: {reason}. Name the folder that the sink's archive.path names."""


class ArchiveRowsMissing(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """{count} file(s) that tasks wrote into the archive {path} are missing, for example {example}. A path of a local
    disk works only if the driver and all executors run on one host: set archive.path to a file system that all of them
    reach. The batch was not acknowledged, and is delivered again at the restart."""


class ArchiveFormatUnknown(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """The file {file} of the archive {path} is damaged, or was written by another version of sharegroup: {reason}.
    Nothing in the archive was changed. Run the version that wrote it, or let archive.path name another folder."""


# --- redrive


class DeadLettersNotRead(ShareGroupError):
    """The dead letter topic {topic} could not be read to its end: {reason}. A redrive needs the ACLs Read and Describe
    on the topic, and has to reach its brokers."""


class InvalidCondition(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The condition {condition} can't be used: {reason}. Write NAME=VALUE or NAME~=REGEX, where NAME is
    topic, partition, offset, group, delivery.count, message, disposition, key, value, or a header."""


class RedriveTargetMissing(ShareGroupError, kafka_error="UNKNOWN_TOPIC_OR_PARTITION"):
    """Topic {topic}, to which dead letters of {dlq_topic} are to be sent, does not exist. Create it, send the dead
    letters to another topic (to=, --to), or leave them out, by a condition on the header __dlq.errors.topic (where=,
    --where)."""


class RedriveChanged(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """A redrive of {topic} would not send what was shown: its dead letters, or their target topics, have changed since,
    or no dry run printed the text given as as_shown (--as-shown). Nothing was sent. Make a dry run again."""


class RedriveIntoItself(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """Dead letters in {topic} can't be sent to {topic} itself. Name another topic. Without a topic each dead letter
    goes back to the topic from which its record came."""


class RedriveStopped(ShareGroupError):
    """The redrive of {topic} stopped after {sent} dead letter(s) were sent; {unsent} more were not sent, or it is not
    known whether they were (the first: {first}): {reason}. All are in {topic} still. A new redrive with the same
    conditions also sends those that were sent already. To leave these out, call sharegroup.redrive with where=FUNCTION,
    a function that compares DeadLetter.partition and DeadLetter.offset, the dead letter's own place. --where can't do
    it: its partition= and offset= are those of the original record."""

    report: Any = None
    """The RedriveReport."""
