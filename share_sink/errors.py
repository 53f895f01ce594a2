"""Named errors of the sink; their form is that of coordinator.protocol.errors."""

from __future__ import annotations

from typing import Any

from coordinator.protocol.errors import ShareGroupError

# --- found when the query starts, or a batch is written


class NoSinkOptions(ShareGroupError):
    """Nothing says which share group is acknowledged: the option {option} is missing. Pass options to acknowledge(), or
    set them in the session's configuration as spark.sharegroup.{option}."""

    kafka_error = "INVALID_CONFIG"


class OverwriteRefused(ShareGroupError):
    """A share group's records can be acknowledged, not overwritten: use mode("append") for a batch, and outputMode
    append or update for a stream."""

    kafka_error = "INVALID_REQUEST"


class RowsOfAnotherGroup(ShareGroupError):
    """The sink's kafka.group.id is {group_id}, and its rows are of {found}: {group_id} would take what was said of
    those records for its own. Nothing was written. Let the sink's kafka.group.id be that of its query's source;
    if the query means to acknowledge records that another query reads, set onOtherGroup=allow."""

    kafka_error = "INVALID_CONFIG"


class MissingColumn(ShareGroupError):
    """The rows have no column {column} ({wanted}); they have {columns}. A sink needs the source's topic, partition,
    offset and deliveryCount, as they came, and acknowledgement: keep them up to the end of the query."""

    kafka_error = "INVALID_REQUEST"


class WrongColumn(ShareGroupError):
    """The column {column} can't be used: it is {found}, and has to be {wanted}. {instead}"""

    kafka_error = "INVALID_REQUEST"


# --- found by a task, on an executor: nothing of the batch is staged


class UnknownOutcome(ShareGroupError):
    """The row of {row} has the acknowledgement {value}, and it can be accept, release, reject or null, which is accept.
    Nothing of its batch was acknowledged."""

    kafka_error = "INVALID_REQUEST"


class RenewRefused(ShareGroupError):
    """The row of {row} has the acknowledgement renew, which is for ShareConsumers: a query's records are renewed by
    itself for as long as it runs. Use release to have a record delivered again."""

    kafka_error = "INVALID_REQUEST"


class IncompleteReceipt(ShareGroupError):
    """A row has no {column}, so that nobody knows which record it acknowledges (its receipt is {row}). Drop such rows
    before the sink; they often come from an outer join or a union."""

    kafka_error = "INVALID_REQUEST"


class InvalidReleaseDelay(ShareGroupError):
    """The row of {row} has releaseDelayMs={value}, and a delay is a number of milliseconds from 0 to {most}."""

    kafka_error = "INVALID_REQUEST"


# --- the archive


class ArchiveNotWritable(ShareGroupError):
    """The archive {path} can't be written: {reason}. Let archive.path name a folder that the driver and every executor
    may create, write and delete files in, as a path or a URI that pyarrow knows (file, s3, gs, abfss, hdfs); its
    credentials come from the environment of each of them."""

    kafka_error = "INVALID_CONFIG"


class ArchiveRowsMissing(ShareGroupError):
    """{count} file(s) that tasks wrote into the archive {path} are not there, {example} for one. A path of a local disk
    is good only where the driver and all executors are one host: let archive.path name a file system that all see. The
    batch was not acknowledged, and comes again at the restart."""

    kafka_error = "INVALID_CONFIG"


class ArchiveFormatUnknown(ShareGroupError):
    """The file {file} of the archive {path} was written by another version of sharegroup: {reason}. Nothing in the
    archive was changed. Run the version that wrote it, or let archive.path name another folder."""

    kafka_error = "INVALID_CONFIG"


# --- redrive


class DeadLettersNotRead(ShareGroupError):
    """The dead letter topic {topic} could not be read to its end: {reason}. Redriving needs READ and DESCRIBE on it,
    and its brokers."""


class RedriveTargetMissing(ShareGroupError):
    """Topic {topic}, where dead letters of {dlq_topic} are to be sent, does not exist. Create it, send them to another
    topic (to), or leave its letters out (where: the header __dlq.errors.topic)."""

    kafka_error = "UNKNOWN_TOPIC_OR_PARTITION"


class RedriveIntoItself(ShareGroupError):
    """Dead letters of {topic} can't be sent to {topic}: name another topic, or none, so that each goes to its own."""

    kafka_error = "INVALID_REQUEST"


class RedriveStopped(ShareGroupError):
    """The redrive of {topic} stopped after {sent} letter(s) were sent; {unsent} more were not, or it is not known
    ({first}): {reason}. All are in {topic} still: a new redrive sends all that where selects, those that were sent too;
    their partitions and offsets tell them apart."""

    report: Any = None
    """The RedriveReport."""
