"""`sharegroup quickstart` without its broker: the program that it prints, and a port that is in use."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from sharegroup.__main__ import run
from sharegroup.quickstart import PORT
from sharegroup.quickstart_broker import DEAD_LETTERS, first_program
from tests.support.readme import readme_program


def test_the_printed_program_is_that_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["quickstart", "--print-program"]) == 0
    assert capsys.readouterr().out == readme_program("The first program")


def test_the_broker_has_the_dead_letter_topic_of_the_second_program() -> None:
    assert f'"errors.deadletterqueue.topic.name": "{DEAD_LETTERS}"' in readme_program("Outcomes by row")


def test_the_printed_program_has_the_chosen_port() -> None:
    assert f"localhost:{PORT}" in first_program()
    assert '"localhost:19092"' in first_program(19092)
    assert first_program(19092).replace("19092", str(PORT)) == first_program()


def test_a_port_in_use_prints_one_line_with_the_port_option(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        assert run(["quickstart", "--port", str(port)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"sharegroup: Port {port} of this host can't be had (another program uses it): ")
    assert "--port" in told
    assert told.count("\n") == 1
