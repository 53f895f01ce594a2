"""What programs write into the docs, and the docs as a site: pictures, diagrams, numbers, and every page is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import yaml

from coordinator.core import record_state
from coordinator.core.record_state import Event, RecordState
from tests.same_program.compare import GOLDEN as TRACES
from tests.same_program.compare import PAGE, golden, page, rows
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


def test_the_page_has_the_numbers_of_the_traces() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(rows()), "run: python -m tests.same_program"
    assert TRACES.read_text(encoding="utf-8") == golden(rows())


def build(folder):
    """Build the site strictly, so that a broken link is an error; the process."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_site_is_built_without_a_broken_link(tmp_path):
    built = build(tmp_path / "site")
    assert built.returncode == 0, built.stdout + built.stderr
    assert "sharegroup" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    pages = {path.parent.name for path in (tmp_path / "site").rglob("index.html")}
    assert pages >= {path.stem for path in (ROOT / "docs").rglob("*.md") if path.stem != "README"}


def pages_of(entry):
    """Yields the pages of an entry of the navigation, and of those below it."""
    if isinstance(entry, str):
        yield entry
    else:
        for below in entry.values() if isinstance(entry, dict) else entry:
            yield from pages_of(below)


def test_the_navigation_has_every_page_but_single_decisions():
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    decisions = {page for page in pages if page.startswith("adr/") and page != "adr/README.md"}
    nav = list(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert sorted(nav) == sorted(pages - decisions)
