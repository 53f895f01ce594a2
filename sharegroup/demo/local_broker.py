"""The broker in memory with its coordinator, for all that needs a broker of this host alone: the quickstart, the demo,
the notebooks and tests of programs.

Rule: programs need no option for it. The embedded broker can't keep state, so a coordinator with its state in a
temporary file runs where clients of the default store look for it. Nothing is left when the block ends, however it
ends: a second process (:mod:`sharegroup.demo.broker_end`) cleans up when it sees that this one is done, or is gone."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from coordinator.client.on_demand import OnDemand, python_path, runtime_dir
from sharegroup.demo.broker_front import HOST, fixed_port
from sharegroup.demo.embedded_broker import EmbeddedBroker

END_WITHIN_S = 60.0
"""A ``with`` block ends after waiting up to this many seconds for the clean-up; a longer clean-up goes on alone."""


class LocalBroker(NamedTuple):
    """A running broker. ``address``: for programs of this host; ``coordinator``: finds its coordinator."""

    embedded: EmbeddedBroker
    address: str
    coordinator: OnDemand


@contextlib.contextmanager
def local_broker(
    port: int = 0, configs: Mapping[str, str] = MappingProxyType({}), logs: Path | None = None
) -> Iterator[LocalBroker]:
    """Run a broker at this port of localhost, and its coordinator with these configs; the first call of a client waits
    for the coordinator's start. ``logs``: the folder to which the coordinator's log is moved at the end.

    Raises:
        PortNotFree: the port can't be had.
        UnsafeDirectory: SHAREGROUP_RUNTIME_DIR can't be used."""
    cluster_id = f"in-memory-{uuid.uuid4().hex}"
    with EmbeddedBroker() as embedded, fixed_port(port, embedded, cluster_id) as found:
        folder = tempfile.mkdtemp(prefix="sharegroup-broker-")
        address = f"{HOST}:{found}"
        coordinator = OnDemand(
            bootstrap_servers=address,
            kafka_config={},
            cluster_id=cluster_id,
            state_store="kafka",
            configs=configs,
            state_file=str(Path(folder).resolve() / "state.db"),
        )
        end = _begin_end(folder, coordinator, logs)
        owner = os.getpid()
        try:
            coordinator.start_ahead()
            yield LocalBroker(embedded, address, coordinator)
        finally:
            if os.getpid() == owner:  # else a forked process leaves the block
                coordinator.start_no_more()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    end.communicate(timeout=END_WITHIN_S)
                coordinator.reap_ended(END_WITHIN_S)


def _begin_end(folder: str, coordinator: OnDemand, logs: Path | None) -> subprocess.Popen[bytes]:
    """Start the process that cleans up when its standard input ends: at our word, or with this process."""
    what = (folder, str(runtime_dir()), coordinator.key, coordinator.cluster_id, str(logs or ""))
    return subprocess.Popen(
        [sys.executable, "-m", "sharegroup.demo.broker_end", *what],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,  # whoever reads this process's output does not wait for the clean-up
        stderr=subprocess.DEVNULL,
        cwd=runtime_dir(),
        env={**os.environ, "PYTHONPATH": python_path()},
        start_new_session=True,  # it gets no terminal's Ctrl-C
    )
