"""The docs as a site (make docs): every page is found, and every link leads somewhere."""

import os
import subprocess
import sys

import yaml

from tests.support.imports import ROOT


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
