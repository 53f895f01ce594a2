"""The process of a coordinator on demand: it takes the state over, serves, and leaves when it is idle.

Rule: its settings hold secrets, so they come by standard input, and no secret is logged. It may be killed at any time:
its answers are in the store, and a client notices that the process of the endpoint file is gone."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from coordinator.config.secret_files import RUNTIME_VARIABLE, own_dir
from coordinator.protocol.errors import UnsafeDirectory
from coordinator.protocol.format_versions import PROTOCOL
from coordinator.protocol.log_lines import TextLines
from coordinator.protocol.package_version import package_version
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.wire import Endpoint, LaunchSettings, decode_endpoint, encode
from coordinator.service.coordinator import Coordinator
from coordinator.service.process.clock import now_s
from coordinator.service.process.end_signals import set_by_signal
from coordinator.service.process.log_format import PrivateRotatingFile
from coordinator.service.process.stderr_capture import StderrCapture
from coordinator.service.server.listener import LOOPBACK

LONGEST_LOOK_S = 1.0
LOG_BYTES = 10 << 20
"""The next log file begins at this many bytes."""
LOG_FILES = 2
"""Up to this many older log files are kept, as PATH.1 and PATH.2."""

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def log_to(path: str) -> Iterator[None]:
    """A context in which the log is written to the file, one line an event, and with it what C libraries write to
    standard error, so that the file's size is bounded."""
    root = logging.getLogger()
    handler = PrivateRotatingFile(path, LOG_BYTES, LOG_FILES, TextLines())
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    with contextlib.closing(StderrCapture(LogOnce(_log))):
        yield


def wait_until_idle(coordinator: Coordinator, told: threading.Event, on_look: Callable[[], None] = lambda: None) -> str:
    """Block until the coordinator may leave, and return the reason. It leaves when it is told to. It leaves when it is
    idle: for the idle timeout no request of this host came, no group holds anything, no writable dead letter waits, and
    no topic is in doubt. It also leaves when it can do nothing for its groups, whose whole state is in the store: for
    the idle and the outage timeout together no request came, and no broker answered or no group could be loaded."""
    timeout_s = coordinator.config.share_coordinator_idle_timeout_ms / 1000
    forsaken_s = timeout_s + coordinator.config.share_broker_outage_timeout_ms / 1000
    rested_s, unloaded_s, look_s = 0.0, 0.0, min(LONGEST_LOOK_S, timeout_s / 10)
    looked_s = now_s()
    while not told.wait(look_s):
        on_look()
        may_rest = coordinator.runtime.may_rest()
        rests = may_rest and coordinator.dispatcher.may_rest() and not coordinator.service.lost_logs.in_doubt
        late_s, looked_s = now_s() - looked_s - look_s, now_s()
        if late_s > LONGEST_LOOK_S:  # the process was stopped, and has not received the requests of that time yet
            rested_s = unloaded_s = 0.0
        rested_s = rested_s + look_s if rests else 0.0
        unloaded_s = unloaded_s + look_s if not may_rest and coordinator.runtime.may_rest(loaded=True) else 0.0
        if min(rested_s, coordinator.requests.idle_s) >= timeout_s:
            return "it was idle"
        if min(coordinator.requests.idle_s, coordinator.cluster.away_s) >= forsaken_s:
            return f"nobody has called, and no broker answered, for {forsaken_s:.0f} s"
        if min(coordinator.requests.idle_s, unloaded_s) >= forsaken_s:
            return f"nobody has called, and its groups could not be loaded, for {forsaken_s:.0f} s"
    return "it was told to"


def run(settings: LaunchSettings) -> Iterator[Endpoint]:
    """Take the state over, serve, yield the endpoint once, and continue until the coordinator is idle. Raises
    ShareGroupError: a named error of the store or of Kafka."""
    told = threading.Event()

    def step_down(reason: str) -> None:
        _log.warning("this coordinator is asked to leave: %s", reason)
        told.set()

    def look() -> None:
        if (successor := keep_endpoint(settings, endpoint)) is not None:
            _log.warning("process %d has taken this coordinator's place: clients found this one silent", successor.pid)
            told.set()
        if coordinator.state.is_gone:
            _log.error("the state file %s was deleted or replaced: nothing is answered from it", settings.state_store)
            told.set()

    coordinator = Coordinator(settings, token := secrets.token_urlsafe(32), step_down=step_down)
    set_by_signal(told)  # not earlier: until here a signal simply ends the process
    endpoint = Endpoint(
        host=LOOPBACK,
        port=coordinator.server.port,
        token=token,
        pid=os.getpid(),
        protocol=PROTOCOL,
        version=package_version(),
        configs=settings.configs,
        brokers=settings.bootstrap_servers,
    )
    try:
        write_endpoint(Path(settings.endpoint_path), endpoint)
        where = (settings.state_store, settings.bootstrap_servers, coordinator.audit_file or "this log")
        _log.info("the coordinator serves: %r store=%s brokers=%s audit=%s", endpoint, *where)
        yield endpoint
        _log.info("the coordinator ends: %s", wait_until_idle(coordinator, told, look))
    finally:
        remove_endpoint(Path(settings.endpoint_path), endpoint)
        coordinator.close()
        _log.info("the coordinator has ended")


def write_endpoint(path: Path, endpoint: Endpoint) -> None:
    """Write the file atomically; from its first byte only the user can read it."""
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=".endpoint-")  # mkstemp's mode is 0600
    with os.fdopen(number, "wb") as file:
        file.write(encode(endpoint))
    os.replace(temporary, path)


def keep_endpoint(settings: LaunchSettings, endpoint: Endpoint) -> Endpoint | None:
    """Write the endpoint file again if it is missing or damaged: a cleaner, or the end of the user's last login
    session, may delete it. Without the file no client finds this coordinator, or can start another one, because this
    one owns the store.

    If the file names another coordinator, returns that one: it was started while this one was paused. If this one
    stayed, the two would take groups from each other, and end sessions of live queries."""
    path = Path(settings.endpoint_path)
    with contextlib.suppress(OSError, UnsafeDirectory):
        found = decode_endpoint(path.read_bytes()) if path.exists() else None
        if found is not None:
            return None if found.token == endpoint.token else found
        own_dir(path.parent, named=RUNTIME_VARIABLE in os.environ)
        write_endpoint(path, endpoint)
        _log.warning("the endpoint file was missing or damaged, and is written again: %s", path)
    return None


def remove_endpoint(path: Path, endpoint: Endpoint) -> None:
    """Delete the endpoint file, unless another coordinator has written its own meanwhile."""
    with contextlib.suppress(OSError):
        if path.read_bytes() == encode(endpoint):
            path.unlink()
