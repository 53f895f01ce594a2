"""The time of the tests of `make test`: a warning at the end of a run says when their sum is above its budget, and
names the modules that took most of it.

Rule: nothing fails by it. A busy machine is slow, and a test's time is no promise.
"""

from __future__ import annotations

from collections import Counter

import pytest

BUDGET_S = 1_600
"""Four workers need this many seconds for eight minutes of tests. What is left of the time are the collection and the
end, where some workers have no test."""
NAMED = 5
"""The warning names this many modules."""


class TimeBudget:
    """A plugin that adds up the time of the tests of all workers, with their fixtures."""

    def __init__(self) -> None:
        self._spent_s: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a test's set-up, its call or its end."""
        self._spent_s[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints the warning, if there is one."""
        spent_s = sum(self._spent_s.values())
        if spent_s > BUDGET_S:
            longest = ", ".join(f"{module} {seconds:.0f}" for module, seconds in self._spent_s.most_common(NAMED))
            terminalreporter.write_line(
                f"WARNING: the tests took {spent_s:.0f} s by themselves, and their budget is {BUDGET_S} s. On a quiet "
                f"machine: shorten one, or mark it slow. The longest modules, in seconds: {longest}",
                yellow=True,
            )
