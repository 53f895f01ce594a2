"""Each program on both sides: the traces are equal, or differ as documented."""

from __future__ import annotations

import pytest

from tests.same_program import outcomes
from tests.same_program.compare import MODULES, Program, check
from tests.support.kafka_broker import KafkaBroker

pytestmark = pytest.mark.broker

LONG = (outcomes.redelivery_to_the_limit,)
PROGRAMS = [
    pytest.param(
        program, id=program.__name__, marks=() if module is outcomes and program not in LONG else pytest.mark.slow
    )
    for module in MODULES
    for program in module.PROGRAMS
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_program_prints_the_same_on_both_sides(program: Program, kafka: KafkaBroker) -> None:
    check(program, kafka)
