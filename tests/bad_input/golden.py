"""The catalogue's sentences, as the code gives them: ``sentences.txt`` is the golden file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sharegroup.demo.embedded_broker import EmbeddedBroker
from tests.bad_input.catalogue import SECTIONS
from tests.bad_input.row import Place

GOLDEN = Path(__file__).with_name("sentences.txt")


@contextmanager
def place(bootstrap: str) -> Iterator[Place]:
    """A place with an empty folder."""
    with tempfile.TemporaryDirectory(prefix="sg-bad-") as folder:
        yield Place(bootstrap, Path(folder))


def line(text: str) -> str:
    """The text as it is in the golden file."""
    return text.encode("ascii", "backslashreplace").decode()


def sentences() -> dict[str, str]:
    """The sentences of the golden file, by input."""
    lines = GOLDEN.read_text("utf-8").splitlines()
    return dict(zip(lines[::2], (each.removeprefix("    ") for each in lines[1::2]), strict=True))


def golden_now() -> dict[str, str]:
    """The sentences as the code says them now, by input."""
    found = {}
    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        for rows in SECTIONS.values():
            for row in rows:
                with place(broker.bootstrap_servers) as here:
                    found[line(row.written)] = line(row.sentence(here))
    return found


def golden_text(found: Mapping[str, str]) -> str:
    """The golden file with these sentences."""
    return "".join(f"{written}\n    {sentence}\n" for written, sentence in found.items())
