"""Fixtures of the unit tests."""

import pytest


@pytest.fixture
def running(cluster, tmp_path):
    """The service on the module's own `cluster`, with its state in a file."""
    from tests.support.running_service import Running  # here, so that tests of the core load no service

    running = Running(tmp_path / "state.db", cluster)
    yield running
    running.close()
