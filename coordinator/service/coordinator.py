"""A coordinator, built from its parts from top to bottom. on_demand.py and standalone.py are the processes in which one
runs.

A part is made once all that it needs exists, with two exceptions. The server listens first, because the state names its
address; it refuses requests until all parts serve. The runtime reports changed groups to the dispatcher of dead
letters, which is made after it."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coordinator.config.resolved import CoordinatorConfig, ServerConfig
from coordinator.protocol.addresses import show_address
from coordinator.protocol.admin_messages import GroupsListed, ListGroups
from coordinator.protocol.errors import MetricsNotAvailable
from coordinator.protocol.messages import DescribeGroup, GroupDescription
from coordinator.protocol.package_version import package_version
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.rights import Tokens
from coordinator.protocol.wire import LaunchSettings
from coordinator.service.brokers.broker_watch import BrokerWatch
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.dead_letters.dispatcher import DeadLetterDispatcher
from coordinator.service.dead_letters.topic_look import EVERY_MS, DeadLetterTopicLook
from coordinator.service.handlers.admin_requests import AdminService
from coordinator.service.handlers.coordinator_service import CoordinatorService
from coordinator.service.handlers.handler_table import Handlers
from coordinator.service.open_state import Runtimes, open_state
from coordinator.service.process.repeated_look import RepeatedLook
from coordinator.service.requests.audit import audit_to
from coordinator.service.requests.requests import Requests
from coordinator.service.runtime.group_limits import GroupLimits
from coordinator.service.runtime.news import News
from coordinator.service.server.flight_server import FlightServer
from coordinator.service.server.listener import LOOPBACK, Listener

if TYPE_CHECKING:
    from coordinator.service.metrics.endpoint import Metrics

THREADS_TURN_S = 0.001
"""`sys.setswitchinterval`. Below Python's 5 ms, because one request crosses several threads and waits at each for a
thread that computes."""

TOPICS_LOOK_CLOSE_S = 1.0
"""Closing waits this many seconds for a look at the topics of groups, and for one at dead letter topics."""

_log = logging.getLogger(__name__)


class Coordinator:
    """A coordinator with all its parts started; :meth:`close` ends them in order."""

    def __init__(
        self,
        settings: LaunchSettings,
        tokens: str | Tokens,
        *,
        listener: Listener | None = None,
        limits: ServerConfig | None = None,
        once: LogOnce | None = None,
        greet: Callable[[str], None] = lambda peer: None,
        step_down: Callable[[str], None] | None = None,
    ) -> None:
        """``listener``: a standalone coordinator's. ``greet``, ``step_down``: see :class:`FlightServer`,
        :class:`Requests`."""
        set_up_python()
        limits = limits or ServerConfig.parse()
        config = self.config = CoordinatorConfig.parse(settings.configs)
        self.audit_file = config.share_coordinator_audit_file or _audit_file(settings)
        news = News()
        with contextlib.ExitStack() as started:  # ends the started parts if a later part does not start
            self._end_audit = audit_to(self.audit_file)
            started.callback(self._end_audit)
            self.cluster = KafkaCluster(
                settings.bootstrap_servers,
                settings.kafka_config,
                config.share_coordinator_broker_timeout_ms,
                limits.allowed_topics,
            )
            self.watch = BrokerWatch(
                self.cluster,
                metadata_refresh_ms=config.share_coordinator_metadata_refresh_ms,
                watermark_refresh_ms=config.share_coordinator_watermark_refresh_ms,
                on_ends=news.notify,
            )
            started.callback(self.watch.close)
            once = once or LogOnce(_log)
            self.requests = Requests(
                version=package_version(),
                limits=limits,
                open_keys=tokens.open_keys(limits.allowed_topics) if isinstance(tokens, Tokens) else (),
                once=once,
                step_down=step_down,
            )
            self.server = FlightServer(self.requests, tokens, listener=listener or Listener(), once=once, greet=greet)
            started.callback(self.server.shutdown)
            where = self.server.address if listener else show_address(socket.gethostname(), self.server.port)
            self._named = f"{where}  ({os.getpid()})"
            self._metrics = _metrics_of(config, is_optional=listener is None)
            measures = None if self._metrics is None else self._metrics.counters
            runtimes = Runtimes(config=config, on_change=news.notify, measures=measures, bounds=limits.group_bounds)
            endpoint = self.server.address if listener else ""
            bound = show_address(listener.host, self.server.port) if listener else ""
            self.state = open_state(settings, self.cluster, runtimes, listener=bound, endpoint=endpoint)
            self.runtime = self.state.runtime
            self.dispatcher = DeadLetterDispatcher(self.runtime, self.cluster, settings.kafka_config, self.watch.doubts)
            news.listen(self.dispatcher.notify)
            group_limits = GroupLimits(limits, lambda: len(self.runtime.served_groups()))
            self.service = CoordinatorService(self.runtime, self.watch, news, group_limits)
            self.admin = AdminService(self.runtime, self.cluster, self.state, self.watch.doubts, group_limits)
            every_ms, look = config.share_coordinator_metadata_refresh_ms, self.service.look_at_groups
            self._topics_look = RepeatedLook(look, "the topics and ttls of groups", interval_ms=every_ms)
            self._queues = DeadLetterTopicLook(self.runtime, self.cluster)
            self._queues_look = RepeatedLook(self._queues.look, "the dead letter topics", interval_ms=EVERY_MS)
            if self._metrics is not None:
                self._metrics.measure(self.runtime, self.watch.known_ends)
            self.hosts = self.state.hosts(self.requests.answer)
            handlers = {**self.service.handlers, **self.admin.handlers}
            handlers |= {DescribeGroup: self._describe, ListGroups: self._list}
            handle = Handlers(handlers, group_limits.check_configs).handle
            started.pop_all()
        self.requests.begin(handle, self.hosts, contextlib.nullcontext if measures is None else measures.handling)

    def close(self) -> None:
        """Finish the running requests, then release the state to its next owner."""
        self.requests.end()
        if self.hosts is not None:
            self.hosts.stop_asking()  # otherwise the server's end would wait for other hosts' answers
        self.server.shutdown()
        self.dispatcher.close()
        self._topics_look.close(TOPICS_LOOK_CLOSE_S)
        self._queues_look.close(TOPICS_LOOK_CLOSE_S)
        if self._metrics is not None:
            self._metrics.close()
        if self.hosts is not None:
            self.hosts.leave()
        self.state.close()
        if self.hosts is not None:
            self.hosts.close()
        self.watch.close()
        self._end_audit()

    # --- what is told of the process that serves a group

    def _describe(self, request: DescribeGroup) -> GroupDescription:
        """The description, which names this process as the group's coordinator if the group is served here, and says
        whether the group's dead letter topic is missing. If the owner on another host is silent, the state is UNKNOWN:
        nobody knows which members live."""
        reply: GroupDescription = self.service.handle(request)
        if reply.group_id in self._queues.missing:
            reply = msgspec.structs.replace(reply, dead_letter_topic_missing=True)
        if self._is_unknown(reply.group_id):
            return msgspec.structs.replace(reply, state="UNKNOWN")
        is_served = self.runtime.holds(reply.group_id)
        return msgspec.structs.replace(reply, coordinator=self._named if is_served else "")

    def _list(self, request: ListGroups) -> GroupsListed:
        reply: GroupsListed = self.admin.handle(request)
        unknown = {g.group_id for g in reply.groups if self._is_unknown(g.group_id)}
        groups = (msgspec.structs.replace(g, state="UNKNOWN") if g.group_id in unknown else g for g in reply.groups)
        return msgspec.structs.replace(reply, groups=tuple(groups))

    def _is_unknown(self, group_id: str) -> bool:
        return self.hosts is not None and self.hosts.is_unknown(group_id)


def _metrics_of(config: CoordinatorConfig, *, is_optional: bool) -> Metrics | None:
    """The metrics, which listen already. None: share.coordinator.metrics.port is 0, or the metrics can't be shown and
    ``is_optional`` is set: another coordinator on demand of this host may use the same port. Raises MetricsNotAvailable
    if they can't be shown."""
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
    """The path of the audit log of a coordinator on demand, beside its log; empty for a standalone coordinator."""
    log = Path(settings.log_path)
    return str(log.with_name(f"audit-{log.name.removeprefix('coordinator-')}")) if settings.log_path else ""


def set_up_python() -> None:
    """Let Python's garbage collector run rarely (the state is long-lived and has no cycles), and let Python's threads
    take turns often."""
    gc.set_threshold(100_000, 50, 100)
    sys.setswitchinterval(THREADS_TURN_S)
