"""Ends a test's server when the test's process is gone, however it went: SIGKILL and os._exit run no atexit.

The rule: only process groups that it was told of, by number, on its standard input. Run as a script, by path:

    <pid>     this process group is mine now
    0         none is
    end of input: the test's process is gone; kill the group, remove the folder that the first argument names.
"""

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    """Wait for the end of the input, then clean up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    group = 0
    for line in sys.stdin:
        group = int(line)
    if group:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
