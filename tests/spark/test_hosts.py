"""Several hosts on one cluster's state topic, each with its own coordinator: a host here is a runtime folder."""

from __future__ import annotations

import contextlib
import socket

import pytest

from sharegroup import Admin
from tests.support.share_job import numbers
from tests.support.spark_program import SparkProgram
from tests.support.standalone import StandaloneProcess, write_secret

pytestmark = pytest.mark.spark

RUNTIME = "SHAREGROUP_RUNTIME_DIR"


@pytest.fixture(scope="module")
def host_two(runtime_dir):
    """A Spark program on another host."""
    folder = runtime_dir.parent / "two"
    folder.mkdir()
    with SparkProgram(**{RUNTIME: str(folder)}) as started:
        yield started


@pytest.fixture
def start_there(host_two):
    """Starts queries in that program; they end with the test."""
    running = []

    def start_one(spec):
        running.append(host_two.start_query(spec))
        return running[-1]

    yield start_one
    for query in running:
        if not query.over():
            query.stop()


@pytest.mark.slow
def test_queries_of_two_hosts_share_a_group_with_nothing_to_deploy(kafka, topic, job, start, start_there):
    orders = topic("orders", partitions=2)
    queue = job(orders, maxOffsetsPerTrigger=100)
    here = start(queue.query("here")).wait_started()
    there = start_there(queue.query("there")).wait_started()
    produced = 0
    while not (here.events("written") and there.events("written")):  # one of them may have taken all so far
        kafka.produce(orders, numbers(400, first=produced))
        produced += 400
        there.wait(lambda: queue.written() == produced, "all is written")  # noqa: B023
    queue.output().assert_exactly_once(numbers(produced))
    assert not here.over()
    assert not there.over()


@pytest.mark.slow
def test_a_task_s_progress_is_seen_beside_its_plan(kafka, topic, job, start, tmp_path):
    """The process that reads the records is not the one that works on them: the latter says how far it is."""
    configs = {"bootstrap.servers": kafka.bootstrap}
    with contextlib.closing(StandaloneProcess(tmp_path, configs)) as coordinator:
        found = {
            "share.coordinator.endpoint": coordinator.wait_ready().endpoint,
            "share.coordinator.token.file": str(coordinator.token_file),
        }
        orders = topic("orders")
        kafka.produce(orders, numbers(10))
        queue = job(orders, **found)
        spec = queue.query("a", hold=("7",), hint="page 1 of 9")
        query = start(spec).wait_held("7")
        with Admin({"bootstrap.servers": kafka.bootstrap, **found}) as admin:
            query.wait(lambda: admin.plans(queue.group)[0].tasks, "the signal has come")
            (plan,), page = admin.plans(queue.group), admin.in_flight(queue.group)
        assert [(task.hint, task.host) for task in plan.tasks] == [("page 1 of 9", socket.gethostname())]
        assert [(run.plan_id, run.hint, run.state) for run in page.runs] == [(plan.plan_id, "page 1 of 9", "ACQUIRED")]
        spec.release()
        query.wait_written()
        queue.output().assert_exactly_once(numbers(10))


def test_a_missing_or_wrong_token_fails_the_querys_start(kafka, topic, job, start, tmp_path):
    configs = {"bootstrap.servers": kafka.bootstrap}
    with contextlib.closing(StandaloneProcess(tmp_path, configs)) as coordinator:
        queue = job(topic("orders"), **{"share.coordinator.endpoint": coordinator.wait_ready().endpoint})
        assert "TokenMissing" in start(queue.query("without")).wait_over().error()
        wrong = {"share.coordinator.token.file": str(write_secret(tmp_path / "wrong", "another-token-altogether"))}
        assert "NotAuthorized" in start(queue.query("wrong", options=wrong)).wait_over().error()
