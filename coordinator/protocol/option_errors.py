"""Named errors of options that source and sink share; their form is that of coordinator.protocol.errors.

All are found before the query's first batch.
"""

from __future__ import annotations

from coordinator.protocol.errors import ShareGroupError


class MissingOption(ShareGroupError):
    """The option {option} is missing: {why}"""

    kafka_error = "INVALID_CONFIG"


class UnknownOption(ShareGroupError):
    """{option} is not an option of the sharegroup {side}; {hint}."""

    kafka_error = "INVALID_CONFIG"


class RefusedOption(ShareGroupError):
    """The option {option} can't be used here: {reason} {instead}"""

    kafka_error = "INVALID_CONFIG"


class InvalidOption(ShareGroupError):
    """The option {option} is wrong: {problem}"""

    kafka_error = "INVALID_CONFIG"


class UnknownKafkaOption(ShareGroupError):
    """{option} is not a property that librdkafka knows; {hint}."""

    kafka_error = "INVALID_CONFIG"


class InvalidKafkaOption(ShareGroupError):
    """The option {option} is wrong: {problem}"""

    kafka_error = "INVALID_CONFIG"


class TableRefused(ShareGroupError):
    """A share group can't be a SQL table: CREATE TABLE and INSERT INTO have no checkpoint, and reading takes the
    records. Read it with spark.readStream.format("sharegroup"), and call createOrReplaceTempView on that DataFrame for
    SQL on the stream. Acknowledge with writeStream.format("sharegroup"), or with sharegroup.acknowledge in
    foreachBatch; a writer needs options, kafka.bootstrap.servers and kafka.group.id at least."""

    kafka_error = "INVALID_REQUEST"
