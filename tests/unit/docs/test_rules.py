"""Each ◆ rule of the protocol is switched off by a mistake, and a proof finds the mistake: a unit test, the explorer,
the simulator or the model. A rule without a mistake, and a mistake without a proof or a rule, are failures."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.protocol.errors import ShareGroupError
from tests.mistakes import rules
from tests.mistakes.catalogue import MISTAKES
from tests.mistakes.long_searches import LONG, is_found_by_a_short_search, searches
from tests.mistakes.mistake import Make, Patch

FOUND = (AssertionError, ShareGroupError, pytest.fail.Exception)
"""Errors by which a mistake is found: a promise is not kept, an error comes that should not, or none comes that
should."""
PAIRS = [(mistake.make, test) for mistake in MISTAKES.values() for test in mistake.unit_tests]
PROOFS = Path(__file__).parents[3] / "docs/trust/proofs.md"
ALL_RULES = {text for name, text in vars(rules).items() if name.isupper() and isinstance(text, str)}


def promise_of(test: str) -> Callable[[], None]:
    """The function of ``core/test_plans::test_name``, or of ``…::TestContract::test_name``. These tests take no
    fixtures."""
    module, *names = test.split("::")
    found: Any = importlib.import_module(f"tests.unit.{module.replace('/', '.')}")
    for name in names:
        found = getattr(found() if isinstance(found, type) else found, name)
    return found  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "test"), PAIRS, ids=[f"{m.__name__}-{t.partition('::test_')[2]}" for m, t in PAIRS]
)
def test_the_mistake_is_found(mistake: Make, test: str, monkeypatch: Patch) -> None:
    promise = promise_of(test)
    promise()
    mistake(monkeypatch)
    with pytest.raises(FOUND):
        promise()


def test_every_mistake_breaks_a_rule_and_is_found_by_a_proof() -> None:
    for mistake in MISTAKES.values():
        assert mistake.breaks and set(mistake.breaks) <= ALL_RULES
        assert mistake.is_found_by_a_proof, mistake.make


def test_every_mistake_has_a_search_in_make_test_all() -> None:
    for mistake in MISTAKES.values():
        assert is_found_by_a_short_search(mistake), mistake.make


def test_every_long_search_is_in_the_catalogue() -> None:
    assert {(harness, name) for harness, names in LONG.items() for name in names} <= {
        search for mistake in MISTAKES.values() for search in searches(mistake)
    }


def test_the_page_of_proofs_counts_the_mistakes() -> None:
    found = {
        "unit tests find": lambda mistake: mistake.unit_tests,
        "the explorer": lambda mistake: mistake.explorer,
        "the simulator": lambda mistake: mistake.simulator,
        "the model": lambda mistake: mistake.model is not None,
        "a job of many runs": lambda mistake: mistake.year,
    }
    counts = ", ".join(f"{who} {sum(bool(finds(m)) for m in MISTAKES.values())}" for who, finds in found.items())
    text = f"{len(MISTAKES)} mistakes, of which {counts}".replace(", a job", ", and a job")
    assert text in " ".join(PROOFS.read_text(encoding="utf-8").split())


def test_every_rule_is_broken_by_a_mistake() -> None:
    assert {rule for mistake in MISTAKES.values() for rule in mistake.breaks} == ALL_RULES
