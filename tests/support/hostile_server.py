"""A real Flight server before a coordinator's service, in a process of its own: what hostile bytes are sent to.

``python -m tests.support.hostile_server STATE_FILE`` prints its port, and serves a fake cluster until it is killed. Its
log is its standard error.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from pathlib import Path

from coordinator.client.connection import Connection
from coordinator.protocol.wire import Endpoint
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.handlers.admin_requests import AdminService
from coordinator.service.handlers.handler_table import Handlers
from coordinator.service.requests.requests import Requests
from coordinator.service.server.flight_server import FlightServer
from tests.support.fake_cluster import FakeCluster
from tests.support.imports import ROOT
from tests.support.running_service import Running
from tests.support.web_site import Stored

TOKEN = "hostile-token-0123456789"
FAILED = ("request failed", "append failed", "loading failed", "Traceback")
"""Texts that must not be in the log: a request found a mistake of ours, or cost a group its memory."""


class HostileServer:
    """The process, its connection with all rights, and its log."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "hostile.log"
        command = [sys.executable, "-m", "tests.support.hostile_server", str(folder / "state.db")]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.connection = self.connect(TOKEN)

    def connect(self, token: str) -> Connection:
        return Connection(Endpoint(host="127.0.0.1", port=self.port, token=token, pid=1))

    @property
    def peak_mb(self) -> int:
        """The most memory that the process had, in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) >> 10

    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def check(self) -> None:
        """The process lives, and no request failed in it."""
        assert self.process.poll() is None, f"the server died: {self.process.returncode}\n{self.log()[-2000:]}"
        log = self.log()
        assert not any(each in log for each in FAILED), log[-4000:]

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def main(path: str) -> None:
    """Serve until the process is killed."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    cluster = FakeCluster()
    cluster.add("orders", end=100)
    running = Running(Path(path), cluster)
    admin = AdminService(running.runtime, cluster, Stored(Path(path)), TopicDoubts())
    server = FlightServer(Requests().begin(Handlers({**running.service.handlers, **admin.handlers}).handle), TOKEN)
    print(server.port, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
