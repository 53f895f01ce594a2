"""Waits until a group is done with its topics.

Rule: a group is done when its lag is 0: no record is left to deliver, is held, waits for another delivery, or waits for
its dead letter. The lag is counted anew at each look, to the ends that the logs have then."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import islice

from coordinator.admin.admin import Admin
from coordinator.protocol.admin_messages import RunInFlight
from coordinator.protocol.messages import GroupDescription
from coordinator.protocol.topic_names import matches
from sharegroup.testing.brokers import RunningBroker, running
from sharegroup.testing.errors import NotDone

SOON = {
    "share.release.backoff.ms": "100",
    "share.release.backoff.max.ms": "100",
    "share.release.breaker.ratio": "1.0",
    "share.poison.solo.timeout.ms": "0",
}
"""Options of a query, its sink, or a ShareConsumer with which a failing record uses up its tries within seconds: a
released record waits a tenth of a second, and no outage is assumed. Locks and sessions keep their length: a slow
machine would lose shorter ones."""

_LOOK_EVERY_S = 0.1
_NAMED = 3
"""An error names up to this many runs of records."""


def wait_until_done(group: str, *, timeout_s: float = 120.0, address: str | None = None) -> None:
    """Return when the group is done with all records of its topics: none is left to deliver, is held, or waits for
    another delivery or for its dead letter. What was produced before the call counts, and a group that nobody has
    joined yet is waited for. A query is done with a batch once Spark has committed it. ``address``: the broker, if
    several run.

    Raises:
        TypeError: ``group`` is no text, or ``timeout_s`` no number.
        ValueError: ``timeout_s`` is negative or nan.
        NotDone: records are left after ``timeout_s``; it names them, their state, and what happened to them last.
        NoTestBroker: no broker runs there."""
    if not isinstance(group, str):
        raise TypeError(f"group is a group's id, and {group!r} is of type {type(group).__name__}")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise TypeError(f"timeout_s is a number of seconds, and {timeout_s!r} is of type {type(timeout_s).__name__}")
    if not timeout_s >= 0:
        raise ValueError(f"timeout_s is a number of seconds from 0 on, not {timeout_s}")
    broker, pause = running("wait_until_done", address), threading.Event()
    until_s = time.monotonic() + timeout_s
    with broker.admin() as admin:
        while left := _left(broker, description := admin.describe_groups([group])[group]):
            if time.monotonic() > until_s:
                records = "; ".join(_named(broker, admin, description)) if description.partitions else ""
                raise NotDone(group_id=group, timeout_s=f"{timeout_s:g}", left=left, records=records)
            pause.wait(_LOOK_EVERY_S)


def _left(broker: RunningBroker, group: GroupDescription) -> str:
    """Returns what is left, in words; empty: the group is done."""
    if group.state == "DEAD":
        return "no query or ShareConsumer has joined it"
    known = {each.topic for each in group.partitions}
    if waiting := sorted((_subscribed(broker, group) - known) or (set() if known else {"its topics"})):
        return f"it has not begun with {', '.join(waiting)}"
    lag = group.lag
    if lag == 0:
        return ""
    members = sum(member.active for member in group.members)
    return f"{'an unknown number of' if lag is None else lag} records are left; members with a session: {members}"


def _subscribed(broker: RunningBroker, group: GroupDescription) -> set[str]:
    """The existing topics that the group's members read."""
    members = [member for member in group.members if member.active]
    return {
        topic
        for topic in (broker.embedded.topic_names() if members else ())
        for member in members
        if topic in member.topics or (member.topic_pattern and matches(member.topic_pattern, topic))
    }


def _named(broker: RunningBroker, admin: Admin, group: GroupDescription) -> Iterator[str]:
    """Records that are left, in words: those in flight first."""
    for run in islice(admin.all_in_flight(group.group_id), _NAMED):
        offsets = f"offset {run.first}" if run.first == run.last else f"offsets {run.first} to {run.last}"
        history = admin.history(group.group_id, run.topic, run.partition, run.first).entries
        last = f", last event: {history[-1].event}" if history else ""
        yield f"{run.topic}-{run.partition} {offsets}: {_state(run)}{last}"
    for topic in sorted({each.topic for each in group.partitions}):
        bounds = broker.embedded.bounds(topic)
        for each in group.partitions:
            if each.topic == topic and each.end_offset < (end := bounds[each.partition][1]):
                yield f"{topic}-{each.partition} offsets {each.end_offset} to {end - 1}: never delivered"


def _state(run: RunInFlight) -> str:
    counts = {"delivery": run.delivery_count, "failures": run.failures, "releases": run.releases}
    tries = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    since = f" since {_clock(run.since_ms)}" if run.since_ms is not None else ""
    holder = f" by {run.client_id or run.member_id}" if run.state in ("ACQUIRED", "IN_PROGRESS") else ""
    until = f", not before {_clock(run.not_before_ms)}" if run.not_before_ms is not None else ""
    more = "".join(
        f", {each}" for each in (run.stage if run.stage != "normal" else "", run.disposition, run.reason) if each
    )
    waits = ", its dead letter is not written" if run.state == "ARCHIVING" else ""
    return f"{run.state}{holder}{since}{until}{more}{waits} ({tries})"


def _clock(time_ms: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time_ms / 1000))
