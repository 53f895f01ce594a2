"""docs/do/share-consumer.md has the numbers of tests/same_program/traces.md."""

from __future__ import annotations

from tests.same_program.compare import GOLDEN as TRACES
from tests.same_program.compare import PAGE, golden, page, rows


def test_the_page_has_the_numbers_of_the_traces() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(rows()), "run: python -m tests.same_program"
    assert TRACES.read_text(encoding="utf-8") == golden(rows())
