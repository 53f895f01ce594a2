"""The command `sharegroup`, run in the test's own process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
import pytest

from sharegroup.__main__ import cli, run


def _tree(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from _tree(below, (*path, name))


COMMANDS = dict(_tree(cli))
"""All commands by their words; the first has none."""
LEAST: dict[tuple[str, ...], list[str]] = {
    ("browse",): ["--group", "none"],
    ("configs", "list"): ["--group", "none"],
    ("configs", "set"): ["--group", "none", "share.session.timeout.ms=60000"],
    ("configs", "unset"): ["--group", "none", "share.session.timeout.ms"],
    ("consume",): ["--topic", "orders", "--timeout-ms", "1000"],
    ("dlq", "list"): ["--topic", "dlq"],
    ("dlq", "redrive"): ["--topic", "dlq"],
    ("dlq", "show"): ["--topic", "dlq", "--partition", "0", "--offset", "0"],
    ("doctor",): ["--group", "none"],
    ("export",): ["--group", "none"],
    ("groups",): ["--describe", "--group", "none"],
    ("import",): ["--group", "none", "--from-consumer-group", "none"],
    ("in-flight",): ["--group", "none"],
    ("perf",): ["--topic", "orders", "--num-records", "1", "--timeout", "1000", "--hide-header"],
    ("top",): ["--once", "--group", "none"],
    ("web",): ["--port", "0"],
}
"""The arguments beside --bootstrap-server that a command on a cluster needs at least."""


def mistake(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The line that the command prints about a mistake, with no other output; the status is 2 if the command line is
    wrong, and then the line names the help, else 1."""
    status = run(list(arguments))
    told = capsys.readouterr()
    assert status == (2 if " --help)\n" in told.err else 1)
    assert told.out == ""
    assert told.err.startswith("sharegroup: ")
    assert told.err.count("\n") == 1
    return told.err
