"""The process that cleans up after a broker in memory: it ends the coordinator, and removes its files.

Rule: it waits for the end of its standard input, a pipe from the broker's process, which ends with that process also by
SIGKILL. A coordinator that is starting holds the start lock until it serves; then it is found and ended as well.

    python -m sharegroup.demo.broker_end FOLDER RUNTIME KEY CLUSTER_ID LOGS"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from sharegroup.demo.processes import ENDING, kill_coordinators


def main(folder: str, runtime: str, key: str, cluster_id: str, logs: str) -> None:
    """Wait, then clean up. ``key`` and ``cluster_id`` name the coordinator's files and the notes of Spark's tasks in
    the runtime directory; ``logs``: where its log is moved, or empty."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1024):
        pass
    files = Path(runtime)
    if (lock := files / f"start-{key}.lock").exists():
        with lock.open("r+b") as start:
            fcntl.flock(start, fcntl.LOCK_EX)
            kill_coordinators(files, key)
    if logs:
        for log in files.glob(f"coordinator-{key}.log*"):
            with contextlib.suppress(OSError):
                shutil.move(log, logs)
    for path in (*files.glob(f"*-{key}.*"), *files.glob(f"tasks/start-{key}"), *_notes(files / "tasks", cluster_id)):
        path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _notes(tasks: Path, cluster_id: str) -> list[Path]:
    found = []
    for path in tasks.glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if json.loads(path.read_bytes())["plan"]["cluster_id"] == cluster_id:
                found.append(path)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
