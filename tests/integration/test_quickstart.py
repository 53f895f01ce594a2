"""`sharegroup quickstart` as a person runs it: what a second terminal finds, and that nothing of it is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition

from coordinator.client.client import CoordinatorClient
from coordinator.client.cluster_metadata import cluster_metadata
from coordinator.client.session import MemberSession
from coordinator.protocol.messages import DescribeGroup
from sharegroup.demo.group import GROUP_ID
from sharegroup.demo.orders import TOPIC
from sharegroup.quickstart_broker import RECORDS
from tests.support.coordinator_process import has_ended
from tests.support.imports import ROOT
from tests.support.signals import hearing
from tests.support.waiting import wait_until


class Quickstart:
    """The command, whose output is read line by line."""

    def __init__(self, runtime, temporary):
        environment = {"SHAREGROUP_RUNTIME_DIR": str(runtime), "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
        with hearing(signal.SIGINT):
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sharegroup", "quickstart", "--port", "0"],
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env={**os.environ, **environment},
            )
        self.told = self.read_until("Ctrl-C ends the broker.")
        self.bootstrap = re.search(r"at (localhost:\d+)\.", self.told)[1]

    def read_until(self, part):
        told = ""
        for line in self.process.stdout:
            told += line
            if part in line:
                return told
        raise AssertionError(f"it ended without {part!r}: {told}")

    def end(self, number):
        self.process.send_signal(number)
        told = self.process.stdout.read()
        self.process.stdout.close()
        return self.process.wait(60), told


@pytest.fixture
def quickstart(tmp_path, monkeypatch):
    runtime, temporary = tmp_path / "run", tmp_path / "tmp"
    for folder in (runtime, temporary):
        folder.mkdir(mode=0o700)
    monkeypatch.setenv("SHAREGROUP_RUNTIME_DIR", str(runtime))
    found = Quickstart(runtime, temporary)
    yield found
    if found.process.poll() is None:
        found.end(signal.SIGTERM)


@pytest.mark.slow
def test_a_second_terminal_finds_the_records_at_the_port(quickstart):
    topic = cluster_metadata(quickstart.bootstrap, {}).topics[TOPIC]
    reader = Consumer({"bootstrap.servers": quickstart.bootstrap, "group.id": "g", "log_level": 0})
    try:
        ends = [reader.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=60) for number in topic.partitions]
    finally:
        reader.close()
    assert sum(end - start for start, end in ends) == RECORDS
    assert min(end - start for start, end in ends) > 0


def test_a_query_with_the_default_store_is_served_and_shown(quickstart):
    """The embedded broker can't keep state: the quickstart's coordinator serves the default store from a file."""
    client = CoordinatorClient.connect(quickstart.bootstrap)
    member = MemberSession(client, GROUP_ID, "m", topics=(TOPIC,), configs={}, starting_offsets="earliest")
    quickstart.read_until(f"share group {GROUP_ID}: 1 query")
    assert client.call(DescribeGroup(group_id=GROUP_ID)).members[0].active
    member.close()
    client.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_quickstart_and_leaves_nothing_behind(quickstart, tmp_path, number):
    client = CoordinatorClient.connect(quickstart.bootstrap)
    coordinator = psutil.Process(client.endpoint_of("").pid)
    client.close()
    status, told = quickstart.end(number)
    assert status == 0
    assert "The broker has ended" in told
    wait_until(lambda: has_ended(coordinator), what="its coordinator has ended")
    assert [path for folder in ("run", "tmp") for path in (tmp_path / folder).iterdir()] == []
