"""The metrics of one coordinator process, and the HTTP endpoint that shows them (share.coordinator.metrics.port)."""

from __future__ import annotations

import logging

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.process_collector import ProcessCollector

from coordinator.protocol.addresses import show_address
from coordinator.protocol.errors import MetricsNotAvailable
from coordinator.service.metrics.counters import Counters
from coordinator.service.metrics.group_gauges import EndsOf, GroupGauges
from coordinator.service.runtime.event_loop import PartitionedRuntime

_log = logging.getLogger(__name__)


class Metrics:
    """All metrics of a coordinator, shown to Prometheus over HTTP from the construction on."""

    def __init__(self, host: str, port: int) -> None:
        """Listens on ``host:port``; 0: any free port. Raises MetricsNotAvailable if the address can't be bound."""
        self._registry = CollectorRegistry()
        self.counters = Counters(self._registry)
        ProcessCollector(registry=self._registry)
        try:
            self._server, _ = start_http_server(port, addr=host, registry=self._registry)
        except OSError as error:
            raise MetricsNotAvailable(port=port, reason=str(error)) from error
        self.port: int = self._server.server_port
        _log.info("metrics are shown at http://%s/metrics", show_address(host, self.port))

    def measure(self, runtime: PartitionedRuntime, ends_of: EndsOf) -> None:
        self._registry.register(GroupGauges(runtime, ends_of))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
