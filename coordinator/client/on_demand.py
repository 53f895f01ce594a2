"""Finds the coordinator of a cluster and state store on this host, or starts one.

Rule: two readers that search at the same time get one coordinator (a lock file around search and start). An endpoint
file is trusted only after the process that it names has answered."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import selectors
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import platformdirs
from filelock import FileLock, Timeout
from tenacity import retry_if_exception_type, wait_none

from coordinator.client.connection import HEALTH_TIMEOUT_S, Connection, NoAnswer, Unreachable
from coordinator.config.group_keys import COORDINATOR_KEYS
from coordinator.config.resolved import CoordinatorConfig
from coordinator.config.secret_files import RUNTIME_VARIABLE, own_dir
from coordinator.config.this_host import host_facts
from coordinator.kafka.cluster_metadata import cluster_id
from coordinator.kafka.retries import retry_until
from coordinator.protocol.errors import (
    BrokerSecurityFailed,
    CoordinatorNotAvailable,
    CoordinatorNotStarted,
    InternalError,
    ListenerNotAvailable,
    NoCoordinatorHere,
    OutageTooLong,
    ShareGroupError,
    StateStoreInUse,
    UnsafeDirectory,
)
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.wire import Endpoint, LaunchSettings, StepDown, decode_answer, decode_endpoint, encode

STATE_VARIABLE = "SHAREGROUP_STATE_DIR"
START_TIMEOUT_S = 40.0
"""A coordinator must serve within this many seconds: it starts Python, and may wait for brokers and another's store."""
HEALTH_TRY_S = 0.3
"""One health check takes this many seconds, and is repeated: another coordinator may have replaced a silent one."""

_OF_PYTHON = (sysconfig.get_path("stdlib"), os.path.join(sysconfig.get_path("platstdlib"), "lib-dynload"))
"""Python's own modules. A coordinator finds them before the program's, which may have a secrets.py or an email.py."""
REAP_EVERY_S = 0.01
FORBIDDEN = frozenset((errno.EPERM, errno.EACCES, errno.ENOSYS))
"""Errors of operations that a sandbox forbids. A retry does not help."""

_log = logging.getLogger(__name__)
_once = LogOnce(_log)

_ended: set[str] = set()
"""The keys of coordinators that this process starts no more: their cluster was in memory, and is gone."""

_children: dict[int, str] = {}
"""The processes that this process started, and the keys of their coordinators."""
_children_lock = threading.Lock()


def runtime_dir() -> Path:
    """The directory of endpoint and lock files: the user's runtime directory, or a private one in the temporary
    directory. Raises UnsafeDirectory if it can't be used."""
    if named := os.environ.get(RUNTIME_VARIABLE):
        return own_dir(Path(named), named=True)
    with contextlib.suppress(UnsafeDirectory), warnings.catch_warnings():
        # In containers XDG_RUNTIME_DIR is not set as a rule, and platformdirs would warn of it in each process.
        warnings.simplefilter("ignore", UserWarning)
        return own_dir(Path(platformdirs.user_runtime_dir("sharegroup", appauthor=False)), named=False)
    return own_dir(Path(tempfile.gettempdir()) / f"sharegroup-{os.getuid()}", named=False)


def state_dir() -> Path:
    """The directory of state files for which no path is configured. Raises UnsafeDirectory if it can't be made."""
    named = os.environ.get(STATE_VARIABLE)
    path = Path(named or platformdirs.user_state_dir("sharegroup", appauthor=False)).absolute()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = f"it can't be made ({error.strerror})"
        raise UnsafeDirectory(path=path, reason=reason, variable=STATE_VARIABLE) from None
    return path


def store_of(state_store: str, cluster_id: str) -> str:
    """The state store with its path resolved: ``kafka``, or ``sqlite:PATH``. PATH is absolute: the configured path or,
    if there is none, that of the cluster's own file in the state directory. Raises UnsafeDirectory if the state
    directory can't be made."""
    if state_store == "kafka":
        return state_store
    path = state_store.removeprefix("sqlite").removeprefix(":")
    file = Path(os.path.expanduser(path)) if path else state_dir() / f"{_file_name(cluster_id)}.db"
    return f"sqlite:{os.path.realpath(file)}"


def _file_name(cluster_id: str) -> str:
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in cluster_id)
    return safe if safe == cluster_id else f"{safe}-{hashlib.sha256(cluster_id.encode()).hexdigest()[:8]}"


def python_path() -> str:
    """PYTHONPATH of a coordinator that this program starts in the runtime directory: the process finds the program's
    modules, and Python's own before them."""
    return os.pathsep.join((*_OF_PYTHON, *map(os.path.abspath, sys.path)))


def has_coordinator_for(bootstrap_servers: str) -> bool:
    """Whether this host has the endpoint file of a coordinator that was started with one of these brokers."""
    wanted = _addresses(bootstrap_servers)
    for path in runtime_dir().glob("endpoint-*.json"):
        with contextlib.suppress(OSError):
            found = decode_endpoint(path.read_bytes())
            if found is not None and wanted & _addresses(found.brokers):
                return True
    return False


def _addresses(bootstrap_servers: str) -> set[str]:
    return {address.strip().lower() for address in bootstrap_servers.split(",") if address.strip()}


@dataclass(frozen=True, kw_only=True)
class OnDemand:
    """Finds one coordinator: that of ``cluster_id`` and ``state_store`` (as :func:`store_of` returns it).
    ``state_file``: if not empty, the SQLite file that keeps the state instead, for a cluster that can't keep state;
    clients still find the coordinator by ``state_store``. ``are_several``: whether groups can have different
    coordinators, of which each can answer for any group."""

    bootstrap_servers: str
    kafka_config: Mapping[str, str] = field(repr=False)
    cluster_id: str
    state_store: str
    configs: Mapping[str, str] = field(default_factory=dict)
    state_file: str = ""

    are_several: ClassVar[bool] = False

    @property
    def key(self) -> str:
        """The part of this coordinator's file names that is its own: each host, cluster and store has a different key,
        since hosts may share the runtime directory."""
        facts = self.cluster_id, self.state_store, *host_facts()
        return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]

    @property
    def endpoint_path(self) -> Path:
        return runtime_dir() / f"endpoint-{self.key}.json"

    @property
    def log_path(self) -> Path:
        return runtime_dir() / f"coordinator-{self.key}.log"

    @property
    def _lock_path(self) -> Path:
        return runtime_dir() / f"start-{self.key}.lock"

    def connect(self, group_id: str = "") -> Connection:
        """A connection to the coordinator, which serves every group. The coordinator is started if none runs.

        Raises:
            CoordinatorNotStarted: the start failed.
            NoCoordinatorHere: a sandbox forbids processes, or sockets that listen; or the cluster has ended.
            CoordinatorVersionMismatch: the coordinator speaks another version of the protocol.
            ShareGroupError: the named error with which the started coordinator ended."""
        if (found := self._find()) is not None:
            return self._compared(found)
        self._check_not_ended()
        lock = FileLock(self._lock_path, thread_local=False)
        try:
            with lock.acquire(timeout=START_TIMEOUT_S):
                return self._compared(found) if (found := self._find()) else self._start()
        except Timeout:
            raise self._not_started("another process is starting it, and does not finish") from None

    def start_ahead(self) -> bool:
        """Start the coordinator without waiting, unless an endpoint file names one or another process is starting it.
        Returns whether it starts one. Its process holds the start lock until it serves, or ends: clients that connect
        meanwhile wait for it, and start none.

        Raises:
            OSError: the lock file can't be opened, or the process can't be started.
            UnsafeDirectory: the runtime directory can't be used."""
        number = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with contextlib.suppress(BlockingIOError):
                # Not unlocked here: the new process inherits the lock.
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._named() is None:
                    self._launch(start_lock=number)
                    return True
            return False
        finally:
            os.close(number)

    def start_no_more(self) -> None:
        """Have no client of this process start the coordinator from now on."""
        _ended.add(self.key)

    def reap_ended(self, within_s: float) -> None:
        """Reap the coordinator, which is ending, if this process started it. A killed process can't be reaped before
        its last thread has ended."""
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            with _children_lock:
                _reap()
                if self.key not in _children.values():
                    return
            time.sleep(REAP_EVERY_S)

    def is_running(self) -> bool:
        found = self._find()
        if found is not None:
            found.close()
        return found is not None

    def turn_from(self, connection: Connection) -> None:
        """Ask another coordinator for a while, since this one can't serve now. On demand there is no other one."""

    def may_go_back(self, group_id: str, connection: Connection) -> bool:
        """Whether a coordinator that stands before this one in the group's order may answer again."""
        return False

    @property
    def where(self) -> str:
        """The addresses, and the store where it is known, for logs and error texts."""
        return f"{self.bootstrap_servers} {self.state_store}"

    def named(self, connection: Connection) -> str:
        """The coordinator behind the connection in words, for the log."""
        return f"process {connection.endpoint.pid} on this host, log {self.log_path}"

    def naming_log(self, error: ShareGroupError) -> ShareGroupError:
        """Returns the error of a coordinator, with its log's path where it is known and the error lacks it."""
        if error.on_host or str(self.log_path) in str(error):
            return error
        if isinstance(error, StateStoreInUse):
            owner = f"{error.fields['owner']}; the log of the one that was started here: {self.log_path}"
            return StateStoreInUse(**{**error.fields, "owner": owner})
        if isinstance(error, (CoordinatorNotAvailable, InternalError)) and "reason" in error.fields:
            reason = f"{str(error.fields['reason']).rstrip('.')} (its log: {self.log_path})"
            return type(error)(**{**error.fields, "reason": reason})
        return error

    def gone(self, group_id: str, reason: str) -> ShareGroupError:
        """Returns the error for a coordinator that gave no answer until the retry timeout."""
        text = f"it does not answer ({reason}). Its log: {self.log_path}"
        return CoordinatorNotAvailable(group_id=group_id, reason=text)

    def gave_up(self, group_id: str, timeout_ms: int, error: ShareGroupError) -> ShareGroupError:
        """Returns the error to raise if a coordinator has answered with retriable errors until the timeout. ``error``:
        the last of them."""
        log = "" if error.on_host else f" The coordinator's log: {self.log_path}"
        reason = str(error).rstrip(".")
        return OutageTooLong(
            group_id=group_id, timeout_ms=timeout_ms, reason=reason, addresses=self.bootstrap_servers, log=log
        )

    def renew(self, connection: Connection, error: BrokerSecurityFailed) -> None:
        """Handle brokers that refuse the coordinator's credentials, which are those of the query that started it. If
        they accept this client's, the coordinator is asked to leave, and the next call starts a new one. Raises
        BrokerSecurityFailed if the brokers refuse this client's credentials as well."""
        cluster_id(self.bootstrap_servers, self.kafka_config)
        _log.warning(
            "the brokers refuse the credentials of the coordinator (process %d), and take ours: that coordinator is "
            "asked to leave, and another one is started with our credentials (%s)",
            connection.endpoint.pid,
            error,
        )
        with contextlib.suppress(Unreachable):
            connection.call(StepDown(reason="the brokers refuse its credentials"), HEALTH_TIMEOUT_S)

    def _compared(self, found: Connection) -> Connection:
        """Returns the connection to a coordinator that another query started. Logs the coordinator configs of this
        query that differ from that coordinator's: they have no effect."""
        mine = CoordinatorConfig.parse(self.configs)
        try:
            theirs = CoordinatorConfig.parse(found.endpoint.configs)
        except ShareGroupError:  # another version of sharegroup started it
            return found
        for key, text in self.configs.items():
            name, pid = COORDINATOR_KEYS[key].attribute, found.endpoint.pid
            if not key.startswith("share.coordinator.") or (theirs_is := getattr(theirs, name)) == getattr(mine, name):
                continue
            if _once.changes(f"{pid} {key}={text}", repr(theirs_is)):
                what = f"{key}={text} has no effect: the coordinator (process {pid}) was started by another query"
                _log.warning("%s, with %s, and keeps this value until it exits", what, theirs_is)
        return found

    def _find(self) -> Connection | None:
        """A connection to the coordinator that the endpoint file names, after it has answered; None if none answers."""
        asked: Connection | None = None

        def ask() -> Connection | None:
            nonlocal asked
            endpoint = self._named()
            if endpoint is None:
                return None
            if asked is None or asked.endpoint != endpoint:
                asked = Connection(endpoint)
            asked.check_health(HEALTH_TRY_S)
            return asked

        try:
            return retry_until(HEALTH_TIMEOUT_S, wait_none(), retry_if_exception_type(NoAnswer))(ask)
        except Unreachable:
            if asked is not None:
                asked.close()
            return None

    def _named(self) -> Endpoint | None:
        try:
            return decode_endpoint(self.endpoint_path.read_bytes())
        except OSError:
            return None

    def _start(self) -> Connection:
        try:
            process = self._launch()
        except OSError as error:
            reason = f"a process can't be started ({error.strerror}: {sys.executable})"
            named = self._not_here(reason) if error.errno in FORBIDDEN else self._not_started(reason)
            raise named from error
        assert process.stdout is not None
        with contextlib.closing(process.stdout):
            line = _first_line(process.stdout.fileno(), START_TIMEOUT_S)
        if not line:
            raise self._not_started("it ended, or reported nothing, before it served")
        try:
            decode_answer(line)
        except ListenerNotAvailable as error:
            raise self._not_here(f"it can't listen at {error.fields['listener']}: {error.fields['reason']}") from None
        except ShareGroupError as error:  # the error with which it ended
            raise self.naming_log(error) from None
        connection = self._find()
        if connection is None:
            raise self._not_started(
                "it serves, and does not answer this process, which may be cut off from the host's own network: then "
                "let share.coordinator.endpoint name a coordinator that it can reach"
            )
        return connection

    def _launch(self, start_lock: int = -1) -> subprocess.Popen[bytes]:
        """Start the process, and send it its settings. It inherits ``start_lock``, the locked file's descriptor."""
        self._check_not_ended()
        settings = LaunchSettings(
            bootstrap_servers=self.bootstrap_servers,
            kafka_config=dict(self.kafka_config),
            cluster_id=self.cluster_id,
            state_store=f"sqlite:{self.state_file}" if self.state_file else self.state_store,
            endpoint_path=str(self.endpoint_path),
            log_path=str(self.log_path),
            configs=dict(self.configs),
            start_lock=start_lock,
        )
        process = self._spawn(start_lock)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(encode(settings))
            process.stdin.close()
        return process

    def _check_not_ended(self) -> None:
        if self.key in _ended:
            self._lock_path.unlink(missing_ok=True)  # of a client that waited for the lock until now
            raise self._not_here("this cluster was in memory, and has ended")

    def _spawn(self, start_lock: int) -> subprocess.Popen[bytes]:
        """Starts the process in a session of its own: it outlives this process, and gets no terminal's Ctrl-C."""
        with _children_lock, self.log_path.open("ab") as log:
            os.chmod(self.log_path, 0o600)
            _reap()
            process = subprocess.Popen(
                [sys.executable, "-m", "coordinator.service"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL if start_lock >= 0 else subprocess.PIPE,
                stderr=log,
                cwd=runtime_dir(),
                env={**os.environ, "PYTHONPATH": python_path()},
                start_new_session=True,
                pass_fds=[start_lock] if start_lock >= 0 else [],
            )
            process.returncode = 0  # else Python warns, as this process ends, of one that it did not wait for
            _children[process.pid] = self.key
        return process

    def _not_here(self, reason: str) -> NoCoordinatorHere:
        return NoCoordinatorHere(cluster=self.bootstrap_servers, reason=reason)

    def _not_started(self, reason: str) -> CoordinatorNotStarted:
        return CoordinatorNotStarted(cluster=self.bootstrap_servers, reason=reason, log=self.log_path)


class RunningHere(OnDemand):
    """A directory of the coordinator that runs on this host: it starts none, and needs no brokers."""

    def connect(self, group_id: str = "") -> Connection:
        """A connection to the coordinator. Raises Unreachable if none runs here."""
        found = self._find()
        if found is None:
            raise Unreachable("it does not run on this host")
        return found


def _reap() -> None:
    """Forget the children that have ended, so that no zombie stays."""
    for pid in list(_children):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] != pid:
                continue
        del _children[pid]


def _first_line(number: int, timeout_s: float) -> bytes:
    """Returns the first line of the process's output; empty if it ends, or writes nothing in time."""
    deadline, line = time.monotonic() + timeout_s, b""
    with selectors.DefaultSelector() as selector:  # select.select() knows no descriptor above 1023
        selector.register(number, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            part = os.read(number, 65536) if ready else b""
            if not part:
                return b""
            line += part
    return line
