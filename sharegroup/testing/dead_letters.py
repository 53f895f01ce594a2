"""The dead letters that a test's program left."""

from __future__ import annotations

from share_sink.redrive.dlq_reader import DeadLetter
from share_sink.redrive.dlq_reader import dead_letters as read_dead_letters
from share_source.views.tables import dead_letter_topic
from sharegroup.admin_access import described
from sharegroup.testing.brokers import running


def dead_letters(group: str | None = None, *, topic: str | None = None, address: str | None = None) -> list[DeadLetter]:
    """The dead letters of the group in its dead letter topic, or those of a topic, by their origin. Each has ``key``,
    ``value``, ``headers`` and ``record_headers``, ``message`` (the reason), ``disposition``, ``delivery_count``,
    ``origin_topic``, ``origin_partition`` and ``origin_offset``. One that was written twice is there twice.
    ``address``: the broker, if several run.

    Raises:
        TypeError: neither is named.
        MissingOption: the group has no dead letter topic.
        GroupIdNotFound: nobody has joined the group.
        ValueError: the topic has records, and none of them is a dead letter.
        UnknownTopic: the broker has no such topic.
        NoTestBroker: no broker runs there."""
    if group is None and topic is None:
        raise TypeError("dead_letters() needs a group, as dead_letters('billing'), or a topic, as topic='dlq'")
    broker, kinds = running("dead_letters", address), list[bool]()
    if group is not None and topic is not None:
        with broker.admin() as admin:
            described(admin, group)
    name = dead_letter_topic(broker.kafka, group, topic)
    found = list(read_dead_letters(name, broker.kafka, watch=kinds.append))
    if kinds and not found:
        raise ValueError(f"topic {name} has {len(kinds)} records, but no dead letter: name the dead letter topic")
    wanted = [each for each in found if group in (None, each.group_id)]
    return sorted(wanted, key=lambda each: (each.origin_topic, each.origin_partition, each.origin_offset))
