"""The demo's processes: each query's program, with Spark's JVM and its Python workers, and the coordinator.

Rule: the demo ends only processes that it started. A query's processes are those of its session (``setsid``): Spark
puts its workers into process groups of their own, but they stay in the session.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from sharegroup.demo.workspace import Workspace

_PROGRAM = "sharegroup.demo.query_program"
_END_WITHIN_S = 10.0

_FAILS = re.compile(r"^(?:Exception in thread .*|[\w.]*(?:Error|Exception)\b.*)$", re.MULTILINE)

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the demo early: Ctrl-C, `kill`, a closed terminal."""


class QueryProcess:
    """A query's program, which can be killed and started again."""

    def __init__(self, name: str, workspace: Workspace, bootstrap_servers: str) -> None:
        self.name = name
        self.folder = workspace.query_folder(name)
        self.log = workspace.logs / f"query-{name}.log"
        self._workspace = workspace
        self._bootstrap_servers = bootstrap_servers
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<QueryProcess {self.name} pid={self._process and self._process.pid}>"

    def start(self) -> None:
        """Start the program, in a session of its own; its log is appended to."""
        command = [
            *(sys.executable, "-m", "sharegroup.demo.parent_watch", _PROGRAM),
            *(self.name, self._bootstrap_servers, str(self.folder), str(self._workspace.payments)),
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # parent_watch ends the program when this pipe closes
                stdout=log,
                stderr=log,
                env=self._workspace.environment,
                cwd=self._workspace.folder,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        """Whether the program runs."""
        return self._process is not None and self._process.poll() is None

    def first_error(self) -> str:
        """The first line of its log that names an error, which is the cause of those after it; empty: there is none."""
        found = _FAILS.search(self.log.read_text(errors="replace"))
        return found.group() if found else ""

    def stop(self) -> None:
        """Send SIGSTOP to the program, its JVM and all their Python processes."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Send SIGCONT to the same processes."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in _pids_of(self._process.pid) if self._process is not None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> int:
        """Send SIGKILL to the program, its JVM and all their Python processes. Returns how many these were."""
        if self._process is None:
            return 0
        killed = _kill_session(self._process.pid)
        self._process.wait(_END_WITHIN_S)
        _close(self._process.stdin)
        self._process = None
        return killed


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Run the ``with`` block to its end; an interrupt during the block is raised after it. Ignored signals stay
    ignored."""
    received: list[int] = []
    handled = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    handlers = {number: signal.signal(number, lambda number, _: received.append(number)) for number in handled}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt


def kill_coordinators(runtime: Path, key: str = "*") -> None:
    """End the coordinators on demand whose endpoint files are in this runtime directory; with ``key`` one of them."""
    for endpoint in runtime.rglob(f"endpoint-{key}.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            pid = int(json.loads(endpoint.read_text())["pid"])
            if pid != os.getpid() and "coordinator" in _command(pid):  # the pid may belong to another program by now
                os.kill(pid, signal.SIGKILL)
                _wait_for_end(pid)


def _kill_session(session: int) -> int:
    """Kill the processes of a session, again until there are none: a process may fork meanwhile."""
    killed: set[int] = set()
    deadline = time.monotonic() + _END_WITHIN_S
    while (pids := list(_pids_of(session))) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed.update(pids)
    return len(killed)


def _pids_of(session: int) -> Iterator[int]:
    for pid, status in _processes():
        with contextlib.suppress(OSError):
            if not status.startswith("Z") and os.getsid(pid) == session:
                yield pid


def _processes() -> Iterator[tuple[int, str]]:
    """(pid, status) of every process; the status of a process that has ended begins with ``Z``."""
    if Path("/proc/self/stat").exists():
        for entry in os.scandir("/proc"):
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    yield int(entry.name), Path(entry.path, "stat").read_text().rpartition(")")[2].strip()
    else:
        for line in _ps("-A", "-o", "pid=,stat=").splitlines():
            pid, _, status = line.strip().partition(" ")
            yield int(pid), status.strip()


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return _ps("-p", str(pid), "-o", "command=")


def _ps(*arguments: str) -> str:
    return subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False).stdout


def _wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + _END_WITHIN_S
    while time.monotonic() < deadline and any(pid == other and status[:1] != "Z" for other, status in _processes()):
        time.sleep(0.02)


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        with contextlib.suppress(OSError):
            stream.close()
