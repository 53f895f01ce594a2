"""The end of a process that has used Arrow Flight.

Rule: nothing that is left runs once the process has its exit status. gRPC's threads outlive the last connection and
can't be joined from here; in an ordinary end C++ would take its global objects away from under them, and a process that
had done its work could still end by SIGABRT.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import NoReturn


def end_process(status: int) -> NoReturn:
    """Write out what was printed and logged, and end at once."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(status)
