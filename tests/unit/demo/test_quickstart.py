"""`sharegroup quickstart` without its broker: the programs that it prints, and a port that is in use."""

from __future__ import annotations

import re
import socket
from contextlib import closing
from types import SimpleNamespace

import pytest

from coordinator.protocol.admin_messages import ListGroups
from sharegroup.__main__ import run
from sharegroup.demo import group
from sharegroup.demo.programs import BROKER_PORT, READING, SINK, program
from sharegroup.quickstart.broker import DEAD_LETTERS, Lines, instructions
from tests.support.readme import readme_program

SECTIONS = {READING: "The first program", SINK: "Outcomes by row"}


@pytest.mark.parametrize("which", SECTIONS)
def test_a_printed_program_is_that_of_the_readme(capsys: pytest.CaptureFixture[str], which: str) -> None:
    assert run(["quickstart", "--print-program", which]) == 0
    assert capsys.readouterr().out == readme_program(SECTIONS[which])


def test_the_reading_program_is_printed_if_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["quickstart", "--print-program", "--port", "19092"]) == 0
    assert capsys.readouterr().out == program(READING, 19092)


@pytest.mark.parametrize("which", SECTIONS)
def test_the_printed_program_has_the_chosen_port(which: str) -> None:
    assert f"localhost:{BROKER_PORT}" in program(which)
    assert '"localhost:19092"' in program(which, 19092)
    assert program(which, 19092).replace("19092", str(BROKER_PORT)) == program(which)


def test_the_broker_has_the_dead_letter_topic_of_the_second_program() -> None:
    assert f'"errors.deadletterqueue.topic.name": "{DEAD_LETTERS}"' in program(SINK)


def test_the_instructions_make_a_second_query_with_its_own_folders() -> None:
    told = instructions(19092, 100)
    assert "sharegroup quickstart --port 19092 --print-program sink > payments.py" in told
    before, after = re.search(r"sed s/([^/]+)/([^/]+)/ billing.py", told).groups()
    copy = "\n".join(line.replace(before, after, 1) for line in program(READING).split("\n"))  # as sed does
    assert copy == program(READING).replace(before, after) != program(READING)


def test_a_changing_lag_has_a_line_every_five_seconds(capsys, monkeypatch):
    now = [0.0]
    states = {"billing": group.GroupState(1, 10), "payments": group.GroupState(0, None)}
    listed = SimpleNamespace(groups=[SimpleNamespace(group_id=name) for name in states])
    client = SimpleNamespace(ask=lambda request: {ListGroups(): listed}[request])
    monkeypatch.setattr("sharegroup.quickstart.broker.group_state", lambda client, group_id: states[group_id])
    lines = Lines(client, clock=lambda: now[0])

    def printed() -> str:
        lines.print()
        return re.sub(r"\d\d:\d\d:\d\d ", "", capsys.readouterr().out)

    assert printed() == "share group billing: 1 query, 10 records are left\n"
    states["billing"] = group.GroupState(1, 9)
    now[0] = 4.0
    assert printed() == ""
    states["payments"] = group.GroupState(2, 7, 3)
    assert printed() == "share group payments: 2 queries, 7 records are left, 3 given up\n"
    now[0] = 5.0
    assert printed() == "share group billing: 1 query, 9 records are left\n"


def test_a_port_in_use_prints_one_line_with_the_port_option(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        assert run(["quickstart", "--port", str(port)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"sharegroup: Port {port} of this host can't be had (another program uses it): ")
    assert "--port" in told
    assert told.count("\n") == 1
