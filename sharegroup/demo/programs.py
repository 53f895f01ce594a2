"""The programs of README.md that `sharegroup quickstart` prints and serves."""

from __future__ import annotations

from importlib import resources

READING, SINK = "reading", "sink"
"""The program below "The first program", and the one below "Outcomes by row"."""
BROKER_PORT = 9092
"""The port in the programs."""


def program(which: str, port: int = BROKER_PORT) -> str:
    """The program, with this port in its address."""
    text = resources.files("sharegroup.demo").joinpath(f"{which}_program.txt").read_text(encoding="utf-8")
    return text.replace(f"localhost:{BROKER_PORT}", f"localhost:{port}")
