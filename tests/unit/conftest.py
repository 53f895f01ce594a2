"""Fixtures of the unit tests."""

import pytest

from tests.support.running_service import Running


@pytest.fixture
def running(cluster, tmp_path):
    """The service on the module's own `cluster`, with its state in a file."""
    running = Running(tmp_path / "state.db", cluster)
    yield running
    running.close()
