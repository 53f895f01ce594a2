"""All brokers stand still between any two steps of any process, and between the steps of an append: neither records nor
state can be read or written, and no question is answered. Then they go on, also with what they were asked meanwhile."""

from __future__ import annotations

from tests.simulation.broker import Broker
from tests.simulation.simulated_store import StateLog
from tests.simulation.simulated_world import World


class StoppedBrokers:
    """``times``: how often the brokers have stood still."""

    def __init__(self, world: World, broker: Broker, log: StateLog) -> None:
        self.world, self.broker, self.log = world, broker, log
        self.times = 0
        self._rate, self._session_ms = 0.0, 0

    @property
    def are_stopped(self) -> bool:
        return self.broker.stopped_until_ms > self.world.now_ms

    def stop_from_now_on(self, rate: float, session_ms: int) -> None:
        """Lets them stop before each step with the probability ``rate``, for half a session to three."""
        self._rate, self._session_ms = rate, session_ms
        self.world.between_steps = self.log.before_a_step = self._stop_now_and_then

    def go_on(self) -> None:
        """Ends their stop, and lets them stop no more."""
        self._rate, self.broker.stopped_until_ms, self.log.stopped_until_ms = 0.0, 0, 0

    def _stop_now_and_then(self) -> None:
        if self.are_stopped or not self._rate or not self.world.happens(self._rate):
            return
        stopped_ms = self.world.between(self._session_ms // 2, 3 * self._session_ms)
        self.world.note("brokers", f"stand still for {stopped_ms} ms")
        self.broker.stopped_until_ms = self.log.stopped_until_ms = self.world.now_ms + stopped_ms
        self.times += 1
