"""Sinks that write nothing, and set group configs as they are opened, between any two steps of any process."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.protocol.messages import OpenSink
from tests.simulation.faults import configs_of_now
from tests.simulation.network import Network, Server
from tests.simulation.session import ANSWER_TIMEOUT_MS, GROUP


class OpenedSinks:
    """``rate``: how often one is opened before a step. ``opened``: how many there were."""

    def __init__(self, network: Network, find: Callable[[], Server | None], rate: float) -> None:
        self.network, self.find, self.rate = network, find, rate
        self.opened = 0

    def open_now_and_then(self) -> None:
        """Opens one, or none."""
        world = self.network.world
        coordinator = self.find() if world.happens(self.rate) else None
        if coordinator is not None:
            self.opened += 1
            request = OpenSink(group_id=GROUP, configs=configs_of_now(world.chance))
            self.network.ask(coordinator, request, ANSWER_TIMEOUT_MS)
