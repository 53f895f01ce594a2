"""The demo's processes: each query's program, with Spark's JVM and its Python workers, and the coordinator.

Rule: the demo ends only processes that it started. A query's processes are those of its session (``setsid``): Spark
puts its workers into process groups of their own, but they stay in the session."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_END_WITHIN_S = 10.0

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the demo early: Ctrl-C, `kill`, a closed terminal."""


class DemoFailed(Exception):
    """A step of the demo failed, which ends the demo early; the message names the step and the reason."""


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Run the ``with`` block to its end, and raise an interrupt after it. Ignored signals stay ignored."""
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
            is_coordinator = "coordinator.service" in _command(pid)  # else another program has the pid by now
            if is_coordinator and pid != os.getpid():
                os.kill(pid, signal.SIGKILL)
                until_s = time.monotonic() + _END_WITHIN_S
                while time.monotonic() < until_s and any(pid == other and s[:1] != "Z" for other, s in _processes()):
                    time.sleep(0.02)


def signal_session(session: int, number: int) -> int:
    """Sends a signal to the processes of a session. Returns their number."""
    pids = list(_pids_of(session))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return len(pids)


def kill_session(session: int) -> int:
    """Kill the processes of a session, again until there are none: a process may fork meanwhile. Returns how many the
    first signal ended."""
    killed = signal_session(session, signal.SIGKILL)
    deadline = time.monotonic() + _END_WITHIN_S
    while signal_session(session, signal.SIGKILL) and time.monotonic() < deadline:
        pass
    return killed


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
