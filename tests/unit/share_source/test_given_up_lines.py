"""Records that are given up: the service's answers name them once, and warnings of the coordinator and the driver name
them."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from coordinator.core.commands import StageRuns
from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.protocol.messages import GivenUp, LeftOut, NextPlan
from share_source.driver.left_out_lines import warn_given_up, warn_left_out
from tests.support.fake_cluster import FakeCluster
from tests.support.group_driver import AT_ONCE
from tests.support.running_service import Running
from tests.support.sink_driver import EXPLICIT

CONFIGS = {**AT_ONCE, **EXPLICIT, "share.delivery.count.limit": "2"}


@pytest.fixture
def running(tmp_path: Any) -> Any:
    cluster = FakeCluster()
    cluster.add("orders", end=10)
    running = Running(tmp_path / "state.db", cluster)
    yield running
    running.close()


def twice_undecided(running: Running) -> str:
    """The plan of ten records that no sink decided, in their last delivery; it is not completed yet."""
    running.join(starting_offsets="earliest", configs=CONFIGS)
    start = ""
    for _ in range(2):
        start = running.next(start).plan_id
        running.start(start)
        running.service.handle(StageRuns(group_id="billing", plans={start: running.epochs["m1"]}))
    return start


@pytest.mark.parametrize("wait_ms", [0, 50])
def test_a_request_that_waits_for_records_returns_given_up_records_too(running: Running, wait_ms: int) -> None:
    reply = running.ask(NextPlan, start=twice_undecided(running), wait_ms=wait_ms)
    assert not reply.plan.plan_id
    assert [(each.disposition, each.count) for each in reply.given_up] == [("undecided", 10)]


def test_the_coordinator_logs_given_up_records_once(running: Running, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        running.ask(NextPlan, start=twice_undecided(running))
    lines = [record.getMessage() for record in caplog.records if "given up" in record.getMessage()]
    assert lines == ["records given up: group=billing count=10 undecided (('orders', 0, 0, 9),)"]


def test_a_refused_append_gives_nothing_up_and_the_repeated_request_does(running: Running, caplog: Any) -> None:
    plan = twice_undecided(running)
    running.store.fault = "refuse"
    with caplog.at_level(logging.WARNING), pytest.raises(CoordinatorNotAvailable):
        running.ask(NextPlan, start=plan)
    assert not any("given up" in record.getMessage() for record in caplog.records)
    assert running.partitions()["orders", 0].archived == {}
    assert [each.count for each in running.ask(NextPlan, start=plan).given_up] == [10]
    assert running.partitions()["orders", 0].archived == {"undecided": 10}


# --- the driver's log


def test_the_driver_log_has_one_line_a_reason_with_counts_and_offsets(caplog: Any) -> None:
    ranges = tuple(("orders", 0, first, first) for first in range(0, 40, 2))
    with caplog.at_level(logging.WARNING):
        warn_given_up("billing", [GivenUp(disposition="undecided", count=300, sample=ranges)])
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("share group billing archived 300 record(s)")
    assert "share.acknowledgement.mode=explicit" in line
    assert "orders-0 offsets 0 to 0, orders-0 offsets 2 to 2" in line
    assert "and 280 more record(s)" in line
    assert "errors.deadletterqueue.topic.name" in line


def test_a_replay_that_lost_many_ranges_makes_one_line_a_reason(caplog: Any) -> None:
    where: dict[str, Any] = {"topic": "orders", "topic_id": "T", "partition": 0}
    lost = [LeftOut(**where, first=n, last=n, count=1, reason="lost") for n in range(0, 10_000, 2)]
    cut = [LeftOut(**where, first=20_000, last=20_009, count=10, reason="cut")]
    with caplog.at_level(logging.WARNING):
        warn_left_out("billing", "i.2", [*lost, *cut])
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(": ")[1] for line in lines] == [
        "5000 record(s) are not in the replayed batch (lost)",
        "10 record(s) are not in the replayed batch (cut)",
    ]
    assert "and 4980 more record(s)" in lines[0]
