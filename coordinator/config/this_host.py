"""Identifies this host, for processes that must tell their own host's files and coordinators from another's."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path


def host_facts() -> list[str]:
    """The host name, the boot and the network namespace, as far as the system tells them. No two hosts share all three,
    and processes with the same three reach each other by loopback. Containers may share one or two of them."""
    facts = [socket.gethostname()]
    with contextlib.suppress(OSError):  # some systems lack this file, or the next one
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
    with contextlib.suppress(OSError):
        facts.append(os.readlink("/proc/self/ns/net"))
    return facts
