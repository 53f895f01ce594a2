"""Plays a run of the service from its scenario to its end, and shows its trace."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from tests.simulation.faults import few_members_kept
from tests.simulation.service import ServiceRun
from tests.simulation.service_process import simulated_time
from tests.simulation.service_scenario import ServiceScenario
from tests.simulation.simulated_world import BrokenPromise


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The coordinator's log says what is wrong; here that is most of the time."""
    logger = logging.getLogger("coordinator")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def play(scenario: ServiceScenario) -> ServiceRun:
    """The whole run, from a scenario."""
    run = ServiceRun(scenario)
    finish(run)
    return run


def finish(run: ServiceRun) -> None:
    """Play it. BrokenPromise, with the scenario and the end of the trace, when something is not as promised."""
    with contextlib.ExitStack() as patched:
        patched.enter_context(quiet())
        if run.scenario.faults.real_service:
            patched.enter_context(simulated_time(run.world))
        if run.scenario.faults.rests:
            patched.enter_context(few_members_kept())
        try:
            run.play()
        except BrokenPromise as broken:
            raise BrokenPromise(f"{broken}\n{run.scenario}\n{trace(run, 40)}") from broken


def trace(run: ServiceRun, most: int | None = None) -> str:
    """The trace of the run, oldest line first."""
    lines = run.world.trace if most is None else run.world.trace[-most:]
    return "\n".join(f"{at_ms / 1000:10.3f}  {who:<16} {what}" for at_ms, who, what in lines)
