"""The dead letters that a test's program left."""

from __future__ import annotations

from share_sink.redrive.dlq_reader import DeadLetter
from share_sink.redrive.dlq_reader import dead_letters as read_dead_letters
from share_source.views.tables import dead_letter_topic
from sharegroup.testing.brokers import running


def dead_letters(group: str | None = None, *, topic: str | None = None, address: str | None = None) -> list[DeadLetter]:
    """The dead letters of the group in its dead letter topic, or those of a topic, by their origin. Each has ``key``,
    ``value``, ``headers`` and ``record_headers``, ``message`` (the reason), ``disposition``, ``delivery_count``,
    ``origin_topic``, ``origin_partition`` and ``origin_offset``. One that was written twice is there twice.
    ``address``: the broker, if several run.

    Raises:
        MissingOption: neither is named, or the group has no dead letter topic.
        GroupIdNotFound: nobody has joined the group.
        UnknownTopic: the broker has no such topic.
        NoTestBroker: no broker runs there.
    """
    kafka = running("dead_letters", address).kafka
    found = read_dead_letters(dead_letter_topic(kafka, group, topic), kafka)
    wanted = [each for each in found if group in (None, each.group_id)]
    return sorted(wanted, key=lambda each: (each.origin_topic, each.origin_partition, each.origin_offset))
