"""The parts of a coordinator, started and ended in order; and the coordinator process on demand, which takes its state
over, serves, and leaves when it is idle. (standalone.py has the other kind of process.)

Rule: its settings come by standard input, since they hold secrets, and no secret is logged. It may be killed at any
time: what it answered is in the store, and an endpoint file that it left behind is found out by whoever asks it.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import logging
import os
import secrets
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordinator.config.resolved import CoordinatorConfig, GroupBounds, ServerConfig
from coordinator.protocol.errors import CoordinatorNotAvailable, MetricsNotAvailable, UnsafeDirectory
from coordinator.protocol.format_versions import PROTOCOL
from coordinator.protocol.log_lines import TextLines
from coordinator.protocol.messages import Message, Request
from coordinator.protocol.package_version import package_version
from coordinator.protocol.rights import Tokens
from coordinator.protocol.secret_files import RUNTIME_VARIABLE, own_dir
from coordinator.protocol.wire import Endpoint, LaunchSettings, decode_endpoint, encode
from coordinator.service.admin import AdminService
from coordinator.service.brokers.broker_watch import BrokerWatch
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.coordinator_service import CoordinatorService
from coordinator.service.dead_letters.dispatcher import DeadLetterDispatcher
from coordinator.service.open_state import KafkaState, OnChange, SqliteState
from coordinator.service.process.clock import now_s
from coordinator.service.process.end_signals import set_by_signal
from coordinator.service.process.log_format import PrivateRotatingFile
from coordinator.service.process.rate_limited_log import RateLimitedLog
from coordinator.service.process.stderr_capture import StderrCapture
from coordinator.service.runtime.group_limits import GroupLimits
from coordinator.service.runtime.runtime import Measures
from coordinator.service.server.audit import audit_to
from coordinator.service.server.flight_server import FlightServer
from coordinator.service.server.listener import LOOPBACK, Listener

if TYPE_CHECKING:
    from coordinator.service.metrics.endpoint import Metrics

LONGEST_LOOK_S = 1.0
LOG_BYTES = 10 << 20
"""The next log file begins at this many bytes."""
LOG_FILES = 2
"""Up to this many older log files are kept, as PATH.1 and PATH.2."""
THREADS_TURN_S = 0.001
"""`sys.setswitchinterval`. Below Python's 5 ms, because one request crosses several threads and waits at each for a
thread that computes."""

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def log_to(path: str) -> Iterator[None]:
    """A context in which the log is written to the file, one line an event, and with it what C libraries write to
    standard error, so that the file's size is bounded."""
    root = logging.getLogger()
    handler = PrivateRotatingFile(path, LOG_BYTES, LOG_FILES, TextLines())
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    with contextlib.closing(StderrCapture(RateLimitedLog(_log))):
        yield


def open_state(
    settings: LaunchSettings,
    config: CoordinatorConfig,
    cluster: KafkaCluster,
    on_change: OnChange,
    advertised: str,
    measures: Measures | None = None,
    bounds: GroupBounds | None = None,
) -> SqliteState | KafkaState:
    """The groups' state as ``share.state.store`` says, owned by this process. ``advertised``: the host:port of one of a
    fleet, empty for a coordinator on demand. Raises the named errors of the stores."""
    kind, _, path = settings.state_store.partition(":")
    if kind == "sqlite":
        return SqliteState(path, config, on_change, measures, bounds)
    installation = "" if advertised else installation_id(Path(settings.endpoint_path).parent)
    return KafkaState(
        cluster,
        settings.kafka_config,
        config,
        on_change,
        installation_id=installation,
        advertised=advertised,
        measures=measures,
        bounds=bounds,
    )


def _metrics_of(config: CoordinatorConfig, *, is_optional: bool) -> Metrics | None:
    """The metrics, which listen already; None: share.coordinator.metrics.port is 0, or they can't be shown and are
    optional, since other coordinators on demand of this host may have the same port.

    Raises:
        MetricsNotAvailable: they can't be shown.
    """
    port = config.share_coordinator_metrics_port
    if not port:
        return None
    try:
        try:
            from coordinator.service.metrics.endpoint import Metrics
        except ImportError as error:
            missing = "prometheus-client is missing; pip install 'sharegroup[metrics]' brings it"
            raise MetricsNotAvailable(port=port, reason=missing) from error
        return Metrics(LOOPBACK, port)
    except MetricsNotAvailable as error:
        if not is_optional:
            raise
        _log.warning("%s", error)
        return None


def _audit_file(settings: LaunchSettings) -> str:
    """The audit log beside the log of a coordinator on demand; empty for a standalone one, whose log is elsewhere."""
    log = Path(settings.log_path)
    return str(log.with_name(f"audit-{log.name.removeprefix('coordinator-')}")) if settings.log_path else ""


def installation_id(runtime_dir: Path) -> str:
    """An id that identifies this installation across restarts of its coordinator. Containers may share a host name, a
    kernel or a network, so the id is a hash of several facts; none of them is a file that a cleaner could delete."""
    facts = [socket.gethostname(), os.path.realpath(runtime_dir), f"{os.stat('/').st_dev}"]
    for path, read in (("/proc/sys/kernel/random/boot_id", _text_of), ("/proc/self/ns/net", os.readlink)):
        with contextlib.suppress(OSError):  # some systems lack these files
            facts.append(read(path))
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]


def _text_of(path: str) -> str:
    return Path(path).read_text(encoding="ascii").strip()


class Coordinator:
    """A coordinator with all its parts started; :meth:`close` ends them in order."""

    def __init__(
        self,
        settings: LaunchSettings,
        tokens: str | Tokens,
        *,
        in_fleet: bool = False,
        listener: Listener | None = None,
        limits: ServerConfig | None = None,
        rate_limited: RateLimitedLog | None = None,
        greet: Callable[[str], None] = lambda peer: None,
        step_down: Callable[[str], None] | None = None,
    ) -> None:
        """``greet`` and ``step_down``: see :class:`FlightServer`."""
        set_up_python()
        limits = limits or ServerConfig.parse()
        self.config = CoordinatorConfig.parse(settings.configs)
        cluster = self.cluster = KafkaCluster(
            settings.bootstrap_servers,
            settings.kafka_config,
            self.config.share_coordinator_broker_timeout_ms,
            limits.allowed_topics,
        )
        self.watch = BrokerWatch(
            cluster,
            metadata_refresh_ms=self.config.share_coordinator_metadata_refresh_ms,
            watermark_refresh_ms=self.config.share_coordinator_watermark_refresh_ms,
            on_ends=lambda: self.service.tell_news(),
        )
        self._limits = limits
        self._is_ready = False
        self._end_audit: Callable[[], None] = lambda: None
        self._find: Callable[[str], str] = lambda group_id: ""
        # The server starts first, since the fleet needs its address; requests that come before the service are refused.
        self.server = FlightServer(
            self._handle,
            tokens,
            version=package_version(),
            listener=listener or Listener(),
            limits=limits,
            rate_limited=rate_limited,
            is_ready=lambda: self._is_ready,
            find=lambda group_id: self._find(group_id),
            greet=greet,
            step_down=step_down,
        )
        try:
            self._serve(settings, cluster, in_fleet=in_fleet)
        except BaseException:
            self.server.shutdown()
            self.watch.close()
            self._end_audit()
            raise
        self._is_ready = True

    def close(self) -> None:
        """Finish the running requests, then release the state to its next owner."""
        self._is_ready = False
        self.server.shutdown()
        self.dispatcher.close()
        if self._metrics is not None:
            self._metrics.close()
        self.state.close()
        self.watch.close()
        self._end_audit()

    def _serve(self, settings: LaunchSettings, cluster: KafkaCluster, *, in_fleet: bool) -> None:
        advertised = self.server.address if in_fleet else ""
        self.audit_file = self.config.share_coordinator_audit_file or _audit_file(settings)
        self._end_audit = audit_to(self.audit_file)
        self.dispatcher = DeadLetterDispatcher(cluster, settings.kafka_config, self.watch.doubts)
        self._metrics = metrics = _metrics_of(self.config, is_optional=not in_fleet)
        measures = None if metrics is None else metrics.counters
        bounds = self._limits.group_bounds
        self.state = open_state(settings, self.config, cluster, self._tell, advertised, measures, bounds)
        self.event_loop = self.state.event_loop
        self.dispatcher.open(self.event_loop)
        self._group_limits = group_limits = GroupLimits(self._limits, lambda: self.event_loop.group_count)
        if isinstance(self.state, KafkaState) and in_fleet:
            self._find = self.state.find
        self.service = CoordinatorService(self.event_loop, self.watch, group_limits)
        self.admin = AdminService(self.event_loop, cluster, self.state, self.watch.doubts)
        self._handle_request: Callable[[Request[Any]], Message] = self._answer
        if metrics is not None:
            self._handle_request = metrics.counted(self._answer)
            metrics.measure(self.event_loop, self.watch.known_ends)

    def _tell(self, groups: set[str]) -> None:
        self.dispatcher.tell(groups)
        if self._is_ready:  # before, nobody waits for news
            self.service.tell_news(groups)

    def _handle(self, request: Request[Any]) -> Message:
        if not self._is_ready:
            raise CoordinatorNotAvailable(group_id=getattr(request, "group_id", ""), reason="it is not ready")
        return self._handle_request(request)

    def _answer(self, request: Request[Any]) -> Message:
        self._group_limits.check_configs(request)
        return self.admin.handle(request) if self.admin.handles(request) else self.service.handle(request)

    def wait_until_idle(self, told: threading.Event, on_look: Callable[[], None] = lambda: None) -> str:
        """Block until the coordinator may leave, and return the reason: it was told to; or no request came for the idle
        timeout, no group holds anything, and no dead letter waits that can still be written; or, for the idle timeout
        and the outage timeout together, no request came, and no broker answered, or the only groups left could not be
        loaded: then the coordinator can do nothing for its groups, and the store has all its state."""
        timeout_s = self.config.share_coordinator_idle_timeout_ms / 1000
        forsaken_s = timeout_s + self.config.share_broker_outage_timeout_ms / 1000
        rested_s, unloaded_s, look_s = 0.0, 0.0, min(LONGEST_LOOK_S, timeout_s / 10)
        looked_s = now_s()
        while not told.wait(look_s):
            on_look()
            may_rest = self.event_loop.may_rest()
            rests = may_rest and self.dispatcher.may_rest()
            late_s, looked_s = now_s() - looked_s - look_s, now_s()
            if late_s > LONGEST_LOOK_S:  # the process was stopped: requests of that time are not received yet
                rested_s = unloaded_s = 0.0
            rested_s = rested_s + look_s if rests else 0.0
            unloaded_s = unloaded_s + look_s if not may_rest and self.event_loop.may_rest(loaded=True) else 0.0
            if min(rested_s, self.server.idle_s) >= timeout_s:
                return "idle"
            if min(self.server.idle_s, self.cluster.away_s) >= forsaken_s:
                return f"nobody has called, and no broker answered, for {forsaken_s:.0f} s"
            if min(self.server.idle_s, unloaded_s) >= forsaken_s:
                return f"nobody has called, and its groups could not be loaded, for {forsaken_s:.0f} s"
        return "told to"


def set_up_python() -> None:
    """Let Python's garbage collector run rarely, since the state is long-lived and has no cycles, and its threads take
    turns often."""
    gc.set_threshold(100_000, 50, 100)
    sys.setswitchinterval(THREADS_TURN_S)


def run(settings: LaunchSettings) -> Iterator[Endpoint]:
    """Take the state over, serve, yield the endpoint once, and continue until the coordinator is idle.

    Raises:
        ShareGroupError: a named error of the store or of Kafka.
    """
    told = threading.Event()

    def step_down(reason: str) -> None:
        _log.warning("this coordinator is asked to leave: %s", reason)
        told.set()

    def look() -> None:
        if (successor := keep_endpoint(settings, endpoint)) is not None:
            _log.warning("process %d has taken this coordinator's place: clients found this one silent", successor.pid)
            told.set()
        if isinstance(coordinator.state, SqliteState) and coordinator.state.is_gone:
            _log.error("the state file %s was deleted or replaced: nothing is answered from it", settings.state_store)
            told.set()

    coordinator = Coordinator(settings, token := secrets.token_urlsafe(32), step_down=step_down)
    set_by_signal(told)  # from here on: a signal before ends a process that does not serve yet
    endpoint = Endpoint(
        host=LOOPBACK,
        port=coordinator.server.port,
        token=token,
        pid=os.getpid(),
        protocol=PROTOCOL,
        version=package_version(),
        configs=settings.configs,
    )
    try:
        write_endpoint(Path(settings.endpoint_path), endpoint)
        where = (settings.state_store, settings.bootstrap_servers, coordinator.audit_file or "this log")
        _log.info("serving: %r store=%s brokers=%s audit=%s", endpoint, *where)
        yield endpoint
        _log.info("leaving: %s", coordinator.wait_until_idle(told, look))
    finally:
        remove_endpoint(Path(settings.endpoint_path), endpoint)
        coordinator.close()
        _log.info("left")


def write_endpoint(path: Path, endpoint: Endpoint) -> None:
    """Write the file atomically; from its first byte only the user can read it."""
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=".endpoint-")  # mkstemp's mode is 0600
    with os.fdopen(number, "wb") as file:
        file.write(encode(endpoint))
    os.replace(temporary, path)


def keep_endpoint(settings: LaunchSettings, endpoint: Endpoint) -> Endpoint | None:
    """Write the endpoint file again if it is missing: a cleaner deleted it, or its directory went with the user's last
    login session. Without it no client finds this coordinator, or can start another one, since this one owns the
    store.

    Returns the other coordinator that the file names, if it does: it was started while this one stood still. Both would
    take groups from each other, and end sessions of live queries, if this one stayed.
    """
    path = Path(settings.endpoint_path)
    with contextlib.suppress(OSError, UnsafeDirectory):
        if path.exists():
            found = decode_endpoint(path.read_bytes())
            return None if found is None or found.token == endpoint.token else found
        own_dir(path.parent, named=RUNTIME_VARIABLE in os.environ)
        write_endpoint(path, endpoint)
        _log.warning("the endpoint file was missing, and is written again: %s", path)
    return None


def remove_endpoint(path: Path, endpoint: Endpoint) -> None:
    """Delete the endpoint file if it is this coordinator's; another one may have written its own meanwhile."""
    with contextlib.suppress(OSError):
        if path.read_bytes() == encode(endpoint):
            path.unlink()
