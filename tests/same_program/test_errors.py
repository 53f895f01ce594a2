"""tests/same_program/errors.py, on both sides."""

from __future__ import annotations

import pytest

from tests.same_program.compare import Program, check
from tests.same_program.errors import PROGRAMS
from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.slow, pytest.mark.broker]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_program_prints_the_same_on_both_sides(program: Program, kafka: KafkaBroker) -> None:
    check(program, kafka)
