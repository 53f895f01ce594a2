"""The end of a process that has used Arrow Flight.

Rule: no thread runs once the process has its exit status. gRPC's threads outlive the last connection and can't be
joined. An ordinary exit would destroy the global C++ objects that these threads still use, so a process that has done
its work could end by SIGABRT."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import NoReturn


def end_process(status: int) -> NoReturn:
    """Flush the log and the standard streams, and exit at once."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(status)
