"""Finds the coordinators of this test run, by the endpoint files in its own runtime folder, and kills them."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import psutil


def coordinator_pids() -> set[int]:
    """The coordinators whose endpoint files lie in SHAREGROUP_RUNTIME_DIR, those that live."""
    found = set()
    for endpoint in Path(os.environ["SHAREGROUP_RUNTIME_DIR"]).rglob("endpoint-*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, psutil.Error):
            pid = int(json.loads(endpoint.read_text())["pid"])
            if pid != os.getpid() and any("coordinator" in word for word in psutil.Process(pid).cmdline()):
                found.add(pid)
    return found


def kill_coordinators() -> set[int]:
    """SIGKILL; returns who was killed. The next request of a client starts another."""
    killed = set()
    for pid in coordinator_pids():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            process.kill()
            process.wait(60)
            killed.add(pid)
    return killed
