"""Runs the query's program and ends with the process that started it, however that went (SIGKILL runs no clean-up).

The rule: nothing of the demo is in the program itself. The leash is standard input: its end is the demo's end. Spark's
JVM and workers hang on this process in the same way.

    python -m sharegroup.demo.parent_watch MODULE ARGUMENTS...
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def end_with_input() -> None:
    """Wait for the end of standard input, then leave at once."""
    while os.read(0, 1024):  # below sys.stdin, whose lock would be in the way of an ordinary end
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_input, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
