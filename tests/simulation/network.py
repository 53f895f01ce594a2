"""Requests and replies on their way: lost, doubled, late, and so in another order than they were sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tests.simulation.simulated_world import Pending, World

NO_ANSWER = object()
"""Returned to a caller that waits no longer: the request may have been applied."""


@dataclass
class Reply:
    """The way back to a caller. ``request_id``: the same for all tries of a request; empty: none was given."""

    network: Network
    answer: Pending
    request_id: str = ""

    def __call__(self, value: Any) -> None:
        self.network.reply(self.answer, value)

    def is_gone(self) -> bool:
        """Whether the caller waits no longer."""
        return self.answer.is_set


class Server(Protocol):
    """The interface of a process that requests are sent to."""

    alive: bool

    def receive(self, request: Any, reply: Reply) -> None:
        """Answer in one's own time, or never."""


@dataclass
class Network:
    """``lost``, ``doubled``, ``late``: how often that happens to a message."""

    world: World
    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0

    def ask(self, server: Server, request: Any, timeout_ms: int, request_id: str = "") -> Pending:
        """The answer, or NO_ANSWER after ``timeout_ms``."""
        answer = Pending()
        for copy in range(2 if self.world.happens(self.doubled) else 1):
            if not self.world.happens(self.lost):
                late = max(self.late, 0.3) if copy else self.late
                self.world.after(self._delay_ms(late), lambda: self._arrive(server, request, answer, request_id))
        self.world.after(timeout_ms, lambda: answer.set(NO_ANSWER))
        return answer

    def heal(self) -> None:
        self.lost = self.doubled = self.late = 0.0

    def _arrive(self, server: Server, request: Any, answer: Pending, request_id: str) -> None:
        if server.alive:
            server.receive(request, Reply(self, answer, request_id))
        else:
            answer.set(NO_ANSWER)  # the connection is refused

    def reply(self, answer: Pending, value: Any) -> None:
        if not self.world.happens(self.lost):
            self.world.after(self._delay_ms(self.late), lambda: answer.set(value))

    def _delay_ms(self, late: float) -> int:
        if self.world.happens(late):
            return self.world.between(50, 20_000)
        return self.world.between(1, 20)
