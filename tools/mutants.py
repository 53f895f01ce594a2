"""Runs mutants of the core: does a test fail when a line is wrong? (`make mutants`; settings: pyproject's tool.mutmut)

mutmut makes the mutants, knows which tests reach them, and forks a process for each. This tool collects the tests once,
before the forks, since collecting them for each mutant takes most of the time. Afterwards: `python -m mutmut results`,
`… show X`."""

import contextlib
import functools
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
FAILED = "failed-tests.txt"
"""A file in mutants/ with a line for each mutant that a test failed on: its function and the test."""


class CollectedOnce(harness.PytestRunner):
    """Runs a mutant's tests as items that the parent process collected. First come tests that failed on other mutants
    of the same function, the last one first; then the others, the fastest first."""

    def run_forced_fail(self):
        """Collect the tests; mutmut calls this last before the forks."""
        failed = super().run_forced_fail()
        with change_cwd("mutants"), contextlib.redirect_stdout(open(os.devnull, "w")):  # pytest keeps it
            arguments = ["--rootdir=.", "-qs", "--tb=no", *self._pytest_add_cli_args]
            prepared = _prepareconfig([*arguments, *self._pytest_add_cli_args_test_selection])
            prepared._do_configure()
            self.session = pytest.Session.from_config(prepared)
            prepared.hook.pytest_sessionstart(session=self.session)
            self.session.perform_collect()
        self.items = {item.nodeid: item for item in self.session.items}
        _forget_results()
        return failed

    def run_tests(self, *, mutant_name, tests):
        """Run the mutant's tests, in a process of the mutant's own unless it has no name. Returns 0 if all pass, 1 at
        the first failure."""
        if mutant_name is None:
            return super().run_tests(mutant_name=mutant_name, tests=tests)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.chdir("mutants")
        function = mutant_name.rpartition("__mutmut_")[0]
        items = [self.items[name] for name in dict.fromkeys([*_failed_tests(function, set(tests)), *tests])]
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.session.testsfailed:
                with open(FAILED, "a") as failed:
                    failed.write("{} {}\n".format(function, item.nodeid))
                return 1
        return 0


def _failed_tests(function, tests):
    """Returns the tests that failed on mutants of the function, the last one first."""
    if not os.path.exists(FAILED):
        return []
    with open(FAILED) as lines:
        pairs = [line.rstrip("\n").split(" ", 1) for line in lines]
    return [test for named, test in reversed(pairs) if named == function and test in tests]


def _forget_results():
    """Empty the core's caches. Otherwise a mutant's process would find the right results of tests before the forks."""
    for name, module in list(sys.modules.items()):
        if name.startswith("coordinator."):
            for value in vars(module).values():
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


def main():
    isolation.PytestRunner = CollectedOnce
    # mutmut signals the process id of a mutant some minutes later, also when that process has ended: the id is another
    # program's by then, which dies. A mutant's CPU time is bounded, and each of its tests has a timeout.
    isolation.register_timeout = lambda pid, timeout_s: None
    settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate], derandomize=True, deadline=None)
    settings.load_profile("mutants")
    mutmut._run(tuple(sys.argv[1:]), max_children=1)


if __name__ == "__main__":
    main()
