"""Coordinator or command are killed as an import begins, and when it is durable and not yet answered: then the group is
whole, or there is none and the command is run again."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, TopicPartition

from sharegroup import Admin
from sharegroup.__main__ import run
from tests.support.coordinator_process import kill, kill_coordinators
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def committed(kafka, topic, unique):
    """A consumer group that has committed offset 4 of a topic of 6 records."""
    orders, group = topic("orders"), unique("consumers")
    kafka.produce(orders, ["v"] * 6)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(orders, 0, 4)], asynchronous=False)
    consumer.close()
    return group, orders


@pytest.mark.parametrize("line", ["begun", "done"])
@pytest.mark.parametrize("victim", ["coordinator", "command"])
def test_a_killed_import_leaves_a_whole_group_or_none(kafka, committed, runtime, unique, victim, line, capfd):
    consumers, orders = committed
    group = unique("billing")
    command = ["import", "--bootstrap-server", kafka.bootstrap, "--group", group, "--from-consumer-group", consumers]
    audited = re.compile(rf"{line}: .*ImportGroup.*{group}")

    def is_there():
        return any(audited.search(log.read_text()) for log in runtime.glob("audit-*.log"))

    with subprocess.Popen([sys.executable, "-m", "sharegroup", *command, "--execute"], env=os.environ) as importing:
        wait_until(is_there, what=f"the audit log says {line}")
        kill_coordinators(runtime) if victim == "coordinator" else kill(importing.pid)
        status = importing.wait(120)
    if victim == "coordinator":
        assert status == 0, "the command sent the same action again"
    again = run([*command, "--execute"])
    said = capfd.readouterr().err
    assert again == 0 or "GroupExists: " in said
    assert line == "begun" or "GroupExists: " in said
    with Admin({"bootstrap.servers": kafka.bootstrap}) as admin:
        (found,) = admin.position(group).partitions
    assert (found.topic, found.start, found.runs) == (orders, 4, ())
