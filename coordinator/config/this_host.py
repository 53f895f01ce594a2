"""Which host this is, for processes that must tell their own host's files and coordinators from another's."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path


def host_facts() -> list[str]:
    """Facts in which two hosts differ, as far as the system has them: the host name, the boot, and the network
    namespace. Processes with the same facts reach each other by loopback. Containers may share a host name, a kernel or
    a network."""
    facts = [socket.gethostname()]
    for path, read in (("/proc/sys/kernel/random/boot_id", _text_of), ("/proc/self/ns/net", os.readlink)):
        with contextlib.suppress(OSError):  # some systems lack these files
            facts.append(read(path))
    return facts


def _text_of(path: str) -> str:
    return Path(path).read_text(encoding="ascii").strip()
