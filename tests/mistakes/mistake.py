"""One known mistake: what it patches, the rules that it breaks, and the proofs that find it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.protocol.setting import Budget, Setting

Patch = pytest.MonkeyPatch
Make = Callable[[Patch], None]

WITH_SINKS = 18
"""The seed from which runs with sinks begin: attempts soon disagree there."""


class SmallWorld(NamedTuple):
    """The world in which the explorer finds a mistake."""

    setting: Setting
    budget: Budget


class Seeds(NamedTuple):
    """The scenario of the simulator that finds a mistake, and the seed that found it: a search begins there."""

    scenario: str = ""
    first: int = 0


class Mistake(NamedTuple):
    """``breaks``: rules. ``unit_tests``: those that find the mistake, ``core/test_plans::test_name`` below tests/unit.
    ``model``: the seed of the model's walk that found it, where a search begins; ``year``: the job of
    tests/simulation/year.py that finds it."""

    make: Make
    breaks: tuple[str, ...]
    unit_tests: tuple[str, ...]
    explorer: tuple[SmallWorld, ...]
    simulator: tuple[Seeds, ...]
    model: int | None
    year: str

    @property
    def name(self) -> str:
        return self.make.__name__

    @property
    def is_found_by_a_proof(self) -> bool:
        return bool(self.unit_tests or self.explorer or self.simulator or self.model is not None or self.year)


REGISTERED: dict[str, Mistake] = {}


def mistake(
    *breaks: str,
    tests: tuple[str, ...] = (),
    explorer: tuple[SmallWorld, ...] = (),
    simulator: tuple[Seeds, ...] = (),
    model: int | None = None,
    year: str = "",
) -> Callable[[Make], Make]:
    """Registers a function as a mistake. ValueError for a name that is registered already."""

    def register(make: Make) -> Make:
        if make.__name__ in REGISTERED:
            raise ValueError(f"two mistakes are called {make.__name__}")
        REGISTERED[make.__name__] = Mistake(make, breaks, tests, explorer, simulator, model, year)
        return make

    return register
