"""A member of a fleet in a process of its own, which a test stops, continues and kills."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

from tests.support.imports import ROOT
from tests.support.stopped_process import stop_process


class FleetProcess:
    """``tests.support.fleet_program``, asked by lines. It ends with its owner: its input ends then."""

    def __init__(self, advertised: str, **given: object) -> None:
        self.advertised = advertised
        command = [sys.executable, "-m", "tests.support.fleet_program", json.dumps({"advertised": advertised, **given})]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __repr__(self) -> str:
        return f"<FleetProcess {self.advertised} pid={self._process.pid}>"

    def send(self, *words: object) -> None:
        """Sends a request without waiting for the answer; a stopped process reads it when it continues."""
        assert self._process.stdin
        self._process.stdin.write(" ".join(map(str, words)) + "\n")

    def receive(self) -> Any:
        """The answer to the oldest question that has none."""
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())

    def ask(self, *words: object) -> Any:
        """Ask, and wait for the answer."""
        self.send(*words)
        return self.receive()

    @property
    def owned(self) -> set[int]:
        return set(self.ask("owned"))

    def pause(self) -> None:
        """SIGSTOP; nothing of it runs from here on."""
        stop_process(self._process.pid)

    def resume(self) -> None:
        """Sends SIGCONT to the process."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, also of one that is stopped."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            stream.close()
