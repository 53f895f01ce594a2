"""The driver's Java process, by which a group knows which of its queries a sink belongs to.

Spark starts a sink's Python worker on the driver's host as a child of the Java process or of its ``pyspark.daemon``.
Rule: nothing fails because the process is not found."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_MOST_PARENTS = 4


def driver_pid() -> int:
    """Returns the process id of the nearest Java process above this one; 0 if there is none."""
    pid = os.getppid()
    with suppress(OSError, ValueError, IndexError):
        for _ in range(_MOST_PARENTS):
            process = Path(f"/proc/{pid}")
            if Path((process / "cmdline").read_text(errors="replace").partition("\0")[0]).name == "java":
                return pid
            pid = int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return 0
