"""The metrics of a coordinator on demand are optional: without them it works; a standalone one does not start."""

import contextlib
import importlib
import logging
import sys
import urllib.request

import pytest

from coordinator.config.resolved import CoordinatorConfig
from coordinator.protocol.errors import MetricsNotAvailable
from coordinator.service.coordinator import _metrics_of
from coordinator.service.metrics import endpoint
from tests.support.ports import free_ports

PORT = "share.coordinator.metrics.port"


def config(port):
    return CoordinatorConfig.parse({PORT: str(port)})


@pytest.fixture
def taken():
    """The metrics of another coordinator on demand of this host."""
    with contextlib.closing(_metrics_of(config(free_ports(1)[0]), is_optional=True)) as first:
        yield first


@pytest.fixture
def without_package(monkeypatch):
    """As if prometheus-client were not installed."""
    monkeypatch.delitem(sys.modules, endpoint.__name__)
    for name in [name for name in sys.modules if name.partition(".")[0] == "prometheus_client"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError):
        importlib.import_module(endpoint.__name__)


def test_a_coordinator_on_demand_is_scraped_at_its_queries_port(taken):
    with urllib.request.urlopen(f"http://127.0.0.1:{taken.port}/metrics", timeout=60) as answer:
        assert "share_coordinator_write_latency_seconds" in answer.read().decode()


def test_an_on_demand_coordinator_with_a_taken_metrics_port_warns_and_runs(taken, caplog):
    with caplog.at_level(logging.WARNING):
        assert _metrics_of(config(taken.port), is_optional=True) is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert str(taken.port) in line and PORT in line
    with pytest.raises(MetricsNotAvailable):
        _metrics_of(config(taken.port), is_optional=False)


def test_without_prometheus_client_a_coordinator_warns_with_the_install_command(without_package, caplog):
    with caplog.at_level(logging.WARNING):
        assert _metrics_of(config(9395), is_optional=True) is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert "pip install 'sharegroup[metrics]'" in line
    with pytest.raises(MetricsNotAvailable, match="prometheus-client is missing"):
        _metrics_of(config(9395), is_optional=False)
