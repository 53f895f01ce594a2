"""Processes that are killed, stopped and started again: what the killer has in its hands."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.support.imports import ROOT
from tests.support.standalone import command, environment


class Victim:
    """One that is always started again by the same command. ``deaths``: exit statuses that it chose itself, each with
    the last that it printed."""

    def __init__(self, name: str, arguments: list[str], log: Path, **more: str) -> None:
        """``more``: of its environment. Its standard input ends with this process."""
        self.name, self._arguments, self._log, self._more = name, arguments, log, more
        self.deaths: list[tuple[int, str]] = []
        self._killed = False
        self._stopped = False
        self._process = self._start()

    def __repr__(self) -> str:
        return f"<Victim {self.name} pid={self.pid}>"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    @property
    def runs(self) -> bool:
        return self.lives and not self._stopped

    def kill(self) -> None:
        """Sends SIGKILL to the process."""
        self._killed = True
        self._process.kill()
        self._process.wait()
        self._stopped = False

    def pause(self) -> None:
        """Sends SIGSTOP to the process."""
        self._process.send_signal(signal.SIGSTOP)
        self._stopped = True

    def resume(self) -> None:
        """Sends SIGCONT to the process."""
        self._process.send_signal(signal.SIGCONT)
        self._stopped = False

    def revive(self) -> None:
        """Start it again if it is dead."""
        if self.lives:
            return
        if not self._killed:
            self._note_death(self._process.returncode)
        self._killed = False
        self._process = self._start()

    def tell(self) -> None:
        """Write it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def wait(self, timeout_s: float) -> int:
        """Until it ends by itself; its exit status."""
        status = self._process.wait(timeout_s)
        self._note_death(status)
        return status

    def said(self) -> str:
        """The end of its output."""
        return self._log.read_text(errors="replace")[-3_000:]

    def _note_death(self, status: int) -> None:
        self.deaths.append((status, self.said().rstrip().rpartition("\n")[2]))

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment(self._more)
            )


def coordinator(name: str, config: Path, log: Path) -> Victim:
    return Victim(name, command(["coordinator", "--config", config]), log)


def member(name: str, settings: str, log: Path, **more: str) -> Victim:
    return Victim(name, [sys.executable, "-m", "tests.chaos.member_program", settings], log, **more)


def consumer(name: str, settings: str, log: Path, **more: str) -> Victim:
    return Victim(name, [sys.executable, "-m", "tests.support.consumer_program", settings], log, **more)
