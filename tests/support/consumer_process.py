"""Starts, commands and kills a consumer_program, and reads its output."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.standalone import environment

CLOSE_TIMEOUT_S = 120
"""A close fails after this many seconds: a busy machine takes far less."""


class ConsumerProgram:
    """A consumer_program, which its test ends by :meth:`close` or :meth:`kill`."""

    def __init__(
        self, folder: Path, name: str, arguments: dict[str, object], *, enter: Sequence[str] = (), **more: str
    ) -> None:
        """``enter``: the words before the command that make it run on another host; ``more``: of its environment."""
        self._out = folder / name
        command = [*enter, sys.executable, "-m", "tests.support.consumer_program", json.dumps(arguments)]
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, env=environment(more)
            )

    def __repr__(self) -> str:
        return f"<ConsumerProgram {self._out.name} pid={self.process.pid}>"

    def lines(self, kind: str) -> list[str]:
        """The records that it printed so: partition, offset, delivery count."""
        said = self._out.read_text().splitlines()
        return [line.partition(" ")[2] for line in said if line.startswith(f"{kind} ")]

    def go_on(self) -> None:
        """Write it a line: it accepts the record that it works on, or closes its consumer."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def close(self) -> None:
        """Have it close its consumer, and wait for its end."""
        self.go_on()
        status = self.process.wait(CLOSE_TIMEOUT_S)
        assert status == 0, self._out.read_text()

    def kill(self) -> None:
        """SIGKILL; nothing if it has ended."""
        self.process.kill()
        self.process.wait()
