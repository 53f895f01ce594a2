"""Hosts with one route, to the brokers, share a group with nothing to deploy. They need root, and `ip` of iproute2.

A host here is a network namespace with a runtime folder of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path

import pytest

from tests.support.consumer_process import ConsumerProgram
from tests.support.coordinator_process import coordinator_pids
from tests.support.far_host import FarBroker, far_host
from tests.support.group_state import describe, forget_clients
from tests.support.owners import tenures
from tests.support.printed_program import PrintedProgram, assert_they_share
from tests.support.share_job import ShareJob, numbers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker]

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()"
QUEUE, WORK = "orders", "payments"
"""The topics, and the names of the groups: one of queries, one of ShareConsumers."""
AT_ONCE, BATCH, POLL = 160, 40, 20
"""The test produces the first number of records at a time; a query takes the second, and a consumer the third."""
RUNTIME = "SHAREGROUP_RUNTIME_DIR"
GONE_LATELY_MS = 20_000
"""A host that takes a group within this many milliseconds after its owner was away had found it gone before it came
back."""


@pytest.fixture
def cluster(request, program, tmp_path):
    """As many hosts as the test asks for, with a program each, on a broker of their own."""
    folder = Path(tempfile.mkdtemp(prefix="sgo-"))  # short: sockets' paths lie in it
    with contextlib.ExitStack() as made:
        hosts = [made.enter_context(far_host(number)) for number in range(request.param)]
        broker = made.enter_context(FarBroker(*(host.here for host in hosts)))
        found = Cluster(hosts, broker, program, folder, tmp_path)
        made.callback(found.close)
        yield found
        forget_clients()
    shutil.rmtree(folder, ignore_errors=True)


class Cluster:
    """The hosts, each with a query and a ShareConsumer, and the records that were produced for each kind."""

    def __init__(self, hosts, broker, program, folder, tmp_path):
        self.hosts, self.broker, self.program, self.folder = hosts, broker, program, tmp_path
        self.runtimes = [folder / f"host-{number}" for number in range(len(hosts))]
        for each in self.runtimes:
            each.mkdir()
        for topic in (QUEUE, WORK):
            broker.create_topic(topic, partitions=3)
        queue = ShareJob(
            directory=folder,
            bootstrap=broker.far_bootstrap,
            admin_bootstrap=broker.bootstrap,
            group=QUEUE,
            topics=(QUEUE,),
            options={"maxOffsetsPerTrigger": str(BATCH), "share.session.timeout.ms": "600000"},
        )
        self.queues = [replace(queue, bootstrap=address) for address in broker.far_bootstraps]
        self.work = replace(queue, group=WORK, topics=(WORK,))
        self.queries, self.consumers = {}, {}
        self.lives = []
        self.produced = 0
        self.away = []
        """(number of the host, since ms, until ms): it was killed, stopped or cut off."""

    def start(self, *numbers_of_hosts):
        """Start the queries and the consumers of these hosts, in programs of their own, one host after the other."""
        there = {n: {"enter": self.hosts[n].enter, RUNTIME: str(self.runtimes[n])} for n in numbers_of_hosts}
        programs = {number: self.program(**where) for number, where in there.items()}
        for number, started in programs.items():
            config = {"bootstrap.servers": self.queues[number].bootstrap, "group.id": WORK, "max.poll.records": POLL}
            config["share.auto.offset.reset"] = "earliest"
            arguments = {"config": config, "topic": WORK, "together": 1 << 40}
            consumer = ConsumerProgram(self.folder, f"consumer-{len(self.lives)}", arguments, **there[number])
            self.lives.append(consumer)
            self.consumers[number] = consumer
            self.queries[number] = started.start_query(self.queues[number].query(f"query-{number}"))
            self.queries[number].wait_started()

    def close(self):
        """End all that runs on the hosts."""
        for host in self.hosts:
            host.kill_all()
        for consumer in self.lives:
            consumer.kill()

    @contextlib.contextmanager
    def harmed(self, number):
        """The host is away meanwhile."""
        since_ms = time.time_ns() // 1_000_000
        try:
            yield self.hosts[number]
        finally:
            self.away.append((number, since_ms, time.time_ns() // 1_000_000))

    def work_goes_on(self, *numbers_of_hosts, more=3):
        """Produce, until each of these hosts has written more batches, and accepted more records."""

        def done(number):
            written, accepted = self.queries[number].events("written"), self.consumers[number].lines("accepted")
            return len(written), len(accepted)

        before = {number: done(number) for number in numbers_of_hosts}

        def is_behind(number):
            written, accepted = done(number)
            return written < before[number][0] + more or accepted <= before[number][1]

        held = 2 * BATCH * (len(self.hosts) - len(numbers_of_hosts))  # at most, by hosts that are away
        while any(map(is_behind, numbers_of_hosts)):
            for topic in (QUEUE, WORK):
                self.broker.produce(topic, numbers(AT_ONCE, first=self.produced))
            self.produced += AT_ONCE
            one = self.queries[numbers_of_hosts[0]]
            one.wait(lambda: self.queues[0].written() >= self.produced - held, "all is written that can be had")

    def owners(self, group=QUEUE):
        """The numbers of the hosts that owned the group, with their tenures, in order. An owner that loads the group
        again is the owner it was: another host may have fenced it, and found that it lives."""
        found = []
        for each in tenures(self.broker, group):
            line = f" {each.pid} INFO coordinator.service.on_demand the coordinator serves: "
            logs = {log: log.parent for r in self.runtimes for log in r.glob("coordinator-*.log*")}
            (host,) = (self.runtimes.index(r) for log, r in logs.items() if line in log.read_text())
            if not found or found[-1][1].pid != each.pid:
                found.append((host, each))
        return found

    def assert_owners_changed_only_when_gone(self):
        """Each owner but the last was away when the next one took the group, or shortly before."""
        for group in (QUEUE, WORK):
            for (host, tenure), (_, following) in pairwise(self.owners(group)):
                at_ms = following.began_ms
                assert tenure.released or any(
                    number == host and since <= at_ms <= until + GONE_LATELY_MS for number, since, until in self.away
                ), f"{group}: {self.owners(group)} while these were away: {self.away}"

    def assert_each_record_once(self):
        """Each record is in one output once: a query that was away has replayed its last batch, within its session. And
        each was accepted by one consumer once; returns how many times that could not say so."""
        wait_until(lambda: self.queues[0].written() >= self.produced, timeout_s=240, what="all is written")
        self.queues[0].output().assert_exactly_once(numbers(self.produced))
        wait_until(lambda: describe(self.work).lag() == 0, timeout_s=240, what="the consumers have done all")
        state = describe(self.work)
        assert state.archived() == 0
        accepted = Counter(tuple(line.split()[:2]) for life in self.lives for line in life.lines("accepted"))
        assert max(accepted.values()) == 1
        got = {tuple(line.split()[:2]) for life in self.lives for line in life.lines("got")}
        assert len(got) == self.produced
        return self.produced - len(accepted)


@pytest.mark.soak  # it takes more than a minute
@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_a_host_that_vanishes_and_comes_back_shares_a_group(cluster):
    cluster.start(0, 1)
    cluster.work_goes_on(0, 1)
    assert [host for host, _ in cluster.owners()] == [0]

    with cluster.harmed(0) as host:  # the owner's
        host.kill_all()
        cluster.work_goes_on(1)
        cluster.start(0)
    cluster.work_goes_on(0, 1)
    assert [host for host, _ in cluster.owners()] == [0, 1], "who comes back does not take the group"
    cluster.assert_owners_changed_only_when_gone()
    assert cluster.assert_each_record_once() <= 2 * POLL


@pytest.mark.soak
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_hosts_that_die_stop_or_are_cut_off_share_a_group(cluster):
    cluster.start(0, 1, 2)
    for one, other in permutations(cluster.hosts, 2):
        assert "unreachable" in one.run(sys.executable, "-c", CONNECT, other.there, "9").stderr
    cluster.work_goes_on(0, 1, 2)
    assert len(cluster.owners()) == 1

    with cluster.harmed(0) as host:  # the owner's
        host.kill_all()
        cluster.work_goes_on(1, 2)
        cluster.start(0)
    cluster.work_goes_on(0, 1, 2)
    assert len(cluster.owners()) == 2, "who comes back does not take the group"

    for number in (1, 2):
        with cluster.harmed(number) as host:
            host.kill_all(signal.SIGSTOP)
            cluster.work_goes_on(*{0, 1, 2} - {number})
            host.kill_all(signal.SIGCONT)
    cluster.work_goes_on(0, 1, 2)

    for number in range(3):
        with cluster.harmed(number) as host:
            host.cut()
            cluster.work_goes_on(*{0, 1, 2} - {number})
            host.cut(off=False)
        cluster.work_goes_on(0, 1, 2)
    assert len(cluster.owners()) <= 2 + 2 + 3, "at most one change for each host that was away"

    owner, _ = cluster.owners()[-1]
    with cluster.harmed(owner):  # its coordinator alone stands still, while its members go on
        (pid,) = coordinator_pids(cluster.runtimes[owner])
        os.kill(pid, signal.SIGSTOP)
        cluster.work_goes_on(0, 1, 2)
        os.kill(pid, signal.SIGCONT)
    cluster.work_goes_on(0, 1, 2)

    cluster.broker.restart()
    cluster.work_goes_on(0, 1, 2)

    one, other = {0, 1, 2} - {owner}
    with cluster.harmed(owner) as first, cluster.harmed(one) as second:  # all hosts but one, at once
        first.kill_all()
        second.kill_all()
        cluster.work_goes_on(other)
        cluster.start(owner, one)
    cluster.work_goes_on(0, 1, 2)
    cluster.assert_owners_changed_only_when_gone()
    cluster.assert_each_record_once()


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_the_first_program_as_printed_shares_its_work_between_hosts(cluster, tmp_path):
    """A copy with billing-2 in place of billing-1 runs on the other host."""
    with contextlib.ExitStack() as running:
        programs = []
        for number, host in enumerate(cluster.hosts):
            name, address = f"billing-{number + 1}", cluster.broker.far_bootstraps[number]
            there = {"enter": host.enter, RUNTIME: str(cluster.runtimes[number])}
            programs.append(PrintedProgram(tmp_path / name, name, address, **there))
            running.callback(programs[-1].end)
        assert_they_share(programs, lambda values: cluster.broker.produce("orders", values))
