"""`sharegroup quickstart` as a person runs it: what a second terminal finds, and that nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import psutil
import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.kafka.cluster_metadata import cluster_metadata
from coordinator.protocol.messages import DescribeGroup
from sharegroup.demo.group import GROUP_ID
from sharegroup.demo.orders import TOPIC
from sharegroup.quickstart.broker import RECORDS
from tests.support.coordinator_process import has_ended
from tests.support.imports import ROOT
from tests.support.signals import hearing
from tests.support.waiting import wait_until

MOST_CONNECTIONS = 3_000
"""A thread connects up to this often: each connection keeps one of the host's ports for a minute."""


class Quickstart:
    """The command, whose output is read line by line."""

    def __init__(self, runtime, temporary, *arguments):
        environment = {"SHAREGROUP_RUNTIME_DIR": str(runtime), "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
        with hearing(signal.SIGINT):
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sharegroup", "quickstart", "--port", "0", *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
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
        told, errors = self.process.communicate(timeout=240)
        return self.process.returncode, told, errors


@contextlib.contextmanager
def begun(folder, rate="0"):
    runtime, temporary = folder / "run", folder / "tmp"
    for each in (runtime, temporary):
        each.mkdir(mode=0o700)
    found = Quickstart(runtime, temporary, "--rate", rate)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.end(signal.SIGTERM)


@pytest.fixture
def rate():
    return "0"


@pytest.fixture
def quickstart(tmp_path, monkeypatch, rate):
    """A quickstart of the test's own."""
    monkeypatch.setenv("SHAREGROUP_RUNTIME_DIR", str(tmp_path / "run"))
    with begun(tmp_path, rate) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    with begun(folder) as found:
        found.runtime = folder / "run"
        yield found


@pytest.fixture
def serving(shared, monkeypatch):
    """The quickstart of the tests that do not end it."""
    monkeypatch.setenv("SHAREGROUP_RUNTIME_DIR", str(shared.runtime))
    return shared


def ends(bootstrap):
    topic = cluster_metadata(bootstrap, {}).topics[TOPIC]
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0})
    try:
        return [reader.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=60) for number in topic.partitions]
    finally:
        reader.close()


def test_a_second_terminal_finds_the_records_at_the_address_that_it_knows(serving):
    found = ends(serving.bootstrap)
    assert sum(end - start for start, end in found) == RECORDS
    assert min(end - start for start, end in found) > 0
    metadata = cluster_metadata(serving.bootstrap, {})
    assert {f"{each.host}:{each.port}" for each in metadata.brokers.values()} == {serving.bootstrap}
    assert metadata.controller_id in metadata.brokers


@pytest.mark.parametrize("rate", ["500"])
def test_the_quickstart_goes_on_producing(quickstart):
    wait_until(lambda: sum(end for _, end in ends(quickstart.bootstrap)) > RECORDS + 500, what="new records come")


def test_a_topic_is_created_by_request_and_only_once(serving):
    admin = AdminClient({"bootstrap.servers": serving.bootstrap})
    admin.create_topics([NewTopic("dlq.new", 1)], operation_timeout=30)["dlq.new"].result(60)
    assert "dlq.new" in admin.list_topics(timeout=60).topics
    with pytest.raises(KafkaException, match="already exists"):
        admin.create_topics([NewTopic("dlq.new", 1)])["dlq.new"].result(60)
    with pytest.raises(KafkaException, match=r"no topic configs \(cleanup.policy\)"):
        admin.create_topics([NewTopic("compacted", config={"cleanup.policy": "compact"})])["compacted"].result(60)
    admin.create_topics([NewTopic("tried", 1)], validate_only=True)["tried"].result(60)
    assert "tried" not in admin.list_topics(timeout=60).topics


def test_a_timestamp_has_the_offset_of_its_record(serving):
    producer = Producer({"bootstrap.servers": serving.bootstrap})
    for at in range(1_000, 6_000, 1_000):
        producer.produce("timed", str(at).encode(), partition=0, timestamp=at)
    assert producer.flush(60) == 0
    reader = Consumer({"bootstrap.servers": serving.bootstrap, "group.id": "g", "log_level": 0})
    try:
        found = {
            at: reader.offsets_for_times([TopicPartition("timed", 0, at)], timeout=60)[0].offset
            for at in (0, 1_000, 1_001, 4_000, 5_000, 5_001)
        }
    finally:
        reader.close()
    assert found == {0: 0, 1_000: 0, 1_001: 1, 4_000: 3, 5_000: 4, 5_001: OFFSET_END}


def test_check_says_ok_for_a_query_that_the_quickstart_serves(serving, tmp_path):
    options = tmp_path / "options.properties"
    options.write_text(f"kafka.bootstrap.servers={serving.bootstrap}\nkafka.group.id=g\nsubscribe={TOPIC}\n")
    command = [sys.executable, "-m", "sharegroup", "check", "--options", options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "a coordinator runs on this host" in done.stdout and "keeps the state in a file" in done.stdout


def test_a_query_with_the_default_store_is_served_and_shown(serving):
    """The embedded broker can't keep state: the quickstart's coordinator serves the default store from a file."""
    client = CoordinatorClient.connect(serving.bootstrap)
    member = MemberSession(client, GROUP_ID, "m", topics=(TOPIC,), configs={}, starting_offsets="earliest")
    serving.read_until(f"share group {GROUP_ID}: 1 query")
    assert client.call(DescribeGroup(group_id=GROUP_ID)).members[0].active
    member.close()
    client.close()


def connect_again_and_again(port, over, connected):
    for _ in range(MOST_CONNECTIONS):
        if over.is_set():
            break
        with contextlib.suppress(OSError):
            socket.create_connection(("localhost", port), 5).close()
            connected.append(port)


def test_it_ends_without_a_word_while_programs_connect(quickstart):
    over, connected = threading.Event(), []
    arguments = (int(quickstart.bootstrap.partition(":")[2]), over, connected)
    programs = [threading.Thread(target=connect_again_and_again, args=arguments) for _ in range(2)]
    for each in programs:
        each.start()
    wait_until(lambda: len(connected) > 200, what="programs connect")
    status, _, errors = quickstart.end(signal.SIGTERM)
    over.set()
    for each in programs:
        each.join()
    assert (status, errors) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupt_ends_the_quickstart_and_leaves_nothing_behind(quickstart, tmp_path, number):
    client = CoordinatorClient.connect(quickstart.bootstrap)
    coordinator = psutil.Process(client.endpoint_of("").pid)
    client.close()
    reader = Consumer({"bootstrap.servers": quickstart.bootstrap, "group.id": "g", "log_level": 0})
    reader.list_topics(timeout=60)  # its connection is open
    status, told, errors = quickstart.end(number)
    reader.close()
    assert (status, errors) == (0, "")
    assert "The broker has ended" in told
    wait_until(lambda: has_ended(coordinator), what="its coordinator has ended")
    assert [path for folder in ("run", "tmp") for path in (tmp_path / folder).iterdir()] == []
