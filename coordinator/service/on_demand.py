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
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from coordinator.config.resolved import CoordinatorConfig, ServerConfig
from coordinator.protocol.errors import CoordinatorNotAvailable, UnsafeDirectory
from coordinator.protocol.format_versions import PROTOCOL
from coordinator.protocol.messages import Message, Request
from coordinator.protocol.secret_files import RUNTIME_VARIABLE, own_dir
from coordinator.protocol.wire import Endpoint, LaunchSettings, encode
from coordinator.service.brokers.broker_watch import BrokerWatch
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.coordinator_service import CoordinatorService
from coordinator.service.dead_letters.dispatcher import DeadLetterDispatcher
from coordinator.service.open_state import KafkaState, OnChange, SqliteState
from coordinator.service.process.clock import now_s
from coordinator.service.process.rate_limited_log import RateLimitedLog
from coordinator.service.runtime.group_limits import GroupLimits
from coordinator.service.server.flight_server import FlightServer
from coordinator.service.server.listener import LOOPBACK, Listener

LONGEST_LOOK_S = 1.0

_log = logging.getLogger(__name__)


def package_version() -> str:
    """The version of the installed package; empty in a bare checkout."""
    try:
        return metadata.version("sharegroup")
    except metadata.PackageNotFoundError:
        return ""


def log_to(path: str) -> None:
    """Write the log to a file that only the user can read, one line an event."""
    handler = logging.FileHandler(path, encoding="utf-8")
    os.chmod(path, 0o600)
    handler.setFormatter(logging.Formatter(f"%(asctime)s {os.getpid()} %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)


def open_state(
    settings: LaunchSettings, config: CoordinatorConfig, cluster: KafkaCluster, on_change: OnChange, advertised: str
) -> SqliteState | KafkaState:
    """The groups' state as ``share.state.store`` says, owned by this process. ``advertised``: the host:port of one of a
    fleet, empty for a coordinator on demand. Raises the named errors of the stores."""
    kind, _, path = settings.state_store.partition(":")
    if kind == "sqlite":
        return SqliteState(path, config, on_change)
    place = "" if advertised else installation_id(Path(settings.endpoint_path).parent)
    return KafkaState(cluster, settings.kafka_config, config, on_change, installation_id=place, advertised=advertised)


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
        token: str,
        *,
        in_fleet: bool = False,
        listener: Listener | None = None,
        limits: ServerConfig | None = None,
        rate_limited: RateLimitedLog | None = None,
    ) -> None:
        spare_the_collector()
        limits = limits or ServerConfig.parse()
        self.config = CoordinatorConfig.parse(settings.configs)
        cluster = self.cluster = KafkaCluster(
            settings.bootstrap_servers, settings.kafka_config, self.config.share_coordinator_broker_timeout_ms
        )
        self.watch = BrokerWatch(
            cluster,
            metadata_refresh_ms=self.config.share_coordinator_metadata_refresh_ms,
            watermark_refresh_ms=self.config.share_coordinator_watermark_refresh_ms,
            on_ends=lambda: self.service.tell_news(),
        )
        self._limits = limits
        # The server starts first, since the fleet needs its address; requests that come before the service are refused.
        self.server = FlightServer(
            self._handle,
            token,
            version=package_version(),
            listener=listener or Listener(),
            limits=limits,
            rate_limited=rate_limited,
        )
        self.server.ready = False
        try:
            self._serve(settings, cluster, in_fleet=in_fleet)
        except BaseException:
            self.server.shutdown()
            self.watch.close()
            raise
        self.server.ready = True

    def close(self) -> None:
        """Finish the running requests, then release the state to its next owner."""
        self.server.ready = False
        self.server.shutdown()
        self.dispatcher.close()
        self.state.close()
        self.watch.close()

    def _serve(self, settings: LaunchSettings, cluster: KafkaCluster, *, in_fleet: bool) -> None:
        advertised = self.server.address if in_fleet else ""
        self.dispatcher = DeadLetterDispatcher(cluster, settings.kafka_config)
        self.state = open_state(settings, self.config, cluster, self._tell, advertised)
        self.event_loop = self.state.event_loop
        self.dispatcher.open(self.event_loop)
        group_limits = GroupLimits(self._limits, lambda: self.event_loop.group_count)
        if isinstance(self.state, KafkaState) and in_fleet:
            self.server.find = self.state.find
        self.service = CoordinatorService(self.event_loop, self.watch, group_limits)

    def _tell(self, groups: set[str]) -> None:
        self.dispatcher.tell(groups)
        if self.server.ready:  # before, nobody waits for news
            self.service.tell_news(groups)

    def _handle(self, request: Request[Any]) -> Message:
        if not self.server.ready:
            raise CoordinatorNotAvailable(group_id=getattr(request, "group_id", ""), reason="it is not ready")
        return self.service.handle(request)

    def wait_until_idle(self, told: threading.Event, on_look: Callable[[], None] = lambda: None) -> str:
        """Block until the coordinator may leave, and return the reason: it was told to; or no request came for the idle
        timeout, no group holds anything, and no dead letter waits that can still be written; or no request came and no
        broker answered for the idle timeout and the outage timeout together: then the coordinator can do nothing for
        its groups, and the store has all its state."""
        timeout_s = self.config.share_coordinator_idle_timeout_ms / 1000
        forsaken_s = timeout_s + self.config.share_broker_outage_timeout_ms / 1000
        rested_s, look_s = 0.0, min(LONGEST_LOOK_S, timeout_s / 10)
        looked_s = now_s()
        while not told.wait(look_s):
            on_look()
            rests = self.event_loop.may_rest() and self.dispatcher.may_rest()
            late_s, looked_s = now_s() - looked_s - look_s, now_s()
            if late_s > LONGEST_LOOK_S:  # the process was stopped: requests of that time are not received yet
                rested_s = 0.0
            rested_s = rested_s + look_s if rests else 0.0
            if min(rested_s, self.server.idle_s) >= timeout_s:
                return "idle"
            if min(self.server.idle_s, self.cluster.away_s) >= forsaken_s:
                return f"nobody has called, and no broker answered, for {forsaken_s:.0f} s"
        return "told to"


def spare_the_collector() -> None:
    """Let Python's garbage collector run rate_limited: the state is long-lived and has no cycles."""
    gc.set_threshold(100_000, 50, 100)


def told_by_signal() -> threading.Event:
    """An event that SIGTERM and SIGINT set from now on."""
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    return told


def run(settings: LaunchSettings) -> Iterator[Endpoint]:
    """Take the state over, serve, yield the endpoint once, and continue until the coordinator is idle.

    Raises:
        ShareGroupError: a named error of the store or of Kafka.
    """
    coordinator = Coordinator(settings, token := secrets.token_urlsafe(32))
    told = told_by_signal()

    def step_down(reason: str) -> None:
        _log.warning("this coordinator is asked to leave: %s", reason)
        told.set()

    coordinator.server.step_down = step_down
    endpoint = Endpoint(
        host=LOOPBACK,
        port=coordinator.server.port,
        token=token,
        pid=os.getpid(),
        protocol=PROTOCOL,
        version=package_version(),
    )
    try:
        write_endpoint(Path(settings.endpoint_path), endpoint)
        _log.info("serving: %r store=%s brokers=%s", endpoint, settings.state_store, settings.bootstrap_servers)
        yield endpoint
        _log.info("leaving: %s", coordinator.wait_until_idle(told, lambda: keep_endpoint(settings, endpoint)))
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


def keep_endpoint(settings: LaunchSettings, endpoint: Endpoint) -> None:
    """Write the endpoint file again if it is missing: a cleaner deleted it, or its directory went with the user's last
    login session. Without it no client finds this coordinator, or can start another one, since this one owns the
    store."""
    path = Path(settings.endpoint_path)
    with contextlib.suppress(OSError, UnsafeDirectory):
        if not path.exists():
            own_dir(path.parent, named=RUNTIME_VARIABLE in os.environ)
            write_endpoint(path, endpoint)
            _log.warning("the endpoint file was missing, and is written again: %s", path)


def remove_endpoint(path: Path, endpoint: Endpoint) -> None:
    """Delete the endpoint file if it is this coordinator's; another one may have written its own meanwhile."""
    with contextlib.suppress(OSError):
        if path.read_bytes() == encode(endpoint):
            path.unlink()
