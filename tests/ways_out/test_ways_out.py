"""Every named error has a way out that is walked here or in another test, or a reason why nobody can walk it."""

from __future__ import annotations

import re
import string
import tempfile
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

import pytest

from coordinator.protocol.errors import BrokerNotReachable, ShareGroupError, by_name
from share_consumer.errors import kafka_exception
from sharegroup import Admin
from sharegroup.__main__ import _in_words_of_commands
from tests.bad_input.row import Place
from tests.support.command_line import COMMANDS
from tests.support.imports import PACKAGES, ROOT, python_files
from tests.support.ports import free_ports
from tests.ways_out import administration, clients, options, places, queries
from tests.ways_out.elsewhere import REASONS, WALKED
from tests.ways_out.way import PLAYS, Scene

MODULES = (administration, clients, options, places, queries)
"""The modules with plays: their import fills the table."""
OF_A_QUERY = re.compile(r"kafka\.(bootstrap|security|sasl|ssl)\.")

COMMAND = re.compile(r"\bsharegroup ([a-z]+-[a-z-]+|[a-z-]+(?: [a-z]+)?(?= --))((?: --[a-z-]+)*)")
"""A command with its flags, or one whose name is no word of a sentence."""


def named_errors() -> set[type[ShareGroupError]]:
    """The classes of named errors that a program can get."""
    for path in python_files(*PACKAGES):
        module = path.relative_to(ROOT).with_suffix("")
        if "(ShareGroupError" in path.read_text("utf-8") and module.name != "__main__":
            import_module(".".join(module.parts))
    return {cls for cls in by_name().values() if cls.__module__.partition(".")[0] != "tests"} - {ShareGroupError}


def test_each_named_error_is_in_the_table_once():
    tables = (PLAYS, WALKED, REASONS)
    assert named_errors() == {error for table in tables for error in table}
    assert sum(map(len, tables)) == len(named_errors())


def test_a_way_that_another_test_walks_names_an_existing_test():
    for error, test in WALKED.items():
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text("utf-8"), error


@pytest.mark.parametrize("way", PLAYS.values(), ids=lambda way: way.error.__name__)
def test_the_remedy_of_an_error_leads_past_it(way, embedded, monkeypatch):
    for topic in ("orders", "payments"):
        embedded.create_topic(topic)
    monkeypatch.delenv("SHAREGROUP_COORDINATOR_TOKEN", raising=False)
    with tempfile.TemporaryDirectory(prefix="sg-way-") as folder, ExitStack() as ending:
        scene = Scene(way, embedded, Place(embedded.bootstrap_servers, Path(folder)), monkeypatch, ending)
        way.play(scene)
        assert scene.refusals, "the play does not meet its error"


def test_each_command_that_an_error_names_exists():
    for cls in named_errors():
        for words, flags in COMMAND.findall(" ".join((cls.__doc__ or "").split())):
            command = COMMANDS[tuple(words.split())]
            known = {name for option in command.params for name in option.opts}
            assert {*flags.split()} <= known, cls


def test_clients_and_commands_are_told_of_their_own_keys():
    for cls in named_errors():
        fields = {name for _, name, _, _ in string.Formatter().parse(cls.__doc__ or "") if name}
        error = cls(**dict.fromkeys(fields, 1))
        consumer = kafka_exception(error).args[0].str()
        command = _in_words_of_commands(str(error), ["groups", "--bootstrap-server", "a:1"])
        assert not OF_A_QUERY.search(consumer) and not OF_A_QUERY.search(command), cls


def test_an_admin_is_told_of_its_own_keys():
    (port,) = free_ports(1)
    with pytest.raises(BrokerNotReachable, match=r"Check bootstrap\.servers, the network"):
        Admin({"bootstrap.servers": f"127.0.0.1:{port}"}, timeout_ms=200)
