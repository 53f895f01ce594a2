"""Executors in a network of their own, as in pods: they reach the driver's host by one address, and no loopback of it.

It needs root, and `ip` of iproute2.
"""

import contextlib
import sys
from dataclasses import replace

import pytest

from sharegroup import Admin
from tests.support.far_host import FarBroker, far_host
from tests.support.share_job import numbers
from tests.support.spark_cluster import SparkCluster
from tests.support.standalone import Certificates, StandaloneProcess

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.soak, pytest.mark.timeout(900)]

RECORDS = 2_000
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 10).close()"


@pytest.fixture(scope="module")
def far():
    with far_host() as host:
        yield host


@pytest.fixture(scope="module")
def broker(far):
    with FarBroker(far.here) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(far):
    with SparkCluster(host=far.here, hosts=[far.there], enter=far.enter) as found:
        yield found.wait_ready()


@pytest.fixture
def driver(cluster, far, program):
    """A driver on this host, whose executors are all on the far one."""
    return program(
        master=cluster.master, settings={"spark.driver.host": far.here, "spark.driver.bindAddress": far.here}
    )


def test_far_executors_reach_the_brokers_and_the_coordinator_s_address(broker, far, driver, job, tmp_path):
    certificates = Certificates(tmp_path, far.here)
    configs = {
        "bootstrap.servers": broker.bootstrap,
        "share.coordinator.listener": f"{far.here}:0",
        **certificates.configs,
    }
    with contextlib.closing(StandaloneProcess(tmp_path, configs)) as coordinator:
        found = {
            "share.coordinator.endpoint": coordinator.wait_ready().endpoint,
            "share.coordinator.token.file": str(coordinator.token_file),
            "share.coordinator.ssl.ca.location": str(certificates.ca),
        }
        broker.create_topic("orders", partitions=2)
        broker.produce("orders", numbers(RECORDS))
        queue = job("orders", bootstrap=broker.far_bootstrap, minPartitions=2, **found)
        spec = queue.query("a", hold=("7",), hint="page 1 of 9")
        query = driver.start_query(spec).wait_held("7")
        with Admin({"bootstrap.servers": broker.bootstrap, **found}) as admin:
            query.wait(lambda: admin.plans(queue.group)[0].tasks, "the signal has come")
            (plan,) = admin.plans(queue.group)
        assert {task.hint for task in plan.tasks} == {"page 1 of 9"}
        spec.release()
        query.wait(lambda: queue.written() == RECORDS, "all is written")
        queue.output().assert_exactly_once(numbers(RECORDS))
        query.stop()


def test_far_executors_need_no_route_to_the_driver_s_loopback(broker, far, driver, job):
    host, _, port = broker.bootstrap.partition(":")
    assert "ConnectionRefused" in far.run(sys.executable, "-c", CONNECT, host, port).stderr
    host, _, port = broker.far_bootstrap.partition(":")
    assert far.run(sys.executable, "-c", CONNECT, host, port).returncode == 0

    broker.create_topic("invoices", partitions=2)
    broker.produce("invoices", numbers(RECORDS))
    queue = job("invoices", bootstrap=broker.far_bootstrap, minPartitions=2, maxOffsetsPerTrigger=RECORDS // 2)
    options = queue.sink_options()
    spec = queue.query("a", columns={"acknowledgement": "'accept'"}, sink="acknowledge+replace", sink_options=options)
    query = driver.start_query(replace(spec, trigger="available_now")).wait_over()
    assert query.error() == ""
    queue.output().assert_exactly_once(numbers(RECORDS))
