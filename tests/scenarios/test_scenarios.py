"""The stories of docs/trust/protocol.md, and short ones of its rules, come out word for word as in their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.core.commands import reclaim_plan
from tests.scenarios.player import FILES, played


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_core_plays_each_scenario_file_as_written(path: Path) -> None:
    golden = path.read_text("utf-8")
    assert played(golden) == golden, "python -m tests.scenarios writes it anew; read the difference"


def test_the_files_are_numbered_from_1_on() -> None:
    assert [path.name[:2] for path in FILES] == [f"{number:02}" for number in range(1, len(FILES) + 1)]
    assert len(FILES) >= 13


def test_a_core_that_forgets_the_cut_shows_another_story(monkeypatch: pytest.MonkeyPatch) -> None:
    (poison,) = (path.read_text("utf-8") for path in FILES if "poison" in path.name)
    monkeypatch.setattr(reclaim_plan, "slice_size", lambda *a: None)
    assert played(poison) != poison


def test_a_step_that_the_player_does_not_know_is_named() -> None:
    with pytest.raises(ValueError, match="no step begins with 'explode'"):
        played("group\n\nexplode m1\n")
