"""Mutants of the core: does a test fail when a line of it is wrong? (`make mutants`; settings: pyproject's tool.mutmut)

mutmut makes the mutants, knows which tests reach them, and forks a process for each. Here the tests are collected once,
before the forks, and not once a mutant, which is most of the time. Afterwards: `python -m mutmut results`, `… show X`.
"""

import contextlib
import os
import resource
import sys

import mutmut.__main__ as mutmut
import pytest
from _pytest.config import _prepareconfig
from hypothesis import Phase, settings
from mutmut.runners import harness
from mutmut.utils.file_utils import change_cwd
from mutmut.workers import isolation

MEMORY_BYTES = 4 << 30  # a mutant that never ends may also grow


class CollectedOnce(harness.PytestRunner):
    """Runs a mutant's tests, those that take the least time first, as items that its parent process collected."""

    def run_forced_fail(self):
        """The last that happens before the forks."""
        failed = super().run_forced_fail()
        with change_cwd("mutants"), contextlib.redirect_stdout(open(os.devnull, "w")):  # pytest keeps it
            arguments = ["--rootdir=.", "-qs", "--tb=no", *self._pytest_add_cli_args]
            prepared = _prepareconfig([*arguments, *self._pytest_add_cli_args_test_selection])
            prepared._do_configure()
            self.session = pytest.Session.from_config(prepared)
            prepared.hook.pytest_sessionstart(session=self.session)
            self.session.perform_collect()
        self.items = {item.nodeid: item for item in self.session.items}
        return failed

    def run_tests(self, *, mutant_name, tests):
        """0 if all pass, 1 as soon as one fails. In a process of the mutant's own, unless it has no name."""
        if mutant_name is None:
            return super().run_tests(mutant_name=mutant_name, tests=tests)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.chdir("mutants")
        items = [self.items[name] for name in tests]
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.session.testsfailed:
                return 1
        return 0


def main():
    isolation.PytestRunner = CollectedOnce
    settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate], derandomize=True, deadline=None)
    settings.load_profile("mutants")
    mutmut._run(tuple(sys.argv[1:]), max_children=1)


if __name__ == "__main__":
    main()
