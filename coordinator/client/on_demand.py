"""Find the coordinator of a cluster and state store on this host, or start one.

Rule: two readers that look at once get one coordinator (a lock file around looking and starting), and what an endpoint
file says is believed only after the process behind it has answered.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import msgspec
import platformdirs
from filelock import FileLock, Timeout

from coordinator.client.cluster_metadata import cluster_id
from coordinator.client.connection import HEALTH_TIMEOUT_S, Connection, NoAnswer, Unreachable
from coordinator.protocol.errors import (
    BrokerSecurityFailed,
    CoordinatorNotAvailable,
    CoordinatorNotStarted,
    OutageTooLong,
    ShareGroupError,
    UnsafeDirectory,
)
from coordinator.protocol.secret_files import RUNTIME_VARIABLE, own_dir
from coordinator.protocol.wire import Endpoint, LaunchSettings, StepDown, decode_answer, encode

STATE_VARIABLE = "SHAREGROUP_STATE_DIR"
START_TIMEOUT_S = 40.0
HEALTH_TRY_S = 0.3
"""So often a coordinator that does not answer is asked again; meanwhile another one may have taken its place."""

_log = logging.getLogger(__name__)

_children: list[subprocess.Popen[bytes]] = []
_children_lock = threading.Lock()


def runtime_dir() -> Path:
    """Where endpoint and lock files are: the user's runtime directory, or one of their own in the temporary one."""
    if named := os.environ.get(RUNTIME_VARIABLE):
        return own_dir(Path(named), named=True)
    with contextlib.suppress(UnsafeDirectory):
        return own_dir(Path(platformdirs.user_runtime_dir("sharegroup", appauthor=False)), named=False)
    return own_dir(Path(tempfile.gettempdir()) / f"sharegroup-{os.getuid()}", named=False)


def state_dir() -> Path:
    """Where the state files are that nobody named a place for."""
    named = os.environ.get(STATE_VARIABLE)
    path = Path(named or platformdirs.user_state_dir("sharegroup", appauthor=False))
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def store_of(state_store: str, cluster_id: str) -> str:
    """``kafka``, or ``sqlite:PATH`` with an absolute path: the one that is named, or the cluster's own file in the
    state directory."""
    if state_store == "kafka":
        return state_store
    path = state_store.removeprefix("sqlite").removeprefix(":")
    file = Path(path).expanduser() if path else state_dir() / f"{_file_name(cluster_id)}.db"
    return f"sqlite:{os.path.realpath(file)}"


def _file_name(cluster_id: str) -> str:
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in cluster_id)
    return safe if safe == cluster_id else f"{safe}-{hashlib.sha256(cluster_id.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, kw_only=True)
class OnDemand:
    """One coordinator: that of ``cluster_id`` and ``state_store`` (as of :func:`store_of`)."""

    bootstrap_servers: str
    kafka_config: Mapping[str, str] = field(repr=False)
    cluster_id: str
    state_store: str
    configs: Mapping[str, str] = field(default_factory=dict)

    by_group: ClassVar[bool] = False

    @property
    def key(self) -> str:
        return hashlib.sha256(f"{self.cluster_id}\0{self.state_store}".encode()).hexdigest()[:16]

    @property
    def endpoint_path(self) -> Path:
        return runtime_dir() / f"endpoint-{self.key}.json"

    @property
    def log_path(self) -> Path:
        return runtime_dir() / f"coordinator-{self.key}.log"

    def connect(self, group_id: str = "") -> Connection:
        """Whatever the group: to the coordinator that serves; it is started if none does. CoordinatorNotStarted, or the
        named error that the start ended in."""
        if (found := self._find()) is not None:
            return found
        lock = FileLock(runtime_dir() / f"start-{self.key}.lock", thread_local=False)
        try:
            with lock.acquire(timeout=START_TIMEOUT_S):
                return self._find() or self._start()
        except Timeout:
            raise self._not_started("another process is starting it, and does not finish") from None

    @property
    def where(self) -> str:
        """For people."""
        return f"{self.bootstrap_servers} {self.state_store}"

    def gone(self, group_id: str, reason: str) -> ShareGroupError:
        """What is said of a coordinator that did not answer for the whole time of trying."""
        said = f"it does not answer ({reason}). Its log: {self.log_path}"
        return CoordinatorNotAvailable(group_id=group_id, reason=said)

    def gave_up(self, group_id: str, timeout_ms: int, error: ShareGroupError) -> ShareGroupError:
        """What is said of one that answered for the whole time that it can't serve."""
        log = f" The coordinator's log: {self.log_path}"
        reason = str(error).rstrip(".")
        return OutageTooLong(
            group_id=group_id, timeout_ms=timeout_ms, reason=reason, addresses=self.bootstrap_servers, log=log
        )

    def renew(self, connection: Connection, error: BrokerSecurityFailed) -> None:
        """The brokers refuse the coordinator's credentials, which are those of the query that started it. If they take
        ours, it is asked to leave, and the next call starts another one with ours; BrokerSecurityFailed if not."""
        cluster_id(self.bootstrap_servers, self.kafka_config)
        _log.warning(
            "the brokers refuse the credentials of the coordinator (process %d), and take ours: it is asked to leave, "
            "and another one is started with ours (%s)",
            connection.endpoint.pid,
            error,
        )
        with contextlib.suppress(Unreachable):
            connection.call(StepDown(reason="the brokers refuse its credentials"), HEALTH_TIMEOUT_S)

    # --- inside

    def _find(self) -> Connection | None:
        """To the coordinator that the endpoint file names, once it has answered; None if none does."""
        deadline, asked = time.monotonic() + HEALTH_TIMEOUT_S, None
        connection: Connection | None = None
        while (endpoint := self._named()) is not None:
            if connection is None or endpoint != asked:
                connection, asked = Connection(endpoint), endpoint
            try:
                connection.check_health(HEALTH_TRY_S)
            except NoAnswer:
                if time.monotonic() < deadline:
                    continue
                return None
            except Unreachable:
                return None
            return connection
        return None

    def _named(self) -> Endpoint | None:
        try:
            return msgspec.json.decode(self.endpoint_path.read_bytes(), type=Endpoint)
        except (OSError, msgspec.DecodeError):
            return None

    def _start(self) -> Connection:
        settings = LaunchSettings(
            bootstrap_servers=self.bootstrap_servers,
            kafka_config=dict(self.kafka_config),
            cluster_id=self.cluster_id,
            state_store=self.state_store,
            endpoint_path=str(self.endpoint_path),
            log_path=str(self.log_path),
            configs=dict(self.configs),
        )
        process = self._spawn()
        assert process.stdin is not None and process.stdout is not None
        with contextlib.closing(process.stdout), contextlib.suppress(BrokenPipeError):
            process.stdin.write(encode(settings))
            process.stdin.close()
            line = _first_line(process.stdout.fileno(), START_TIMEOUT_S)
        if not line:
            raise self._not_started("it ended, or said nothing, before it served")
        decode_answer(line)  # raises the named error that it ended in
        connection = self._find()
        if connection is None:
            raise self._not_started("it said that it serves, and does not answer")
        return connection

    def _spawn(self) -> subprocess.Popen[bytes]:
        """A process of its own session: it outlives this one, and a terminal's Ctrl-C is not for it."""
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        with _children_lock, self.log_path.open("ab") as log:
            os.chmod(self.log_path, 0o600)
            _children[:] = [child for child in _children if child.poll() is None]  # reaps those that have left
            process = subprocess.Popen(
                [sys.executable, "-m", "coordinator.service"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=runtime_dir(),
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
            _children.append(process)
        return process

    def _not_started(self, reason: str) -> CoordinatorNotStarted:
        return CoordinatorNotStarted(cluster=self.bootstrap_servers, reason=reason, log=self.log_path)


def _first_line(number: int, timeout_s: float) -> bytes:
    """What the process says first; empty if it ends or says nothing in time."""
    deadline, said = time.monotonic() + timeout_s, b""
    while not said.endswith(b"\n"):
        ready, _, _ = select.select([number], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(number, 65536) if ready else b""
        if not part:
            return b""
        said += part
    return said
