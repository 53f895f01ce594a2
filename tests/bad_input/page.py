"""docs/run/bad-input.md: the catalogue's rows with the sentences that the code gives. The page is the golden file."""

from __future__ import annotations

import html
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sharegroup.demo.embedded_broker import EmbeddedBroker
from tests.bad_input.catalogue import SECTIONS
from tests.bad_input.row import Place
from tests.support.imports import ROOT

PAGE = ROOT / "docs" / "run" / "bad-input.md"
HEAD = """# Bad input

The errors for {count} wrong inputs, all of which people have tried. `python -m tests.bad_input` writes this page, and
tests hold it; [errors](errors.md) has the remedy for each named error.

A wrong option is refused at `load()`, before the query starts. Nothing is lost: a refusal comes before anything counts.
"""
_ROW = re.compile(r"^\| <code>(.*?)</code> \| (.*) \|$", re.MULTILINE)


@contextmanager
def place(bootstrap: str) -> Iterator[Place]:
    """A place with an empty folder."""
    with tempfile.TemporaryDirectory(prefix="sg-bad-") as folder:
        yield Place(bootstrap, Path(folder))


def cell(text: str) -> str:
    """The text as it is in a table."""
    escaped = html.escape(text, quote=False).replace("|", "&#124;").replace("*", "&#42;").replace("_", "&#95;")
    return escaped.replace("[", "&#91;").replace("`", "&#96;").encode("ascii", "backslashreplace").decode()


def written_page() -> str:
    """The page as the code says it now."""
    count = sum(len(rows) for rows in SECTIONS.values())
    lines = [HEAD.format(count=count)]
    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        for title, rows in SECTIONS.items():
            lines += [f"## {title}", "", "| input | the error |", "| --- | --- |"]
            for row in rows:
                with place(broker.bootstrap_servers) as here:
                    lines.append(f"| <code>{cell(row.written)}</code> | {cell(row.sentence(here))} |")
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def told() -> dict[str, str]:
    """The sentences of the page, by input; both as cells."""
    return dict(_ROW.findall(PAGE.read_text("utf-8")))
