"""sharegroup.progress(): which plan a task's signal is for, how often it is sent, and that no task fails for it."""

from __future__ import annotations

import logging
import os
import threading
import time

import pytest

from coordinator.client.connection import Unreachable
from coordinator.client.on_demand import OnDemand
from coordinator.protocol.errors import CoordinatorNotAvailable, CoordinatorUnreachable, UnsafeDirectory
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.values import MOST_HINT_BYTES
from share_sink import task_progress
from share_source.driver import plan_reader
from share_spark.task_plans import KEPT_S, TaskPlan, endpoint_configs, note, noted, offer_start, want_start
from sharegroup import progress
from tests.support.waiting import wait_until

CONFIGS = {"share.coordinator.endpoint": "coordinators:9999", "share.coordinator.token.file": "/secrets/token"}
PLAN = TaskPlan(group_id="billing", member_id="m1", member_epoch=3, plan_id="i.7", configs=CONFIGS)


class Task:
    """Stands for Spark's TaskContext of a query's task."""

    def __init__(self, query="q1", batch="4", task=11):
        self._properties = {"sql.streaming.queryId": query, "streaming.sql.batchId": batch}
        self._task = task

    def getLocalProperty(self, name):  # noqa: N802 - Spark's name
        return self._properties.get(name)

    def taskAttemptId(self):  # noqa: N802
        return self._task


class Coordinator:
    """Stands for the client of a standalone coordinator."""

    def __init__(self):
        self.asked, self.error = [], None
        self.may_answer = threading.Event()
        self.may_answer.set()

    def ask(self, request, group_id, *, once, answer_timeout_s):
        assert once, "a signal is not sent again"
        self.asked.append(request)
        self.may_answer.wait(30)
        if self.error is not None:
            raise self.error

    def said(self):
        return [(request.task, request.hint) for request in self.asked]


@pytest.fixture(autouse=True)
def own_runtime_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("SHAREGROUP_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(task_progress, "_senders", [])
    monkeypatch.setattr(task_progress, "_once", LogOnce(task_progress._log))
    return tmp_path


@pytest.fixture
def coordinator(monkeypatch):
    coordinator = Coordinator()
    monkeypatch.setattr(task_progress, "client_of", lambda plan: coordinator)
    return coordinator


@pytest.fixture
def works(monkeypatch):
    """`works(Task())`: this process works on that task from now on."""

    def work(task):
        for module in (task_progress, plan_reader):
            monkeypatch.setattr(module.TaskContext, "get", staticmethod(lambda: task))

    return work


# --- which plan


def test_a_task_finds_the_plan_that_another_process_has_read(coordinator, works):
    works(Task())
    plan_reader._leave_note(PLAN, {})
    progress("page 1")
    wait_until(lambda: coordinator.asked)
    (request,) = coordinator.asked
    assert (request.group_id, request.member_id, request.member_epoch) == ("billing", "m1", 3)
    assert (request.plan_id, request.task, request.hint) == ("i.7", 11, "page 1")


def test_a_note_belongs_to_one_batch_and_one_source():
    other = TaskPlan(group_id="mails", member_id="m2", member_epoch=1, plan_id="k.2", configs=CONFIGS)
    note("q1", "4", PLAN)
    note("q1", "4", other)
    assert sorted(noted("q1", "4"), key=lambda plan: plan.group_id) == [PLAN, other]
    assert (noted("q1", "5"), noted("q2", "4")) == ([], [])
    note("q1", "5", PLAN)
    assert (noted("q1", "5"), noted("q1", "4")) == ([PLAN], [other])


def test_a_note_holds_no_secret_and_only_its_user_reads_it(own_runtime_dir):
    given = {**CONFIGS, "share.broker.outage.timeout.ms": "60000"}
    assert endpoint_configs(given) == CONFIGS
    note("q1", "4", PLAN)
    (path,) = (own_runtime_dir / "tasks").iterdir()
    assert (path.stat().st_mode & 0o777, (own_runtime_dir / "tasks").stat().st_mode & 0o777) == (0o600, 0o700)


def test_notes_of_queries_that_ended_are_deleted(own_runtime_dir):
    note("ended", "4", PLAN)
    (old,) = (own_runtime_dir / "tasks").iterdir()
    long_ago_s = time.time() - KEPT_S - 60
    os.utime(old, (long_ago_s, long_ago_s))
    note("q1", "0", PLAN)
    assert (noted("ended", "4"), noted("q1", "0")) == ([], [PLAN])


# --- a coordinator on demand

ON_DEMAND = TaskPlan(
    group_id="billing",
    member_id="m1",
    member_epoch=3,
    plan_id="i.7",
    configs={},
    cluster_id="a-cluster",
    state_store="kafka",
)


def test_a_coordinator_is_started_each_time_that_a_task_wants_it():
    started = threading.Semaphore(0)
    assert not want_start("k"), "nobody has offered it"
    offer_start("k", started.release)
    for _ in range(2):
        # A task that asks while a start is ending has its coordinator: none is started for it.
        wait_until(lambda: want_start("k") and started.acquire(timeout=1), what="a coordinator is started")


def test_a_signal_waits_for_the_coordinator_that_it_wants(coordinator, works, monkeypatch, caplog):
    monkeypatch.setattr(task_progress, "EVERY_S", 0.01)
    coordinator.error = CoordinatorNotAvailable(group_id="billing", reason="it does not run on this host")

    def start(on_demand):
        assert on_demand.kafka_config == {"bootstrap.servers": "brokers:9092", "sasl.password": "a secret"}
        coordinator.error = None

    monkeypatch.setattr(plan_reader, "_start", start)
    works(Task())
    plan_reader._leave_note(ON_DEMAND, {"bootstrap.servers": "brokers:9092", "sasl.password": "a secret"})
    progress("page 1")
    wait_until(lambda: coordinator.error is None and len(coordinator.asked) > 1)
    assert coordinator.said()[-1] == (11, "page 1")
    assert caplog.messages == []


def test_no_note_of_a_coordinator_on_demand_holds_a_secret(own_runtime_dir, works):
    works(Task())
    plan_reader._leave_note(ON_DEMAND, {"bootstrap.servers": "brokers:9092", "sasl.password": "a secret"})
    notes = [path.read_text() for path in (own_runtime_dir / "tasks").iterdir() if path.is_file()]
    assert len(notes) == 1 and "a secret" not in notes[0]


def test_the_coordinator_of_this_host_is_found_and_not_started():
    here = task_progress.here("a-cluster", "kafka")
    with pytest.raises(Unreachable, match="does not run on this host"):
        here.connect()
    assert (
        here.key == OnDemand(bootstrap_servers="b:1", kafka_config={}, cluster_id="a-cluster", state_store="kafka").key
    )


# --- how often


def test_the_newest_hint_is_sent_and_those_between_are_dropped(coordinator, works, monkeypatch):
    monkeypatch.setattr(task_progress, "EVERY_S", 0.0)
    note("q1", "4", PLAN)
    works(Task())
    coordinator.may_answer.clear()
    progress("page 1")
    wait_until(lambda: coordinator.asked)
    for page in range(2, 1_000):
        progress(f"page {page}")
    progress()
    coordinator.may_answer.set()
    wait_until(lambda: len(coordinator.asked) == 2)
    assert coordinator.said() == [(11, "page 1"), (11, "page 999")]


def test_a_task_sends_at_most_one_signal_in_its_interval(coordinator, works, monkeypatch):
    monkeypatch.setattr(task_progress, "EVERY_S", 3_600.0)
    note("q1", "4", PLAN)
    works(Task())
    progress("page 1")
    wait_until(lambda: coordinator.asked)
    for page in range(2, 100):
        progress(f"page {page}")
    works(Task(task=12))  # the next task of this process need not wait for the task before
    progress("page 1 of the next")
    wait_until(lambda: len(coordinator.asked) == 2)
    assert coordinator.said() == [(11, "page 1"), (12, "page 1 of the next")]


def test_a_long_hint_is_cut_at_a_whole_character(coordinator, works):
    note("q1", "4", PLAN)
    works(Task())
    progress("x" + "é" * MOST_HINT_BYTES)
    wait_until(lambda: coordinator.asked)
    assert coordinator.said() == [(11, "x" + "é" * ((MOST_HINT_BYTES - 1) // 2))]


# --- what never fails a task


def test_progress_without_a_known_plan_is_logged_once(coordinator, works, monkeypatch, caplog):
    monkeypatch.setattr(task_progress, "EVERY_S", 0.0)
    works(Task())
    sender = task_progress._sender()
    for page in range(3):
        progress(f"page {page}")
        wait_until(lambda: sender._newest is None)
    wait_until(lambda: caplog.messages)
    (said,) = caplog.messages
    assert "sharegroup.progress() has no effect" in said and "after a shuffle" in said
    assert coordinator.asked == []


def test_progress_outside_of_a_query_is_logged_once(works, caplog):
    for task in (None, Task(query=None), Task(batch=None)):
        works(task)
        progress("page 1")
    assert caplog.messages == ["sharegroup.progress() has no effect: it is called in no task of a streaming query"]


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        (PLAN, CoordinatorUnreachable(endpoints="coordinators:9999", reason="nobody is there")),
        (ON_DEMAND, CoordinatorNotAvailable(group_id="billing", reason="it does not run on this host")),
    ],
    ids=["standalone", "none can be started on this host"],
)
def test_a_coordinator_that_does_not_answer_fails_no_task(coordinator, works, monkeypatch, caplog, plan, error):
    monkeypatch.setattr(task_progress, "EVERY_S", 0.0)
    coordinator.error = error
    note("q1", "4", plan)
    works(Task())
    for count in range(1, 4):
        progress(f"page {count}")
        wait_until(lambda: len(coordinator.asked) == count)  # noqa: B023
    wait_until(lambda: caplog.messages)
    assert len(caplog.messages) == 1 and type(error).__name__ in caplog.messages[0]
    coordinator.error = None
    progress("page 4")
    wait_until(lambda: len(coordinator.asked) == 4)


def test_a_directory_that_is_not_safe_fails_no_task(works, monkeypatch, caplog, tmp_path):
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("SHAREGROUP_RUNTIME_DIR", str(open_to_all))
    monkeypatch.setattr(plan_reader, "_once", LogOnce(plan_reader.logger))
    works(Task())
    with pytest.raises(UnsafeDirectory):
        note("q1", "4", PLAN)
    with caplog.at_level(logging.WARNING):
        plan_reader._leave_note(PLAN, {})
        plan_reader._leave_note(PLAN, {})
    assert len(caplog.messages) == 1 and "has no effect on this host" in caplog.messages[0]
