"""A host of another network, as a pod has it: a network namespace that a pair of interfaces joins to this one.

Rule: it has its own loopback, and one way out, to ``here``. Nothing that listens on this host's loopback is reached
from it. Its processes are started with ``enter``, and end with those who started them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.kafka_broker import KafkaBroker, free_ports


@dataclass(frozen=True)
class FarHost:
    """`here` is this host's address on the way there, `there` is its own."""

    name: str
    here: str
    there: str
    near: str
    """The interface of this host on the way there."""

    @property
    def enter(self) -> tuple[str, ...]:
        """The words before a command that make it run there."""
        return ("ip", "netns", "exec", self.name)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command there to its end."""
        return subprocess.run([*self.enter, *command], capture_output=True, text=True, timeout=60, check=False)

    def cut(self, *, off: bool = True) -> None:
        """Take its way out from it, or give it back."""
        _ip("link", "set", self.near, "down" if off else "up")

    def kill_all(self, number: int = signal.SIGKILL) -> None:
        """Send the signal to all processes there, as where the whole host vanishes or stands still."""
        for pid in subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True).stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), number)


@contextlib.contextmanager
def far_host(number: int = 0) -> Iterator[FarHost]:
    """A host of another network. Hosts of other numbers have no route to it. The test is skipped where the machine does
    not let this process make one: it needs root, and iproute2."""
    name, subnet = f"{os.getpid()}-{number}", f"10.{77 + number}.{os.getpid() % 250}"
    near, far = f"sgn{name}", f"sgf{name}"
    host = FarHost(f"sharegroup-{name}", f"{subnet}.1", f"{subnet}.2", near)
    if missing := _missing():
        pytest.skip(f"a network namespace needs {missing}")
    _ip("netns", "add", host.name)
    try:
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", host.name)
        _ip("address", "add", f"{host.here}/24", "dev", near)
        _ip("link", "set", near, "up")
        _ip("-n", host.name, "address", "add", f"{host.there}/24", "dev", far)
        _ip("-n", host.name, "link", "set", far, "up")
        _ip("-n", host.name, "link", "set", "lo", "up")
        yield host
    finally:
        subprocess.run(["ip", "link", "delete", near], capture_output=True, check=False)
        _ip("netns", "delete", host.name)


class FarBroker(KafkaBroker):
    """A broker that listens on more addresses, and advertises each to the clients that connect to it."""

    def __init__(self, *addresses: str) -> None:
        ports = free_ports(len(addresses))
        self.far_bootstraps = [f"{address}:{port}" for address, port in zip(addresses, ports, strict=True)]
        self.far_bootstrap = self.far_bootstraps[0]
        super().__init__()

    def _format_storage(self) -> None:
        listeners = {
            "PLAINTEXT": self.bootstrap,
            "PROXIED": self.proxied_bootstrap.replace(str(self.proxy.port), str(self._proxied_port)),
            **{f"FAR{number}": address for number, address in enumerate(self.far_bootstraps)},
        }
        said = listeners | {"PROXIED": self.proxied_bootstrap}
        bound = listeners | {"CONTROLLER": f"127.0.0.1:{self._controller_port}"}
        self._config = {
            "listeners": ",".join(f"{name}://{address}" for name, address in bound.items()),
            "advertised.listeners": ",".join(f"{name}://{address}" for name, address in said.items()),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in bound),
        }
        super()._format_storage()


def _missing() -> str:
    """The thing that a network namespace needs and this process lacks; empty: nothing."""
    if shutil.which("ip") is None:
        return "`ip` of iproute2"
    tried = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False)
    return "" if os.geteuid() == 0 and tried.returncode == 0 else "root, with all its rights"


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
