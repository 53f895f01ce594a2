"""Hosts with one route, to the brokers, share a group with nothing to deploy. They need root, and `ip` of iproute2.

A host here is a network namespace with a runtime folder of its own.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from dataclasses import replace
from itertools import permutations

import pytest

from tests.support.far_host import FarBroker, far_host
from tests.support.share_job import numbers

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.soak, pytest.mark.timeout(1_800)]

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()"
AT_ONCE = 200


@pytest.fixture(scope="module")
def hosts():
    with contextlib.ExitStack() as made:
        yield [made.enter_context(far_host(number)) for number in range(3)]


@pytest.fixture(scope="module")
def broker(hosts):
    with FarBroker(*(host.here for host in hosts)) as found:
        yield found


class Hosts:
    """The hosts with a program each, and the records that were produced."""

    def __init__(self, hosts, broker, program, folder, job):
        self.hosts, self.broker, self.program = hosts, broker, program
        self.folders = [folder / f"host-{number}" for number in range(len(hosts))]
        for each in self.folders:
            each.mkdir()
        self.broker.create_topic("orders", partitions=3)
        queue = job("orders", maxOffsetsPerTrigger=40)
        self.queues = [replace(queue, bootstrap=broker.far_bootstraps[number]) for number in range(len(hosts))]
        self.queries = [None] * len(hosts)
        self.produced = 0

    def start(self, number):
        """Start the query of the host, in a program of its own."""
        host, queue = self.hosts[number], self.queues[number]
        there = self.program(enter=host.enter, SHAREGROUP_RUNTIME_DIR=str(self.folders[number]))
        self.queries[number] = there.start_query(queue.query(f"query-{number}"))
        return self.queries[number]

    def written(self):
        return self.queues[0].written()

    def produce_until_written(self, *numbers_of_hosts, more=3):
        """Produce, and wait until all is written, until each of these hosts has written more batches."""
        before = {number: len(self.queries[number].events("written")) for number in numbers_of_hosts}
        while not all(len(self.queries[n].events("written")) >= count + more for n, count in before.items()):
            self.broker.produce("orders", numbers(AT_ONCE, first=self.produced))
            self.produced += AT_ONCE
            one = self.queries[numbers_of_hosts[0]]
            one.wait(lambda: self.written() >= self.produced, "all is written")

    def loads(self):
        """How often a coordinator has taken the group."""
        logs = [log.read_text() for folder in self.folders for log in folder.glob("coordinator-*.log")]
        return sum(log.count(" loaded: group=") for log in logs)


def test_hosts_that_die_stop_or_are_cut_off_share_a_group(hosts, broker, program, job, tmp_path):
    all_ = Hosts(hosts, broker, program, tmp_path, job)
    for number in range(3):
        all_.start(number).wait_started()
    for one, other in permutations(hosts, 2):
        assert "unreachable" in one.run(sys.executable, "-c", CONNECT, other.there, "9").stderr
    all_.produce_until_written(0, 1, 2)
    assert all_.loads() == 1

    hosts[0].kill_all()  # a whole host vanishes, the owner's
    all_.produce_until_written(1, 2)
    assert all_.loads() == 2
    all_.start(0).wait_started()
    all_.produce_until_written(0, 1, 2)
    assert all_.loads() == 2, "who comes back does not take the group"

    for number in (1, 2):
        hosts[number].kill_all(signal.SIGSTOP)
        all_.produce_until_written(*{0, 1, 2} - {number})
        hosts[number].kill_all(signal.SIGCONT)
    all_.produce_until_written(0, 1, 2)

    for number, host in enumerate(hosts):
        host.cut()
        all_.produce_until_written(*{0, 1, 2} - {number})
        host.cut(off=False)
        all_.produce_until_written(0, 1, 2)
    assert all_.loads() <= 2 + 2 + 3, "at most one change for each host that was away"
    all_.queues[0].output().assert_exactly_once(numbers(all_.produced))
