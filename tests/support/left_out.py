"""The tests that are left out: with --short those marked `slow`; without it those in Chromium, where there is none.

Rule: nothing is left out silently, and nothing in CI (the environment variable CI): there a missing browser fails.
"""

from __future__ import annotations

import os
import shutil

import pytest

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
"""The browser: Debian's, or the one that CHROMIUM names."""
SLOW = (
    "{count} slow test(s) were left out: second forms of a promise, searches for known mistakes, older versions of "
    "Spark and Kafka, the page in a browser. `make test-all` runs them."
)
WITHOUT_BROWSER = (
    "{count} test(s) in a browser were left out: there is no Chromium at {path}. With one (Debian: apt-get install "
    "chromium; another Chromium or Chrome: CHROMIUM=/path/to/it) they run."
)


def needs_a_missing_browser(item: pytest.Item) -> bool:
    """Whether the machine lacks the browser that the test drives, and this is not CI."""
    if item.get_closest_marker("browser") is None or os.environ.get("CI"):
        return False
    return shutil.which(CHROMIUM) is None


class LeftOut:
    """A plugin that counts the tests left out, in all of pytest's workers, and prints the count in one line at the
    end."""

    def __init__(self, *, short: bool) -> None:
        self.count = 0
        self._short = short

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave the tests out. Those marked soak run only where they are asked for, and count only there."""
        left_out = {item: None for item in items if self._is_left_out(item)}
        soaks = bool(config.getoption("--soak"))
        self.count = sum(bool(item.get_closest_marker("soak")) == soaks for item in left_out)
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]

    def _is_left_out(self, item: pytest.Item) -> bool:
        return item.get_closest_marker("slow") is not None if self._short else needs_a_missing_browser(item)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the process that started this worker."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["left_out"] = self.count

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take the number of a worker: each of them collects all tests."""
        self.count = max(self.count, getattr(node, "workeroutput", {}).get("left_out", 0))

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints in one line what was left out."""
        if self.count:
            line = SLOW if self._short else WITHOUT_BROWSER
            terminalreporter.write_line(line.format(count=self.count, path=CHROMIUM), yellow=True)
