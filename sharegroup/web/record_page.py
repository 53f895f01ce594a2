"""The page of one record: its state, counts and holder; on request its history, and its key, value and headers. And the
list of the records of a partition that are not done, by which one finds such a record."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from coordinator.admin.waiting_records import Bounds
from coordinator.protocol.admin_messages import RunInFlight, Window
from coordinator.protocol.messages import PartitionDescription
from sharegroup.in_flight import RECORD_STATES, begins
from sharegroup.web import forms
from sharegroup.web.group_pages import partition_of
from sharegroup.web.records import checked_form, content
from sharegroup.web.site import Handler, Visit

MOST_LISTED, MOST_SEARCHED = 100, 10_000
"""A list has up to MOST_LISTED records, of up to MOST_SEARCHED offsets: a log may have few records."""
MOST_ENTRIES = 100
"""A page shows up to this many entries of a history, the newest ones."""
_WORDS = {
    "AVAILABLE": "available: it is delivered again",
    "ACQUIRED": "held by a member",
    "IN_PROGRESS": "held by a member, which tells that its work goes on",
    "ACKNOWLEDGED": "done",
    "ARCHIVING": "given up; its dead letter is not written yet",
    "ARCHIVED": "given up",
}
_LISTED_WORDS = {
    "AVAILABLE": "waits",
    "ACQUIRED": "held",
    "IN_PROGRESS": "held, in progress",
    "ARCHIVING": "given up, no dead letter yet",
}


def show_list(visit: Visit) -> Response:
    """The records of a partition that are not done: the first of them at ``offset`` or above it. Raises
    TopicNotAllowed if the person's token may not read the topic."""
    partition = partition_of(visit)
    visit.caller.topics.check_source(partition.topic)
    start, first = partition.start_offset, visit.number("offset", 0)
    place = (partition.topic, partition.partition)
    at = _first_not_done(visit, partition, first)
    bounds = Bounds(
        partitions={place[0]: place[1:]}, starts={place: at}, ends={place: at + MOST_SEARCHED}, max_records=MOST_LISTED
    )
    found = visit.site.kafka.waiting(visit.admin, visit.group_id, bounds)
    later = found.rows[-1]["offset"] + 1 if found.more else at + MOST_SEARCHED
    return visit.page(
        "records.html",
        group_id=visit.group_id,
        partition=partition,
        rows=found.rows,
        words=_LISTED_WORDS,
        first=at,
        earlier=max(first - MOST_LISTED, 0) if first > min(start, at) else None,
        later=later if found.more or later < partition.end_offset + (partition.lag or 0) else None,
    )


def _first_not_done(visit: Visit, partition: PartitionDescription, first: int) -> int:
    """Returns the offset of the first record at ``first`` or above it that is not done, as far as one request says."""
    window = Window(topic_id=partition.topic_id, partition=partition.partition, first=first, last=2**63 - 1, limit=1)
    (page,) = visit.admin.windows_in_flight(visit.group_id, [window])
    if page.runs:
        return max(first, page.runs[0].first)
    return max(first, partition.end_offset) if page.cursor is None else page.cursor[2]


def show_record(visit: Visit) -> Response:
    """The page of a record."""
    partition, offset = partition_of(visit), visit.number("offset")
    run, now_ms = _run_at(visit, partition, offset)
    may_have_dead_letter = offset < partition.end_offset and (run is None or run.state in ("ARCHIVING", "ARCHIVED"))
    is_held = run is not None and run.state in ("ACQUIRED", "IN_PROGRESS")
    shown = {"run": run, "now_ms": now_ms, "state": _state(partition, offset, run), "acts": forms.ACTS}
    more = {"may_have_dead_letter": may_have_dead_letter, "is_held": is_held}
    return _page(visit, "record.html", partition, offset, **shown, **more)


def show_history(visit: Visit) -> Response:
    """The history of the record, from the state log. This page is not refreshed: each time it would read the log."""
    partition, offset = partition_of(visit), visit.number("offset")
    found = visit.admin.history(visit.group_id, partition.topic, partition.partition, offset, limit=MOST_ENTRIES)
    return _page(visit, "history.html", partition, offset, history=found, begins=begins(found))


def show_content(visit: Visit) -> Response:
    """The record's key, value and headers, in the form that the address names.

    Raises:
        BadRequest: there is no such form.
        TopicNotAllowed: the person's token may not read the topic."""
    partition, offset, form = partition_of(visit), visit.number("offset"), checked_form(visit.text("form"))
    visit.caller.topics.check_source(partition.topic)
    record = visit.site.kafka.record(partition.topic, partition.partition, offset)
    return _page(visit, "content.html", partition, offset, record=record, **content(record, form))


def _page(visit: Visit, template: str, partition: PartitionDescription, offset: int, **values: Any) -> Response:
    return visit.page(template, group_id=visit.group_id, partition=partition, offset=offset, **values)


def _run_at(visit: Visit, partition: PartitionDescription, offset: int) -> tuple[RunInFlight | None, int]:
    """Returns the run with the record, and the coordinator's time; None if the record is outside of the window."""
    cursor = (partition.topic_id, partition.partition, offset)
    page = visit.admin.in_flight(visit.group_id, only_state=RECORD_STATES, cursor=cursor, limit=1)
    for run in page.runs:
        if (run.topic_id, run.partition) == cursor[:2] and run.first <= offset <= run.last:
            return run, page.now_ms
    return None, page.now_ms


def _state(partition: PartitionDescription, offset: int, run: RunInFlight | None) -> str:
    if run is not None:
        is_gap = run.state == "ARCHIVED" and run.disposition in ("", "none")
        return "without a record: the log does not hold one there" if is_gap else _WORDS[run.state]
    if offset < partition.start_offset:
        return "done: it lies before the start offset, and the group keeps nothing more of it"
    if offset >= partition.end_offset:
        return "not delivered yet"
    return "done"


LOOKS: dict[str, Handler] = {
    "/records": show_list,
    "/record": show_record,
    "/history": show_history,
    "/content": show_content,
}
"""The handlers by their addresses."""
