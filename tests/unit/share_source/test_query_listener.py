"""The line that ShareGroupListener logs for a batch, and what no batch may suffer from it."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace

import pytest

from coordinator.admin.admin import Admin
from coordinator.protocol.errors import CoordinatorUnreachable
from coordinator.protocol.messages import GroupDescription, PartitionDescription
from share_source.views import query_listener
from sharegroup import ShareGroupListener

PLAN = {"orders": {"id": "T", "0": "0-9:1,10-11:3", "1": "5-5:2"}}
OFFSET = {"version": 1, "group": "billing", "member": "m1", "plan_id": "i.2", "plan": PLAN}
BEFORE = {"version": 1, "group": "billing", "member": "m1"}

CONF = {"bootstrap.servers": "localhost:1"}


def partition(index, **fields):
    base = {"topic": "orders", "topic_id": "T", "partition": index, "start_offset": 0, "end_offset": 20}
    return PartitionDescription(**{**base, "lag": 5, "acquired": 4, "archived_total": 0, **fields})


@pytest.fixture
def logged(monkeypatch, caplog):
    """The messages for a progress event with these sources; ``group`` is what the group is, or an error."""

    def log(*sources, group=None):
        def describe_groups(self, group_ids):
            if isinstance(group, Exception):
                raise group
            return {"billing": group}

        monkeypatch.setattr(Admin, "__init__", lambda self, conf, **more: None)
        monkeypatch.setattr(Admin, "describe_groups", describe_groups)
        report = {"name": "etl", "id": "1-2", "batchId": 7, "sources": list(sources)}
        with caplog.at_level(logging.INFO, "share_source"):
            ShareGroupListener(CONF).onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=json.dumps(report))))
        return caplog.messages

    return log


def source(end, start=BEFORE):
    return {"startOffset": start, "endOffset": end}


def test_a_batch_is_one_line_with_its_counts_and_the_groups(logged):
    archived = {"rejected": 2, "none": 9}
    group = GroupDescription(
        group_id="billing", state="STABLE", incarnation="i",
        partitions=(partition(0, archived=archived, archiving=1), partition(1)),
    )  # fmt: skip
    assert logged(source(OFFSET), group=group) == [
        "query progress: group=billing member=m1 query=etl batch=7 acquired=13 redelivered=3 lag=10 in flight=8 "
        "archived=2 dead letters waiting=1"
    ]


def test_a_trigger_without_a_new_plan_acquired_nothing(logged):
    group = GroupDescription(group_id="billing", state="STABLE", incarnation="i", partitions=(partition(0, lag=None),))
    (line,) = logged(source(json.dumps(OFFSET), json.dumps(OFFSET)), group=group)
    assert "acquired=0 redelivered=0 lag=at least 0 in flight=4 " in line


def test_a_coordinator_that_does_not_answer_is_logged(logged):
    error = CoordinatorUnreachable(group_id="billing", reason="it hangs", endpoints="a:1")
    (line,) = logged(source(OFFSET), group=error)
    assert "acquired=13 redelivered=3 (where the group stands is not known: " in line


@pytest.mark.parametrize("end", [None, "", "12", {"orders": {"0": 5}}, '{"version": 9, "group": "g", "member": "m"}'])
def test_a_source_of_another_kind_has_no_line(logged, end):
    assert logged(source(end)) == []


# --- rows that a watermark dropped


def dropping(listener, batch, rows, *sources):
    states = [{"numRowsDroppedByWatermark": each} for each in rows]
    report = {"name": "etl", "id": "1-2", "runId": "r", "batchId": batch, "stateOperators": states}
    text = json.dumps({**report, "sources": list(sources or (source(OFFSET),))})
    listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=text)))


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_rows_dropped_by_a_watermark_are_one_warning_with_their_number(monkeypatch, caplog):
    monkeypatch.setattr(ShareGroupListener, "_where", lambda *_: "")
    listener = ShareGroupListener(CONF)
    dropping(listener, 6, [0, 0])
    dropping(listener, 7, [2, 0, 1])
    (line,) = warnings(caplog)
    assert line.startswith("share group billing, batch 7 of query etl: the watermark dropped 3 row(s). ")
    assert "count as accepted" in line and "docs/learn/event-time.md" in line
    other = {"startOffset": None, "endOffset": {"orders": {"0": 7}}}
    dropping(ShareGroupListener(CONF), 8, [5], other)
    assert len(warnings(caplog)) == 1, "a query without a share group is not ours"


def test_warnings_of_dropped_rows_are_rare_and_lose_no_row(monkeypatch, caplog):
    monkeypatch.setattr(ShareGroupListener, "_where", lambda *_: "")
    now = [100.0]
    monkeypatch.setattr(query_listener.time, "monotonic", lambda: now[0])
    listener = ShareGroupListener(CONF)
    for batch in (1, 2, 2, 3):
        dropping(listener, batch, [1])
    assert len(warnings(caplog)) == 1
    now[0] += query_listener.WARN_EVERY_S
    dropping(listener, 4, [1])
    assert "batch 4 of query etl: the watermark dropped 3 row(s)" in warnings(caplog)[1]
