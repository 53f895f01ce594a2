"""The pictures of the docs are those that tools/draw_pictures.py draws, and can be read."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from xml.etree import ElementTree

import pytest

from coordinator.core import isolation, plan_state, record_state
from coordinator.core.isolation import Stage
from coordinator.core.plan_state import PlanState
from coordinator.core.record_state import Event, RecordState
from tests.support.imports import ROOT


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_pictures", ROOT / "tools" / "draw_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    sys.modules["draw_pictures"] = tool
    spec.loader.exec_module(tool)
    return tool


TOOL = load_tool()
PICTURES = TOOL.render()
# Drawn from a real run, by tools/draw_screens.py.
SCREENS = [f"docs/pictures/screen-{name}.svg" for name in ("describe", "doctor", "in-flight", "top")]
# Made by tests/browser/test_web.py, with WEB_PICTURES=docs/pictures.
PAGES = sorted(path.relative_to(ROOT) for path in (ROOT / "docs" / "pictures").glob("web-*.png"))
TEXT = "{http://www.w3.org/2000/svg}text"


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(TEXT)]


@pytest.mark.parametrize("name", PICTURES)
def test_the_committed_picture_is_not_stale(name):
    committed = (ROOT / name).read_text(encoding="utf-8")
    assert committed == PICTURES[name], f"{name} is stale: run python tools/draw_pictures.py"


def test_every_committed_picture_is_drawn_by_the_tool():
    committed = {str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "pictures").iterdir()}
    assert committed == {*PICTURES, *SCREENS, *map(str, PAGES)}


@pytest.mark.parametrize("name", PAGES)
def test_a_picture_of_the_page_is_small_and_shown(name):
    assert (ROOT / name).stat().st_size < 150_000
    assert f"](pictures/{name.name})" in (ROOT / "docs" / "web.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_a_picture_that_needs_nothing_from_elsewhere(name):
    drawn = (ROOT / name).read_text(encoding="utf-8")
    assert "url(http" not in drawn
    assert any("$" in text for text in texts(drawn)), "it names its command"


TABLES = {
    "states": (record_state.TRANSITIONS, RecordState),
    "plan": (plan_state.TRANSITIONS, PlanState),
    "isolation": (isolation.TRANSITIONS, Stage),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_state_diagram_shows_every_move_of_its_table(name):
    transitions, states = TABLES[name]
    shown = ", ".join(texts(PICTURES[f"docs/pictures/{name}.svg"]))
    for event in {event for _, event in transitions}:
        assert event.value in shown
    for state in states:
        assert state.name in shown


def test_a_move_that_the_diagram_does_not_show_fails(monkeypatch):
    monkeypatch.setitem(record_state.TRANSITIONS, (RecordState.ARCHIVED, Event.ACQUIRE), RecordState.ACQUIRED)
    with pytest.raises(KeyError):
        TOOL.RECORD.draw()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_a_background_of_its_own(name):
    background = ElementTree.fromstring(PICTURES[name]).find("{http://www.w3.org/2000/svg}rect")
    assert background is not None
    assert background.get("fill") == TOOL.PAPER


def test_a_note_is_wide_enough_for_its_lines():
    for step in (*TOOL.BATCH, *TOOL.CRASH):
        if isinstance(step, TOOL.Note):
            assert max(map(len, step.lines)) <= (21 if step.lane == "executors" else 28)
