"""A command that takes long shows its progress on a terminal alone, on standard error, and nothing of it stays. Its
tables are as wide as the terminal, and whole in a file or a pipe."""

from __future__ import annotations

import io
import re
import sys

import pytest
from rich.table import Table

from sharegroup.progress_bar import console, progress
from tests.support.imports import ROOT


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self):
        return True


def terminal(monkeypatch):
    """Standard error is a terminal from now on. Called by the test itself: after a fixture pytest replaces it."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    return shown


def test_progress_is_shown_on_a_terminal_and_standard_output_stays_clean(monkeypatch, capsys):
    shown = terminal(monkeypatch)
    with progress("reading [orders]", 2_000, unit="records") as tell:
        tell(1_500)
        print("a result")
    assert "reading [orders]" in shown.getvalue()
    assert "1,500 of 2,000 records" in shown.getvalue()
    assert capsys.readouterr().out == "a result\n"


def test_progress_without_a_total_shows_the_count_so_far(monkeypatch):
    shown = terminal(monkeypatch)
    with progress("reading dlq", unit="dead letters read") as tell:
        tell(12)
    assert "12 dead letters read" in shown.getvalue()


def test_without_a_terminal_no_progress_is_shown(capsys):
    with progress("reading orders", 10, unit="records") as tell:
        tell(10)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("columns", "lines"), [(None, 1), ("80", 4)])
def test_a_piped_table_is_cut_where_columns_is_set_alone(monkeypatch, capsys, columns, lines):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    table = Table("message", box=None, show_header=False, pad_edge=False)
    table.add_row("a long reason " * 20)
    console().print(table)
    told = capsys.readouterr().out
    assert len(told.splitlines()) == lines
    assert re.sub(r"\s+", " ", told).strip() == ("a long reason " * 20).strip()


def test_all_commands_print_on_one_kind_of_console():
    made = {path.relative_to(ROOT / "sharegroup").as_posix() for path in (ROOT / "sharegroup").rglob("*.py")}
    made = {name for name in made if re.search(r"\bConsole\(", (ROOT / "sharegroup" / name).read_text("utf-8"))}
    assert made == {"progress_bar.py", "demo/screen.py"}, "the demo draws a screen of one width"
