"""tests/same_program/differences.py, on both sides."""

from __future__ import annotations

import pytest

from tests.same_program.compare import Program, check
from tests.same_program.differences import PROGRAMS
from tests.support.kafka_broker import KafkaBroker

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_program_differs_from_kafka_as_documented(program: Program, kafka: KafkaBroker) -> None:
    check(program, kafka)
