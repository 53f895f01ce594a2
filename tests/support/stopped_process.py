"""Stops a process so that none of its threads runs when the test continues."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil

from tests.support.waiting import wait_until

_STOPPED = frozenset("Tt")


def stop_process(pid: int) -> None:
    """SIGSTOP, and wait for each of its threads: the signal takes a moment to reach them all, and until then one may
    still answer."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: stands_still(pid), what=f"process {pid} stands still")


def stands_still(pid: int) -> bool:
    """Whether no thread of the process runs."""
    if psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        return False
    try:  # where there is no /proc, the process's own state is all that is known
        states = [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has just ended
        return False
    return set(states) <= _STOPPED
