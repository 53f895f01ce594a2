"""Walks every world that can be reached within a budget, the nearest first, and holds each to the guarantee.

There is no bound on the depth unless one is asked for: without mistakes to pay for, a world comes to its end. A world
that was met with at least the same budget left is not walked again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field

from tests.protocol.explored_world import Label, Steps, World
from tests.protocol.guarantee import Guarantee
from tests.protocol.host_steps import HostSteps
from tests.protocol.setting import Budget, Setting

Node = tuple[World, Budget]


@dataclass(kw_only=True)
class Walk:
    """One exploration: its bounds and its result."""

    setting: Setting
    budget: Budget
    depth: int | None = None
    most_states: int | None = None
    states: int = 0
    transitions: int = 0
    deepest: int = 0
    cpu_seconds: float = 0.0
    broken: str = ""
    trace: list[str] = field(default_factory=list)
    cut_off: bool = False
    """True if the depth or the number of states ended the walk before all was walked."""

    def __str__(self) -> str:
        depth = "any depth" if self.depth is None else f"depth {self.depth}"
        whole = "broken" if self.broken else "not all of it" if self.cut_off else "all of it"
        return (
            f"{self.setting}; {self.budget}; {depth}: {self.states} worlds, {self.transitions} transitions, "
            f"{self.deepest} deep, {whole}, {self.cpu_seconds:.1f} s of CPU"
        )

    def story(self) -> str:
        """The shortest way to what is wrong."""
        return "\n".join([f"{n:3}. {line}" for n, line in enumerate(self.trace, 1)] + [f"  => {self.broken}"])

    def run(self) -> Walk:
        """Until all is walked, or the guarantee is broken."""
        began = time.process_time()
        logging.disable(logging.CRITICAL)  # refused appends are no news here
        try:
            self._run()
        finally:
            logging.disable(logging.NOTSET)
            self.cpu_seconds = time.process_time() - began
        return self

    def _run(self) -> None:
        steps = HostSteps(self.setting) if self.setting.hosts else Steps(self.setting)
        guarantee = Guarantee(steps)
        first: Node = (steps.begin(), self.budget)
        met: dict[World, list[Budget]] = {first[0]: [self.budget]}
        came_from: dict[Node, tuple[Node, Label]] = {}
        waiting: deque[tuple[Node, int]] = deque([(first, 0)])
        self.states = 1
        while waiting:
            node, depth = waiting.popleft()
            self.deepest = max(self.deepest, depth)
            if depth == self.depth or (self.most_states is not None and self.states >= self.most_states):
                self.cut_off = True
                continue
            for label, world, budget in steps.of(*node):
                self.transitions += 1
                known = met.get(world)
                if known is None:
                    met[world] = [budget]
                    self.states += 1
                elif any(before.covers(budget) for before in known):
                    continue
                else:
                    known.append(budget)
                came_from[world, budget] = (node, label)
                if known is None and (broken := guarantee.broken(world)):
                    self.broken, self.trace = broken, _trace(came_from, (world, budget), guarantee)
                    return
                waiting.append(((world, budget), depth + 1))


def _trace(came_from: dict[Node, tuple[Node, Label]], node: Node, guarantee: Guarantee) -> list[str]:
    """The steps from the beginning to this world, and the outputs that the queries reach from there."""
    lines: list[str] = []
    at = node
    while at in came_from:
        at, label = came_from[at]
        lines.insert(0, str(label))
    return [*lines, "from here on nothing goes wrong any more", *guarantee.story(node[0])]
