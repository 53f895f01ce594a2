"""Named errors of options that source and sink have alike; their form is that of coordinator.protocol.errors.

All are found before the query's first batch.
"""

from __future__ import annotations

from coordinator.protocol.errors import ShareGroupError


class MissingOption(ShareGroupError):
    """The option {option} is missing: {why}"""

    kafka_error = "INVALID_CONFIG"


class UnknownOption(ShareGroupError):
    """{option} is not an option of the sharegroup {side}; the nearest known one is {nearest}."""

    kafka_error = "INVALID_CONFIG"


class RefusedOption(ShareGroupError):
    """The option {option} can't be used here: {reason} {instead}"""

    kafka_error = "INVALID_CONFIG"


class InvalidOption(ShareGroupError):
    """The option {option} is wrong: {problem}"""

    kafka_error = "INVALID_CONFIG"


class UnknownKafkaOption(ShareGroupError):
    """{option} is not a property that librdkafka knows; the nearest known one is {nearest}."""

    kafka_error = "INVALID_CONFIG"


class InvalidKafkaOption(ShareGroupError):
    """The option {option} is wrong: {problem}"""

    kafka_error = "INVALID_CONFIG"
