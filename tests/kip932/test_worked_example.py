"""KIP-932, "Examples with share-group state": what the core shows is the KIP's example, word for word."""

from __future__ import annotations

import pytest

from tests.kip932.worked_example import GOLDEN, Example
from tests.mistakes.mistake import Make
from tests.mistakes.worked_example import MISTAKES


def test_the_worked_example_equals_the_kips() -> None:
    assert Example().play(GOLDEN) == GOLDEN


def test_no_durable_record_in_kafkas_terms_is_acquired() -> None:
    said = [line for line in GOLDEN.splitlines() if line.startswith(("  update", "  older", "  durable"))]
    assert len(said) > 20
    assert not [line for line in said if "ACQUIRED" in line]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_found(mistake: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, LookupError, ValueError)):
        test_the_worked_example_equals_the_kips()
