"""`make test` leaves slow tests out, and says so in one line at the end; also if the others take too long. On a machine
without Chromium `make test-all` leaves the tests in a browser out, in one line, too; in CI they fail."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.support.imports import ROOT
from tests.support.time_budget import BUDGET_S, TimeBudget

ONE = "tests/browser/test_web_live.py::test_an_event_stream_that_is_refused_is_asked_for_again"
QUICK = "tests/unit/service/test_end_signals.py"


def run(*arguments: str, ci: str = "", chromium: str = "/nonexistent/chromium") -> subprocess.CompletedProcess[str]:
    """A run of pytest with these arguments."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "COV"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments],
        env={**kept, "CHROMIUM": chromium, "CI": ci},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_without_a_browser_one_line_names_what_is_left_out(workers: str) -> None:
    done = run(QUICK, ONE, "-n", workers)
    lines = [line for line in done.stdout.splitlines() if "left out" in line]
    assert done.returncode == 0, done.stdout
    assert lines == [
        "1 test(s) in a browser were left out: there is no Chromium at /nonexistent/chromium. With one (Debian: "
        "apt-get install chromium; another Chromium or Chrome: CHROMIUM=/path/to/it) they run."
    ]


def test_a_short_run_names_what_it_leaves_out_in_one_line() -> None:
    done = run("--short", QUICK, ONE, "-n", "2", ci="true")
    assert done.returncode == 0, done.stdout
    [line] = [line for line in done.stdout.splitlines() if "left out" in line]
    assert line.startswith("1 slow test(s) were left out: ")
    assert line.endswith("`make test-all` runs them.")


@pytest.mark.slow
def test_in_ci_a_missing_browser_is_a_failure() -> None:
    done = run(ONE, ci="true")
    assert done.returncode == 1, done.stdout
    assert "Chromium is missing at /nonexistent/chromium" in done.stdout


@pytest.mark.slow
def test_with_a_browser_nothing_is_left_out() -> None:
    done = run(ONE, QUICK, "--collect-only", chromium=sys.executable)
    assert ONE in done.stdout
    assert "left out" not in done.stdout


def test_a_warning_names_the_modules_that_pass_the_budget_of_time() -> None:
    lines: list[str] = []
    reporter, budget = SimpleNamespace(write_line=lambda line, **_: lines.append(line)), TimeBudget()
    for nodeid, seconds in (("a.py::one", BUDGET_S / 4), ("b.py::one", BUDGET_S / 2), ("a.py::two", BUDGET_S / 2)):
        budget.pytest_terminal_summary(reporter)  # type: ignore[arg-type]
        assert not lines
        budget.pytest_runtest_logreport(SimpleNamespace(nodeid=nodeid, duration=seconds))  # type: ignore[arg-type]
    budget.pytest_terminal_summary(reporter)  # type: ignore[arg-type]
    assert len(lines) == 1 and lines[0].startswith("WARNING: ")
    assert lines[0].endswith(f"in seconds: a.py {BUDGET_S * 3 / 4:.0f}, b.py {BUDGET_S / 2:.0f}")
