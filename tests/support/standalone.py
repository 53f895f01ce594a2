"""A standalone coordinator as a person starts one: by the command line, as a process, ended with its test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import trustme

from coordinator.client.client import CoordinatorClient
from tests.support.stopped_process import stop_process
from tests.support.waiting import wait_until

TOKEN = "the-token-of-these-tests-7d1f"
CERTIFICATE = "share.coordinator.ssl.certificate.location"
KEY = "share.coordinator.ssl.key.location"


class Certificates:
    """An authority, and a certificate of it for loopback and other addresses, as files in a folder."""

    def __init__(self, folder: Path, *addresses: str) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("localhost", "127.0.0.1", *addresses)
        self.ca, self.certificate, self.key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        write_secret(self.key, issued.private_key_pem.bytes().decode())

    @property
    def configs(self) -> dict[str, str]:
        return {CERTIFICATE: str(self.certificate), KEY: str(self.key)}


def write_secret(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def write_properties(path: Path, configs: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in configs.items()))
    return path


def sharegroup(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end, which is no signal's."""
    given = environment({"PYTHONFAULTHANDLER": "1", **environ})
    found = subprocess.run(command(arguments), capture_output=True, text=True, timeout=120, env=given)
    assert found.returncode >= 0, found
    return found


def command(arguments: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", "sharegroup", *map(str, arguments)]


def environment(more: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, **more}


class StandaloneProcess:
    """It runs as soon as it is made, and is ready when `wait_ready()` returns."""

    def __init__(self, folder: Path, configs: Mapping[str, object]) -> None:
        self.token_file = write_secret(folder / "token", TOKEN + "\n")
        own = {"share.coordinator.listener": "127.0.0.1:0", "share.coordinator.token.file": self.token_file}
        self.config = write_properties(folder / "coordinator.properties", {**own, **configs})
        self.log_path = folder / "log"
        with self.log_path.open("wb") as log:
            arguments = command(["coordinator", "--config", self.config, "--log-format", "json"])
            self.process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment({})
            )

    def wait_ready(self) -> StandaloneProcess:
        wait_until(lambda: self.said("the coordinator serves: ") or self.process.poll() is not None, what="it serves")
        assert self.process.poll() is None, self.log_path.read_text()
        return self

    @property
    def endpoint(self) -> str:
        (line,) = self.said("the coordinator serves: ")
        return str(line.split()[3])

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.endpoint.rpartition(":")
        return host, int(port)

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the coordinator's log, each an object."""
        whole, _, _ = self.log_path.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def said(self, beginning: str) -> list[str]:
        messages = [str(line["message"]) for line in self.lines()]
        return [message for message in messages if message.startswith(beginning)]

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=120)

    def pause(self) -> None:
        """SIGSTOP; nothing of it runs from here on."""
        stop_process(self.process.pid)

    def resume(self) -> None:
        """Sends SIGCONT to the process."""
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> int:
        """Tell it to end; its exit status."""
        self.process.terminate()
        return self.process.wait(120)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def two_coordinators(
    folder: Path, bootstrap: str, configs: Mapping[str, object] | None = None
) -> Iterator[tuple[list[StandaloneProcess], CoordinatorClient]]:
    """Two standalone coordinators of one cluster, and a client of both. They end with the block."""
    given = {"bootstrap.servers": bootstrap, **(configs or {})}
    with contextlib.ExitStack() as stack:
        running = []
        for name in ("a", "b"):
            (folder / name).mkdir()
            running.append(stack.enter_context(contextlib.closing(StandaloneProcess(folder / name, given))))
        endpoints = ",".join(each.wait_ready().endpoint for each in running)
        token = {"share.coordinator.token.file": str(running[0].token_file)}
        client = stack.enter_context(
            contextlib.closing(CoordinatorClient.connect("unused:1", {}, "kafka", endpoints, configs=token))
        )
        yield running, client
