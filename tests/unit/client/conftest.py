"""Listeners have time for their answers, however busy the machine is."""

import pytest

from coordinator.kafka import broker_probe


@pytest.fixture(autouse=True)
def listeners_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of a silent listener sets LISTENER_S to less."""
    monkeypatch.setattr(broker_probe, "LISTENER_S", 30.0)
    monkeypatch.setattr(broker_probe, "LISTENERS_S", 60.0)
