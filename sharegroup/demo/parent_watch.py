"""Runs the query's program, and ends when the process that started it has ended, even by SIGKILL, which runs no
clean-up.

Rule: the query's program has no code of the demo. This process reads standard input, a pipe from the demo; its end
means that the demo has ended. Spark's JVM and workers watch this process in the same way.

    python -m sharegroup.demo.parent_watch MODULE ARGUMENTS..."""

from __future__ import annotations

import os
import runpy
import sys
import threading


def end_with_input() -> None:
    """Wait for the end of standard input, then end this process at once, without any clean-up."""
    while os.read(0, 1024):  # not sys.stdin, whose lock would block an ordinary end
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_input, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
