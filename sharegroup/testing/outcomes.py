"""What became of the records of a group.

Rule: an outcome is what the group's state log says of the record. A log that no longer says it is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from coordinator.admin.admin import Admin
from coordinator.protocol.admin_messages import HistoryEntry
from coordinator.protocol.messages import GroupDescription
from share_sink.redrive.dlq_reader import read_topic
from sharegroup.admin_access import described
from sharegroup.demo.embedded_broker import PARTITIONS_PER_TOPIC
from sharegroup.testing.brokers import RunningBroker, running
from sharegroup.testing.dead_letters import dead_letters
from sharegroup.testing.errors import OutcomesNotKnown

MOST = 2_000
"""outcomes() tells of up to this many records: it reads the history of each."""
GIVEN_UP = "given up"
_OUTCOMES = {
    "accepted": "accepted",
    "rejected": "rejected",
    "given up at the limit of tries": GIVEN_UP,
    "lock lost, and given up at the limit of tries": GIVEN_UP,
    "undecided, and given up at the limit of tries": GIVEN_UP,
    "waited for longer than share.record.ttl.ms": GIVEN_UP,
    "archived by an administrator": "archived by an administrator",
}
"""The last event of a record's history -> its outcome."""


class Outcome(NamedTuple):
    """A record that left the group. ``outcome``: accepted, rejected, or given up at the limit of its tries or its age;
    ``delivery_count``: that of its last delivery; ``reason``: that of its dead letter; empty: it has none, and the
    group keeps no reason."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    outcome: str
    delivery_count: int
    reason: str


def outcomes(group: str, *, address: str | None = None) -> list[Outcome]:
    """The records that left the group so far, by topic, partition and offset. A record that is still there is not in
    the list: one that was released, or waits for its dead letter. ``address``: the broker, if several run.

    Each outcome is the one of the group's state log, which has the whole history of a test's records. After some 500
    commits the coordinator condenses the log, and accepted records are then known by their number alone.

    Raises:
        GroupIdNotFound: nobody has joined the group.
        OutcomesNotKnown: the log no longer has the outcome of a record, or there are more than MOST records.
        NoTestBroker: no broker runs there."""
    broker = running("outcomes", address)
    with broker.admin() as admin:
        description = described(admin, group)
        found = sorted(_outcomes(broker, admin, description))
    dead = dead_letters(group, address=address) if description.configs.get("errors.deadletterqueue.topic.name") else []
    reasons = {(each.origin_topic, each.origin_partition, each.origin_offset): each.message for each in dead}
    return [each if each.reason else each._replace(reason=reasons.get(each[:3], "")) for each in found]


def _outcomes(broker: RunningBroker, admin: Admin, group: GroupDescription) -> Iterator[Outcome]:
    in_flight = {
        (run.topic, run.partition, offset)
        for run in admin.all_in_flight(group.group_id)
        for offset in range(run.first, run.last + 1)
    }
    read = 0
    for topic in sorted({each.topic for each in group.partitions}):
        ends = {each.partition: each.end_offset for each in group.partitions if each.topic == topic}
        for message in read_topic(topic, PARTITIONS_PER_TOPIC, broker.kafka, upto=ends):
            place = topic, int(message.partition() or 0), int(message.offset() or 0)
            if place in in_flight:
                continue
            if (read := read + 1) > MOST:
                reason = f"it tells of {MOST:,} records at most"
                raise OutcomesNotKnown(group_id=group.group_id, records="all records", reason=reason)
            if (last := _last(admin, group.group_id, place)) is not None:
                outcome = _OUTCOMES[last.event]
                yield Outcome(*place, message.key(), message.value(), outcome, last.delivery_count, last.reason)


def _last(admin: Admin, group_id: str, place: tuple[str, int, int]) -> HistoryEntry | None:
    """The event with which the record left the group; None: it lies before the group's beginning."""
    history = admin.history(group_id, *place, limit=1_000)
    for entry in reversed(history.entries):
        if entry.event in _OUTCOMES:
            return entry
    if history.is_whole and not history.entries:
        return None
    records, reason = f"{place[0]}-{place[1]} offset {place[2]}", "the group's state log is condensed"
    if history.entries:
        reason = f"its history ends with: {history.entries[-1].event}"
    raise OutcomesNotKnown(group_id=group_id, records=records, reason=reason)
