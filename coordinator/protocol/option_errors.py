"""Named errors of options that source and sink share (:mod:`coordinator.protocol.errors`).

All of them are raised before the query's first batch."""

from __future__ import annotations

from coordinator.protocol.errors import ShareGroupError


class MissingOption(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """The option {option} is missing: {why}"""


class UnknownOption(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """{option} is not an option of the sharegroup {side}; {hint}."""


class RefusedOption(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """The option {option} can't be used here: {reason} {instead}"""


class UnknownKafkaOption(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """{option} is not a property that librdkafka knows; {hint}."""


class InvalidOption(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """The option {option} is wrong: {problem}"""


class TableRefused(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """A share group can't be a SQL table: CREATE TABLE and INSERT INTO have no checkpoint, and reading takes the
    records. Read it with spark.readStream.format("sharegroup"), and call createOrReplaceTempView on that DataFrame for
    SQL on the stream. Acknowledge with writeStream.format("sharegroup"), or with sharegroup.acknowledge in
    foreachBatch; a writer needs at least the options kafka.bootstrap.servers and kafka.group.id."""
