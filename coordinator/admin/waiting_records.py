"""Plans which offsets to read in order to see the records of a group that are not done: those that wait, are held,
quarantined or delayed, or are given up without their dead letter yet.

The view ``records`` reads with Spark, and ``sharegroup browse`` and the page without it. So the plan lies beside Admin,
which it asks, and imports neither Spark nor Arrow. Rule: the plan reads the group and asks the brokers for the ends of
the logs; nothing is acquired, and nothing is written. It shows the group as it was when Admin described it: a record
that a member acquires later is still shown as AVAILABLE, and a record that is done by now may be shown."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from coordinator.admin.admin import Admin
from coordinator.config.resolved import GroupConfig
from coordinator.protocol.admin_messages import Cursor, RunInFlight, Window
from coordinator.protocol.errors import GroupIdNotFound, InvalidRequest, UnknownSharePartition
from coordinator.protocol.messages import PartitionDescription
from coordinator.protocol.values import TopicAndPartition
from coordinator.protocol.wire import derived_topic_id

logger = logging.getLogger(__name__)

STATES = ("AVAILABLE", "ACQUIRED", "IN_PROGRESS", "ARCHIVING")
"""The states of a record that is not done (coordinator.core.record_state.RecordState)."""
OFFSETS_AT_ONCE, LEAST_AT_ONCE = 50_000, 1_000
"""A piece has up to OFFSETS_AT_ONCE offsets. A piece of a bounded number of records has no more than that number, but
LEAST_AT_ONCE at least: a page of runs costs a request."""
BROKER_TIMEOUT_MS = 15_000
"""The brokers are asked for the ends of the logs for up to this many milliseconds: a person waits."""
_END = 2**63 - 1

Piece: TypeAlias = tuple[RunInFlight, ...]
"""Runs of one partition, ascending and disjoint."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Which records to show. ``partitions``: by topic; no partition: all of the topic, no topic: all of the group.
    ``starts`` and ``ends``: offsets by partition, the ends exclusive. ``states``: names of STATES in any case; empty:
    all. ``max_records`` None: no limit.

    Raises:
        InvalidRequest: such a record is in no such state, or there is no such number of records."""

    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    starts: Mapping[TopicAndPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicAndPartition, int] = field(default_factory=dict)
    states: tuple[str, ...] = ()
    max_records: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", tuple(state.strip().upper() for state in self.states))
        if unknown := [state for state in self.states if state not in STATES]:
            what = f"{unknown[0] or 'an empty text'} is no state of a record that is not done: {', '.join(STATES)}."
            raise InvalidRequest(what=what)
        if self.max_records is not None and self.max_records < 1:
            raise InvalidRequest(what=f"{self.max_records} records can't be shown: ask for 1 at least.")

    def has(self, topic: str, partition: int) -> bool:
        named = self.partitions.get(topic)
        return not self.partitions or (named is not None and (not named or partition in named))


class Plan(NamedTuple):
    """How to read the records: with this isolation level, one piece after the other. ``read_from`` as in
    GroupDescription. ``pieces`` asks Admin as it goes on, and so must end before Admin is closed."""

    group_id: str
    isolation_level: str
    pieces: Iterable[Piece]
    read_from: str = ""


def plan(admin: Admin, kafka_config: Mapping[str, str], group_id: str, bounds: Bounds) -> Plan:
    """Plan to read the group's records within the bounds. ``kafka_config``: librdkafka's, with bootstrap.servers. The
    caller's own principal asks for the ends of the logs. A topic that was deleted or created again since the group last
    saw it has no pieces: its records are gone, which is logged.

    Raises:
        GroupIdNotFound: the group does not exist.
        UnknownSharePartition: the group has nothing of a topic or a partition of ``bounds``.
        ShareGroupError: the brokers, or the coordinator, do not answer, or refuse the caller."""
    from coordinator.service.brokers.cluster import LATEST, KafkaCluster  # no task needs it

    description = admin.describe_groups([group_id])[group_id]
    if description.state == "DEAD":
        raise GroupIdNotFound(group_id=group_id)
    places = {(each.topic, each.partition): each for each in description.partitions}
    _check(group_id, bounds, places)
    wanted = {place: each for place, each in sorted(places.items()) if bounds.has(*place)}
    level = GroupConfig.parse(description.configs).share_isolation_level
    cluster = KafkaCluster(kafka_config["bootstrap.servers"], kafka_config, BROKER_TIMEOUT_MS)
    topics = cluster.topics(topic for topic, _ in wanted)
    ends = cluster.offsets(wanted, LATEST, read_committed=level == "read_committed")

    most = min(max(bounds.max_records or OFFSETS_AT_ONCE, LEAST_AT_ONCE), OFFSETS_AT_ONCE)

    def pieces() -> Iterator[Piece]:
        for place, each in wanted.items():
            now = topics.get(each.topic)
            if now is None or each.topic_id not in (now.topic_id or each.topic_id, derived_topic_id(each.topic)):
                logger.warning(_GONE, *place, group_id)
                continue
            yield from _cut(_runs(admin, group_id, each, bounds, ends.get(place, 0)), most)

    return Plan(group_id, level, pieces(), description.read_from)


_GONE = (
    "%s-%d shows no records: the topic was deleted, or deleted and created again, after share group %s had last seen "
    "it, and the records are gone. The group reads the new topic once a member subscribes to it"
)


def _check(group_id: str, bounds: Bounds, places: Mapping[TopicAndPartition, PartitionDescription]) -> None:
    """Check that the group has what the bounds name. Raises UnknownSharePartition otherwise."""
    topics = {topic for topic, _ in places}
    named = [(topic, number) for topic, numbers in bounds.partitions.items() for number in numbers]
    missing = [f"topic {topic}" for topic in bounds.partitions if topic not in topics]
    missing += [
        f"{topic}-{number}" for topic, number in (*named, *bounds.starts, *bounds.ends) if (topic, number) not in places
    ]
    if missing:
        raise UnknownSharePartition(group_id=group_id, partition=missing[0])


def _runs(
    admin: Admin, group_id: str, place: PartitionDescription, bounds: Bounds, log_end: int
) -> Iterator[RunInFlight]:
    """Yield the partition's runs within the bounds. What was never acquired is one run, up to the end of the log."""
    states, where = bounds.states or STATES, (place.topic, place.partition)
    at, end = bounds.starts.get(where, 0), bounds.ends.get(where, _END)
    cursor: Cursor | None = (place.topic_id, place.partition, at)
    last = min(end, place.end_offset) - 1
    while cursor is not None and cursor[2] <= last and place.runs_total:
        window = Window(topic_id=place.topic_id, partition=place.partition, first=cursor[2], last=last)
        (page,) = admin.windows_in_flight(group_id, [window])
        for run in page.runs:
            if run.state in states:
                yield replace(run, first=max(run.first, at), last=min(run.last, last))
        cursor = page.cursor
    first, last = max(at, place.end_offset), min(end, log_end) - 1
    if first <= last and "AVAILABLE" in states:
        yield RunInFlight(place.topic, place.topic_id, place.partition, first, last, "AVAILABLE")


def _cut(runs: Iterator[RunInFlight], most: int) -> Iterator[Piece]:
    """Cut the runs of a partition into pieces of up to ``most`` offsets."""
    piece: list[RunInFlight] = []
    room = most
    for run in runs:
        first = run.first
        while first <= run.last:
            last = min(run.last, first + room - 1)
            piece.append(replace(run, first=first, last=last))
            first, room = last + 1, room - (last - first + 1)
            if not room:
                yield tuple(piece)
                piece, room = [], most
    if piece:
        yield tuple(piece)
