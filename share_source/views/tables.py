"""The views as Arrow tables. ``conf`` is Admin's; without a group id a view has the rows of all groups. Each function
raises what :class:`~coordinator.admin.admin.Admin` raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from coordinator.admin.admin import Admin
from coordinator.admin.arguments import connection
from coordinator.protocol.admin_messages import RunInFlight
from coordinator.protocol.arrow_types import HEADERS, TIMESTAMP
from coordinator.protocol.errors import GroupIdNotFound
from coordinator.protocol.messages import GroupDescription
from coordinator.protocol.option_errors import MissingOption
from share_sink.redrive.dlq_reader import dead_letters as read_dead_letters

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
ROWS_AT_ONCE = 10_000
"""One Arrow table has up to this many dead letters."""
_ASSIGNED = pa.struct({"topic": pa.string(), "partitions": pa.list_(pa.field("element", pa.int32()))})
_TYPES = {
    "text": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "bool": pa.bool_(),
    "bytes": pa.binary(),
    "time": TIMESTAMP,
    "headers": HEADERS,
    "texts": pa.list_(pa.field("element", pa.string())),
    "assignment": pa.list_(pa.field("element", _ASSIGNED)),
}

_COLUMNS = {
    "groups": "group:text state:text coordinator:text",
    "members": "group:text memberId:text memberEpoch:int active:bool newestPlan:text topics:texts topicPattern:text "
    "clientId:text clientHost:text clientPid:long checkpoint:text assignedTotal:int assignment:assignment",
    "offsets": "group:text topic:text topicId:text partition:int startOffset:long endOffset:long lag:long "
    "acquired:long archiving:long archivedTotal:long",
    "in-flight": "group:text topic:text topicId:text partition:int first:long last:long state:text deliveryCount:int "
    "failures:int releases:int queryFailures:int planId:text memberId:text clientId:text clientHost:text since:time "
    "firstSignal:time lastSignal:time hint:text lockDeadline:time notBefore:time stage:text disposition:text "
    "reason:text",
    "dead-letters": "partition:int offset:long timestamp:time group:text originTopic:text originPartition:int "
    "originOffset:long originTimestamp:time deliveryCount:int disposition:text message:text key:bytes value:bytes",
}
"""The columns of each view, as ``name:type``. Times are in UTC."""
_OF_RECORD = "offset:long timestamp:time timestampType:int key:bytes value:bytes headers:headers"
_COLUMNS["records"] = _COLUMNS["in-flight"].replace("first:long last:long", _OF_RECORD)

SCHEMAS: dict[str, pa.Schema] = {
    view: pa.schema([(name, _TYPES[kind]) for name, _, kind in (each.partition(":") for each in columns.split())])
    for view, columns in _COLUMNS.items()
}

TIMES = {
    "since": "since_ms",
    "firstSignal": "first_signal_ms",
    "lastSignal": "last_signal_ms",
    "lockDeadline": "lock_deadline_ms",
    "notBefore": "not_before_ms",
    "timestamp": "timestamp_ms",
    "originTimestamp": "origin_timestamp_ms",
}
"""The columns with times, and the fields of messages with the same times in milliseconds."""


def groups(conf: Mapping[str, object]) -> pa.Table:
    """Returns the groups in the state store, with their states (KIP-932)."""
    with Admin(conf) as admin:
        listed = admin.list_groups().groups
    return _table("groups", [{"group": g.group_id, "state": g.state, "coordinator": g.coordinator} for g in listed])


def members(conf: Mapping[str, object], group_id: str | None = None) -> pa.Table:
    """Returns the members, including members without a session that the group remembers. Raises GroupIdNotFound."""
    with Admin(conf) as admin:
        one = {} if group_id is None else {group_id: _described(admin, group_id)}
        groups = one or admin.describe_groups(_ids(admin, None))
    rows = [_row(name, m) for name, group in groups.items() for m in group.members]
    for row in rows:
        row["assignment"] = [msgspec.structs.asdict(topic) for topic in row["assignment"]]
    return _table("members", rows)


def offsets(conf: Mapping[str, object], group_id: str | None = None) -> pa.Table:
    """Returns the share partitions with start offset (SPSO), end offset and lag, and the acquired and archived records.
    Raises GroupIdNotFound."""
    with Admin(conf) as admin:
        rows = _rows(admin, group_id, lambda name: admin.list_offsets(name).partitions)
    return _table("offsets", rows)


def in_flight(conf: Mapping[str, object], group_id: str | None = None) -> pa.Table:
    """Returns the runs in flight: ranges of offsets with state, holder and counts. Raises GroupIdNotFound."""
    with Admin(conf) as admin:
        rows = _rows(admin, group_id, admin.all_in_flight)
    return _table("in-flight", rows)


def dead_letters(conf: Mapping[str, object], group_id: str | None = None, *, topic: str | None = None) -> pa.Table:
    """Returns the dead letters of a topic, by default the group's dead letter topic; with a group id only this group's.

    Raises:
        MissingOption: neither a topic nor a group is named, or the group has no dead letter topic.
        GroupIdNotFound: no topic is named, and the group does not exist.
        UnknownTopic: the cluster has no such topic."""
    return pa.concat_tables(dead_letter_tables(conf, dead_letter_topic(conf, group_id, topic), group_id))


def dead_letter_topic(conf: Mapping[str, object], group_id: str | None, topic: str | None = None) -> str:
    """Returns the named topic, else the group's dead letter topic. Raises as ``dead_letters``."""
    if topic is None and group_id is not None:
        with Admin(conf) as admin:
            topic = _described(admin, group_id).configs.get(DEAD_LETTER_TOPIC)
    if not topic:
        why = "name the dead letter topic, or a group that has one"
        raise MissingOption(option=DEAD_LETTER_TOPIC, why=f"{why}.")
    return topic


def dead_letter_tables(conf: Mapping[str, object], topic: str, group_id: str | None) -> Iterator[pa.Table]:
    """Yields the dead letters in tables of up to ROWS_AT_ONCE rows, first one without rows. Raises UnknownTopic."""
    rows: list[dict[str, Any]] = []
    yield _table("dead-letters", rows)
    for found in read_dead_letters(topic, kafka_of(conf)):
        if group_id in (None, found.group_id):
            rows.append({**_columns(found.named()), "key": found.key, "value": found.value})
        if len(rows) >= ROWS_AT_ONCE:
            yield _table("dead-letters", rows)
            rows = []
    yield _table("dead-letters", rows)


def runs_table(group_id: str, runs: Iterable[RunInFlight]) -> pa.Table:
    """Returns the runs with the columns of the view ``in-flight``."""
    return _table("in-flight", [_row(group_id, run) for run in runs])


def kafka_of(conf: Mapping[str, object]) -> dict[str, str]:
    """Returns librdkafka's properties of Admin's ``conf``. Raises MissingOption if ``conf`` names no brokers."""
    kafka, _, servers = connection(conf)
    if not servers:
        raise MissingOption(option="bootstrap.servers", why="records are read from the brokers.")
    return {**kafka, "bootstrap.servers": servers}


def _described(admin: Admin, group_id: str) -> GroupDescription:
    """Returns the description of a group that exists. Raises GroupIdNotFound otherwise."""
    description = admin.describe_groups([group_id])[group_id]
    if description.state == "DEAD":
        raise GroupIdNotFound(group_id=group_id)
    return description


def _ids(admin: Admin, group_id: str | None) -> Iterable[str]:
    return [group_id] if group_id is not None else [group.group_id for group in admin.list_groups().groups]


def _rows(admin: Admin, group_id: str | None, look: Callable[[str], Iterable[msgspec.Struct]]) -> list[dict[str, Any]]:
    """Returns the rows of the named group, or of all groups except those deleted meanwhile."""
    rows: list[dict[str, Any]] = []
    for name in _ids(admin, group_id):
        try:
            rows += [_row(name, value) for value in look(name)]
        except GroupIdNotFound:
            if group_id is not None:
                raise
    return rows


def _row(group_id: str, value: msgspec.Struct) -> dict[str, Any]:
    return {**_columns(msgspec.structs.asdict(value)), "group": group_id}


def _columns(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields by the names of the columns, with times in microseconds."""
    row = {_camel(name): field for name, field in fields.items()}
    times_ms = {column: fields[name] for column, name in TIMES.items() if name in fields}
    return row | {column: None if at is None else at * 1_000 for column, at in times_ms.items()}


def _table(view: str, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMAS[view])


def _camel(name: str) -> str:
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more)
