"""Finds the coordinators of this test run, by the endpoint files in its own runtime folder, and kills them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import psutil

from tests.support.waiting import wait_until

CLOCKS_DIFFER_S = 1.0
"""A process may begin up to this many seconds after its endpoint file was written: the kernel takes the two times from
different clocks."""


def coordinator_pids(directory: Path | None = None) -> set[int]:
    """The coordinators that live and whose endpoint files lie in the folder; None: in SHAREGROUP_RUNTIME_DIR. A process
    that began after the file was written has the number of one that ended: it is somebody else's."""
    found = set()
    for endpoint in (directory or Path(os.environ["SHAREGROUP_RUNTIME_DIR"])).rglob("endpoint-*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, psutil.Error):
            process = psutil.Process(int(json.loads(endpoint.read_text())["pid"]))
            began_before = process.create_time() <= endpoint.stat().st_mtime + CLOCKS_DIFFER_S
            is_coordinator = any("coordinator" in word for word in process.cmdline())
            if began_before and is_coordinator and process.pid != os.getpid():
                found.add(process.pid)
    return found


def has_ended(process: psutil.Process) -> bool:
    """True also for a process that ended and whose parent has not asked yet how.

    A killed process is a zombie when its first thread has ended. Its files, locks and ports are open until its last
    thread has. psutil's own ``wait`` opens a pidfd, which fails with FileNotFoundError where the process ends in
    between.
    """
    try:
        if not process.is_running():
            return True
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() == 1
    except psutil.NoSuchProcess:
        return True


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send the signal and return when the process has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        process.send_signal(number)
        wait_until(lambda: has_ended(process), what=f"process {pid} has ended")


def kill_coordinators(directory: Path | None = None) -> set[int]:
    """Sends SIGKILL to :func:`coordinator_pids`, and returns them. The next request of a client starts another
    coordinator."""
    pids = coordinator_pids(directory)
    for pid in pids:
        kill(pid)
    return pids
