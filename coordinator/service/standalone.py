"""The process of a standalone coordinator, which serves until a signal ends it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from coordinator.kafka.broker_probe import listener_of_another_kind
from coordinator.protocol.package_version import package_version
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.service.coordinator import Coordinator
from coordinator.service.process.end_signals import set_by_signal
from coordinator.service.process.log_format import log_lines
from coordinator.service.process.stderr_capture import StderrCapture
from coordinator.service.server.connection_limits import UnauthenticatedConnections, raise_descriptor_limit
from coordinator.service.standalone_config import Standalone

_log = logging.getLogger(__name__)


Beside = Callable[[Standalone, str], contextlib.AbstractContextManager[object]]
"""A function that a process runs beside its coordinator, which serves at this address."""


def serve(standalone: Standalone, log_format: str, beside: Beside) -> None:
    """Serve until SIGTERM or SIGINT. ``beside``: runs while the coordinator serves. Raises ShareGroupError if the
    token, the listener, the store or Kafka does not let it start."""
    tokens, listener = standalone.tokens(), standalone.listener()
    settings = standalone.settings
    told = threading.Event()
    set_by_signal(told)
    raise_descriptor_limit()
    once = LogOnce(_log)
    native = StderrCapture(once)
    greeted: set[str] = set()
    with log_lines(native.stream, log_format), contextlib.closing(native):
        protocol = settings.kafka_config.get("security.protocol", "PLAINTEXT")
        if (error := listener_of_another_kind(settings.bootstrap_servers, protocol)) is not None:
            raise error
        coordinator = Coordinator(
            settings, tokens, listener=listener, limits=standalone.server, once=once, greet=greeted.add
        )
        try:
            connections = UnauthenticatedConnections(
                coordinator.server.port,
                once,
                greeted,
                max_connections=standalone.server.max_connections,
                patience_s=standalone.server.share_coordinator_authentication_timeout_ms / 1000,
            )
            _log.info(
                "the coordinator serves: %s tls=%s store=%s brokers=%s audit=%s version=%s",
                coordinator.server.address,
                "on" if listener.certificate else "off",
                settings.state_store,
                settings.bootstrap_servers,
                coordinator.audit_file or "this log",
                package_version(),
            )
            with beside(standalone, coordinator.server.address):
                told.wait()
            _log.info("the coordinator ends: it was told to")
            connections.close()
        finally:
            coordinator.close()
            _log.info("the coordinator has ended")
