"""Named errors of sharegroup.testing; their form is that of coordinator.protocol.errors."""

from __future__ import annotations

from coordinator.protocol.errors import ShareGroupError


class NoTestBroker(ShareGroupError):
    """{what}() has no broker to ask: {reason}. Call {what}() within the block `with broker() as address:`, or with the
    fixture sharegroup_broker; while several brokers run, name one of them: {what}(…, address=address)."""


class UnusableRecord(ShareGroupError):
    """{found} can't be put into topic {topic}: {reason}. Give each topic a list of records; a record is str, bytes,
    None, or a sharegroup.testing.Record."""


class UnusableTopicName(ShareGroupError):
    """{found} is no name of a Kafka topic: use a str of letters, digits, dots, underscores and hyphens, 249 at most."""


class RecordsNotKept(ShareGroupError):
    """The broker in memory does not have all records that were produced to topic {topic}: {reason}. It keeps 5 MB of
    each of a topic's four partitions, and records of 1 MB at most: produce fewer or smaller records."""


class NotDone(ShareGroupError):
    """Share group {group_id} is not done after {timeout_s} s: {left}. {records}"""


class OutcomesNotKnown(ShareGroupError):
    """What became of {records} of share group {group_id} can't be told any more: {reason}. Call outcomes() sooner, or
    test with fewer records and fewer commits."""
