"""All commands of `sharegroup`, as click's tree has them: help with examples, JSON, and mistakes in one line."""

from __future__ import annotations

import inspect
import json
import re
import shlex

import click
import pytest

from coordinator.kafka import cluster_metadata
from coordinator.protocol.wire import Healthy
from share_sink.redrive.report import RedriveReport, Sent
from sharegroup import cluster_options, health
from sharegroup.__main__ import cli, run
from sharegroup.dlq import as_object
from sharegroup.option_types import Seconds, Whole
from tests.support.command_line import COMMANDS, LEAST, mistake
from tests.support.ports import free_ports

OURS = (Seconds, Whole)
WITHOUT_JSON = {
    ("coordinator",): "it serves; its log is JSON with --log-format json, and --print-config prints a file",
    ("demo",): "it tells a story to a person",
    ("quickstart",): "it serves, and prints a program",
    ("web",): "it serves a page",
}
"""The commands that print no results, and why."""
WITHOUT_BROKER = {("check",), ("coordinator",), ("coordinator", "health"), ("demo",), ("quickstart",)}
"""The commands that take no --bootstrap-server."""


def is_only_a_group(command):
    return isinstance(command, click.Group) and not command.invoke_without_command


def named(command):
    return " ".join(command) or "sharegroup"


@pytest.mark.parametrize("path", COMMANDS, ids=named)
def test_help_has_examples_that_the_command_line_accepts(path, capsys):
    assert run([*path, "--help"]) == 0
    told = capsys.readouterr().out
    assert "Usage: " + " ".join(("sharegroup", *path)) in told
    assert max(map(len, told.splitlines())) <= 100
    _, _, examples = inspect.cleandoc(COMMANDS[path].help).partition("\b\nExample")
    found = re.sub(r"\\\n\s*", "", examples).splitlines()[1:]
    assert found
    assert max(map(len, examples.splitlines())) <= 80 - len("  ")  # the help is set in by two
    for line in found:
        program, *words = shlex.split(line.partition(" > ")[0])
        command, name = cli, ()
        while words and words[0] in getattr(command, "commands", {}):
            name = (*name, words[0])
            command = command.commands[words.pop(0)]
        assert program == "sharegroup"
        assert name[: len(path)] == path
        command.make_context(named(name), words)  # raises UsageError


@pytest.mark.parametrize("path", COMMANDS, ids=named)
def test_no_command_in_a_list_of_commands_is_cut_short(path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*path, "--help"]) == 0
    listed = capsys.readouterr().out.partition("\nCommands:\n")[2]
    assert not any(line.endswith("...") for line in listed.splitlines())


@pytest.mark.parametrize("path", COMMANDS, ids=named)
def test_a_wrong_option_prints_one_line_and_exits_with_2(path, capsys):
    assert run([*path, "--no-such-option"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert re.fullmatch(r"sharegroup: No such option:? '?--no-such-option'?.*\(see sharegroup.* --help\)\n", told.err)


def test_every_number_of_a_command_names_its_unit_when_it_is_refused():
    types = [(path, parameter.opts[0], parameter.type) for path in COMMANDS for parameter in COMMANDS[path].params]
    numbers = (click.IntRange, click.FloatRange, type(click.INT), type(click.FLOAT))
    assert not [(path, name) for path, name, kind in types if isinstance(kind, numbers) and not isinstance(kind, OURS)]


@pytest.mark.parametrize("path", [("consume",), ("perf",), ("dlq", "list"), ("dlq", "redrive"), ("dlq", "show")])
@pytest.mark.parametrize("topic", ["", "a,b", "ord*"])
def test_a_name_that_no_topic_can_have_is_refused(path, topic, capsys):
    given = [word if word not in {"orders", "dlq"} else topic for word in LEAST[path]]
    assert f"'{topic}' is no name of a topic" in mistake([*path, "--bootstrap-server", "x:1", *given], capsys)


@pytest.mark.parametrize(
    "path", [("configs", "list"), ("configs", "set"), ("consume",), ("doctor",), ("groups",), ("in-flight",), ("top",)]
)
def test_an_empty_group_is_refused(path, capsys):
    line = mistake([*path, "--bootstrap-server", "x:1", *LEAST[path], "--group", ""], capsys)
    assert "'--group': it is empty: name a share group" in line


def test_each_command_that_prints_results_prints_json_too():
    without = {
        path
        for path, command in COMMANDS.items()
        if not is_only_a_group(command) and not any("--json" in option.opts for option in command.params)
    }
    assert without == set(WITHOUT_JSON)


def test_the_table_of_least_arguments_has_each_command_on_a_cluster():
    with_broker = {
        path for path, command in COMMANDS.items() if any("--bootstrap-server" in each.opts for each in command.params)
    }
    assert set(LEAST) == with_broker
    assert {path for path in COMMANDS if not is_only_a_group(COMMANDS[path])} == with_broker | WITHOUT_BROKER


AT_ONCE = {("consume",), ("dlq", "redrive"), ("groups",), ("web",)}
"""One command of each kind of connection; a second passes before a port without a broker is given up."""


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=named(path), marks=() if path in AT_ONCE else pytest.mark.slow) for path in LEAST]
)
def test_a_port_that_refuses_connections_prints_one_line_and_exits_with_1(path, monkeypatch, capsys):
    monkeypatch.setattr(cluster_metadata, "NOBODY_S", 0.3)
    at = ["--bootstrap-server", f"127.0.0.1:{free_ports(1)[0]}"]
    said = mistake([*path, *at, *LEAST[path]], capsys)
    assert said.startswith("sharegroup: BrokerNotReachable: ")


@pytest.mark.parametrize("is_ready", [True, False])
def test_health_prints_json(is_ready, monkeypatch, capsys):
    monkeypatch.setenv("SHAREGROUP_COORDINATOR_TOKEN", "t" * 40)
    monkeypatch.setattr(health, "ask", lambda probe: Healthy(pid=7, version="1.2", ready=is_ready))
    assert run(["coordinator", "health", "--endpoint", "localhost:1", "--json"]) == (0 if is_ready else 1)
    assert json.loads(capsys.readouterr().out) == {"ready": is_ready, "pid": 7, "version": "1.2"}


def test_a_redrive_report_converts_to_json():
    report = RedriveReport(dlq_topic="dlq", dry_run=True, read=3, sent=3, unknown_names=["mesage"])
    report.by_reason.update({Sent("orders", "rejected", "bad"): 1, Sent("orders", "rejected", "worse"): 2})
    told = json.loads(json.dumps(as_object(report)))
    assert [(each["message"], each["count"]) for each in told["by_reason"]] == [("worse", 2), ("bad", 1)]
    assert (told["read"], told["dry_run"], told["unknown_names"]) == (3, True, ["mesage"])
    assert set(told) == set(RedriveReport.__dataclass_fields__)


def test_a_programs_properties_serve_a_command_which_names_what_it_leaves_out(tmp_path, capsys):
    file = tmp_path / "client.properties"
    file.write_text(
        "group.id=billing\nauto.offset.reset=earliest\nkey.deserializer=x\nclient.id=c\ntransactional.id=t\n"
    )
    for _ in range(2):
        given = cluster_options.settings("localhost:9092", str(file), {"enable.auto.commit": "false"})
        assert given == {"client.id": "c", "bootstrap.servers": "localhost:9092"}
    assert capsys.readouterr().err == (
        "Left out, as keys of a consumer or producer: auto.offset.reset, enable.auto.commit, group.id, "
        "key.deserializer, transactional.id. A command's own options name group and offsets, and share.* keys "
        "configure the group.\n"
    )
