"""A command that takes long shows its progress on a terminal alone, on standard error, and nothing of it stays."""

from __future__ import annotations

import io
import sys

from sharegroup.progress_bar import progress


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
