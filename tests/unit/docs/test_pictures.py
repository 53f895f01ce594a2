"""The docs' diagrams are what the core's tables say, and each picture is used."""

from __future__ import annotations

import re

import pytest

from coordinator.core import record_state
from coordinator.core.record_state import Event, RecordState
from tests.support.imports import ROOT
from tools import generate_diagrams

PAGES = generate_diagrams.render()
# Drawn from a real run, by tools/draw_screens.py.
SCREENS = [f"screen-{name}.svg" for name in ("describe", "doctor", "in-flight", "top")]
# Made by tests/browser/test_web.py, with WEB_PICTURES=docs/pictures.
WEB = sorted(path.name for path in (ROOT / "docs" / "pictures").glob("web-*.png"))


@pytest.mark.parametrize("page", PAGES)
def test_the_diagrams_of_a_page_are_not_stale(page):
    committed = (ROOT / page).read_text(encoding="utf-8")
    assert committed == PAGES[page], f"{page} is stale: run python tools/generate_diagrams.py"


def test_a_new_move_is_in_the_diagram(monkeypatch):
    monkeypatch.setitem(record_state.TRANSITIONS, (RecordState.ARCHIVED, Event.ACQUIRE), RecordState.ACQUIRED)
    assert "    ARCHIVED --> ACQUIRED: acquire\n" in generate_diagrams.render()["docs/learn/concepts.md"]


def test_every_committed_picture_is_a_screen_or_a_page():
    assert {path.name for path in (ROOT / "docs" / "pictures").iterdir()} == {*SCREENS, *WEB}


def test_a_picture_of_the_page_is_small_and_shown():
    for name in WEB:
        assert (ROOT / "docs" / "pictures" / name).stat().st_size < 150_000
        assert f"](../pictures/{name})" in (ROOT / "docs" / "run" / "web.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_needs_nothing_from_elsewhere_and_names_its_command(name):
    drawn = (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8")
    assert "url(http" not in drawn
    assert re.search(r"<text[^>]*>[^<]*\$", drawn)
