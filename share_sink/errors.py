"""Named errors of the sink; their form is that of coordinator.protocol.errors."""

from __future__ import annotations

from typing import Any

from coordinator.protocol.errors import ShareGroupError

# --- found when the query starts, or a batch is written


class NoSinkOptions(ShareGroupError):
    """The option {option} is missing: acknowledge() needs the brokers and the share group. Pass options to
    acknowledge(), or set them in the session's configuration as spark.sharegroup.{option}."""

    kafka_error = "INVALID_CONFIG"


class OutcomesMayChange(ShareGroupError):
    """The outcomes of these rows may be others when Spark computes them again: their plan has {found}. Records that
    were accepted here could be missing from the output. Compute the rows once: with sharegroup.decide(rows) as decided,
    acknowledge decided, then write decided."""

    kafka_error = "INVALID_REQUEST"


class OverwriteRefused(ShareGroupError):
    """A share group's records can be acknowledged, not overwritten: use mode("append") for a batch, and
    outputMode("append") for a stream."""

    kafka_error = "INVALID_REQUEST"


class RowsOfAnotherGroup(ShareGroupError):
    """{rows} not of share group {group_id}: the receipt is of another group, of {group_id} before it was deleted and
    created anew, or of a topic whose state {group_id} no longer has. Nothing of the batch was acknowledged. Set the
    sink's kafka.group.id to that of the source which read the rows, keep the column receipt as it came from the source,
    and write rows of several groups with a sink for each group."""

    kafka_error = "INVALID_CONFIG"


class MissingColumn(ShareGroupError):
    """The rows have no column {column} ({wanted}); they have {columns}. A sink needs topic, partition, offset,
    deliveryCount and receipt, as they came from the source, and acknowledgement. {instead}"""

    kafka_error = "INVALID_REQUEST"


class WrongColumn(ShareGroupError):
    """The column {column} can't be used: it is {found}, and has to be {wanted}. {instead}"""

    kafka_error = "INVALID_REQUEST"


# --- found by a task, on an executor: nothing of the batch is staged


class UnknownOutcome(ShareGroupError):
    """The row of {row} has the acknowledgement {value}; it has to be accept, release, reject or null (which is accept).
    Nothing of its batch was acknowledged."""

    kafka_error = "INVALID_REQUEST"


class RenewRefused(ShareGroupError):
    """The row of {row} has the acknowledgement renew, which is for ShareConsumers: a query holds its records for as
    long as it runs. Use release to have a record delivered again."""

    kafka_error = "INVALID_REQUEST"


class IncompleteReceipt(ShareGroupError):
    """A row has no {column}, so it names no delivery to acknowledge (the row of {row}). Drop such rows before the sink;
    they often come from an outer join or a union."""

    kafka_error = "INVALID_REQUEST"


class NullHeader(ShareGroupError):
    """Row {row} has a null in place of a header. A header is a struct of key and value, of which the value may be null:
    leave nulls out of the array, for example with array_compact(headers)."""

    kafka_error = "INVALID_REQUEST"


class InvalidReleaseDelay(ShareGroupError):
    """The row of {row} has releaseDelayMs={value}, and a delay is a number of milliseconds from 0 to {most}."""

    kafka_error = "INVALID_REQUEST"


# --- the archive


class ArchiveNotWritable(ShareGroupError):
    """The archive {path} can't be written: {reason}. Set archive.path to a folder in which the driver and every
    executor may create, write and delete files, as a path or a URI that pyarrow knows (file, s3, gs, abfss, hdfs); each
    of them takes the credentials from its environment."""

    kafka_error = "INVALID_CONFIG"


class ArchiveNotFound(ShareGroupError):
    """There is no archive at {path}: {reason}. Name the folder that the sink's archive.path names."""

    kafka_error = "INVALID_CONFIG"


class ArchiveRowsMissing(ShareGroupError):
    """{count} file(s) that tasks wrote into the archive {path} are missing, for example {example}. A path of a local
    disk works only if the driver and all executors run on one host: set archive.path to a file system that all of them
    reach. The batch was not acknowledged, and is delivered again at the restart."""

    kafka_error = "INVALID_CONFIG"


class ArchiveFormatUnknown(ShareGroupError):
    """The file {file} of the archive {path} is damaged, or was written by another version of sharegroup: {reason}.
    Nothing in the archive was changed. Run the version that wrote it, or let archive.path name another folder."""

    kafka_error = "INVALID_CONFIG"


# --- redrive


class DeadLettersNotRead(ShareGroupError):
    """The dead letter topic {topic} could not be read to its end: {reason}. Redriving needs READ and DESCRIBE on it,
    and its brokers."""


class InvalidCondition(ShareGroupError):
    """The condition {condition} of a redrive can't be used: {reason}. Write NAME=VALUE or NAME~=REGEX, where NAME is
    topic, partition, offset, group, delivery.count, message, disposition, key, value, or a header."""

    kafka_error = "INVALID_REQUEST"


class RedriveTargetMissing(ShareGroupError):
    """Topic {topic}, to which dead letters of {dlq_topic} are to be sent, does not exist. Create it, send them to
    another topic (to), or leave its dead letters out (where: the header __dlq.errors.topic)."""

    kafka_error = "UNKNOWN_TOPIC_OR_PARTITION"


class RedriveChanged(ShareGroupError):
    """A redrive of {topic} would not send what was shown: its dead letters, or the topics of their groups, are others
    now. Nothing was sent. Make a dry run again."""

    kafka_error = "INVALID_REQUEST"


class RedriveIntoItself(ShareGroupError):
    """Dead letters of {topic} can't be sent to {topic}: name another topic, or none, so that each goes to its own."""

    kafka_error = "INVALID_REQUEST"


class RedriveStopped(ShareGroupError):
    """The redrive of {topic} stopped after {sent} dead letter(s) were sent; {unsent} more were not sent, or it is not
    known whether they were ({first}): {reason}. All are in {topic} still. A new redrive sends all that where selects,
    also those that were sent already. To leave these out, call sharegroup.redrive with a function as where that
    compares DeadLetter.partition and DeadLetter.offset: partition= and offset= of --where name the original record."""

    report: Any = None
    """The RedriveReport."""
