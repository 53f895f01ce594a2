"""The commands that docs/run/flow.md prints, on a real broker: whichever process is killed at whichever step, an action
is carried out once or not at all, and the command can be repeated. The process that is to be killed stops at the step,
by a fault which Python loads at its start."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys

import pytest

from coordinator.client.on_demand import RUNTIME_VARIABLE
from coordinator.config.group_keys import PAUSED, RATE
from coordinator.core.log_records import ActionDone
from coordinator.core.record_codec import decode_record
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from sharegroup import Admin, ShareConsumer
from tests.support.coordinator_process import kill_coordinators
from tests.support.imports import ROOT
from tests.support.kafka_log import messages_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

FAULT = """
import pathlib, threading
from {module} import {owner}

right = {owner}.{name}

def held(self, *given, **named):
    if not ({when}):
        return right(self, *given, **named)
    answer = right(self, *given, **named) if {after} else None
    pathlib.Path({reached!r}).touch()
    threading.Event().wait()

{owner}.{name} = held
"""
ASKING = {
    "module": "coordinator.client.connection",
    "owner": "Connection",
    "name": "call",
    "when": "type(given[0]).__name__ == 'AlterGroupConfigs' and given[0].execute",
}
APPENDING = {
    "module": "coordinator.service.stores.kafka.kafka_store",
    "owner": "KafkaStore",
    "name": "append",
    "when": "any(b'ActionDone' in data for each in given[0].values() for data in each.data)",
}
PASSING_ON = {
    "module": "coordinator.service.hosts.gateway",
    "owner": "Gateway",
    "name": "pass_on",
    "when": "given[2] == 'AlterGroupConfigs' and named['is_action']",
}
STEPS = {
    "the command, before it asks": ("command", ASKING, False),
    "the command, with the answer": ("command", ASKING, True),
    "the coordinator, before it appends": ("coordinator", APPENDING, False),
    "the coordinator, before it answers": ("coordinator", APPENDING, True),
    "a host, before it asks the owner": ("host", PASSING_ON, False),
    "a host, with the owner's answer": ("host", PASSING_ON, True),
}
"""By step the process that is killed there, the function at which it stops, and whether that has been called."""
SHORTEST = "the coordinator, before it answers"


def printed_commands(names):
    """The page's commands as the words of each, with these names in place of the printed ones."""
    page = (ROOT / "docs/run/flow.md").read_text("utf-8")
    (block,) = re.findall(r"^```\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    commands = [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]
    return [[names.get(word, word) for word in words[1:]] for words in commands]


class World:
    """A group on the broker, and the commands of a person on a host."""

    def __init__(self, kafka, group, orders, folder):
        self.kafka, self.group, self.orders, self.reached = kafka, group, orders, folder / "reached"
        self.fault = folder / "sitecustomize.py"
        names = {"localhost:9092": kafka.bootstrap, "billing": group, "orders": orders}
        altered = ({RATE: "200"}, {PAUSED: orders}, {PAUSED: ""})
        self.commands = list(zip(printed_commands(names), altered, strict=True))
        """The words of each printed command, and the configs that it alters; an empty one is unset."""

    def begin(self, words):
        path = os.pathsep.join([str(self.fault.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "sharegroup", *words]
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=-2)

    def ended(self, process):
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, out.decode()

    def break_at(self, step):
        _, at, after = STEPS[step]
        self.fault.write_text(FAULT.format(**at, after=after, reached=str(self.reached)))

    def mend(self):
        self.fault.unlink()
        self.reached.unlink()

    def configs(self):
        return dict(self.described().configs)

    def described(self):
        with Admin({"bootstrap.servers": self.kafka.bootstrap}) as admin:
            return admin.describe_groups([self.group])[self.group]

    @contextlib.contextmanager
    def member(self):
        """A member of the group, which has its topic."""
        with ShareConsumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": self.group}) as consumer:
            consumer.subscribe([self.orders])
            wait_until(lambda: not consumer.poll(0.2) and self.described().partitions, what="the group is there")
            yield

    def done(self):
        """The ids of the actions in the group's log."""
        found = set()
        for message in messages_of(self.kafka.bootstrap, STATE_TOPIC):
            if self.group.encode() in (message.key() or b"") and b"ActionDone" in (message.value() or b""):
                record = decode_record(message.value()[2:])  # behind its version
                assert isinstance(record, ActionDone)
                found.add(record.action_id)
        return found


@pytest.fixture
def world(kafka, topic, unique, tmp_path, runtime):
    return World(kafka, unique("billing"), topic("orders"), tmp_path)


@contextlib.contextmanager
def beside_an_owner(world, monkeypatch, folder):
    """Another host than that of the group's owner, whose member is there to the end."""
    for host in ("owner", "another"):
        (folder / host).mkdir(mode=0o700)
    monkeypatch.setenv(RUNTIME_VARIABLE, str(folder / "owner"))
    try:
        with world.member():
            monkeypatch.setenv(RUNTIME_VARIABLE, str(folder / "another"))
            yield
    finally:
        kill_coordinators(folder)


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[] if step == SHORTEST else pytest.mark.slow) for step in STEPS]
)
def test_a_printed_command_that_is_killed_acts_once_or_not_at_all(step, world, monkeypatch, tmp_path):
    killed, _, after = STEPS[step]
    if killed != "host":
        with world.member():
            pass
    with beside_an_owner(world, monkeypatch, tmp_path) if killed == "host" else contextlib.nullcontext():
        for words, altered in world.commands:
            before, done_before = world.configs(), world.done()
            wanted = {key: value for key, value in {**before, **altered}.items() if value}
            kill_coordinators()
            world.break_at(step)
            process = world.begin(words)
            wait_until(lambda: world.reached.exists() or process.poll() is not None, what=step)  # noqa: B023
            assert process.poll() is None, process.communicate()[0].decode()
            if killed == "command":
                process.kill()
                process.communicate()
                kill_coordinators()
                world.mend()
            else:
                world.mend()
                assert kill_coordinators()
                world.ended(process)
            happened = world.configs()
            assert happened == (wanted if after or killed != "command" else before)
            assert len(world.done() - done_before) == (happened != before)
            world.ended(world.begin(words))
            assert world.configs() == wanted


@pytest.mark.slow
def test_an_owner_killed_before_its_answer_has_paused_once(world, monkeypatch, tmp_path):
    """The command is on another host. The member, on the owner's host, stays."""
    monkeypatch.syspath_prepend(tmp_path)  # coordinators have the path of who starts them
    world.break_at(SHORTEST)
    with beside_an_owner(world, monkeypatch, tmp_path):
        world.fault.rename(tmp_path / "fault-of-the-owner")
        _, (words, altered), _ = world.commands
        process = world.begin(words)
        wait_until(world.reached.exists, what="the owner has paused the group")
        kill_coordinators(tmp_path / "owner")
        world.ended(process)
        assert world.configs()[PAUSED] == altered[PAUSED] and len(world.done()) == 1
        world.ended(world.begin(words))
        assert world.configs()[PAUSED] == altered[PAUSED]
