"""Writes what the core shows into every scenario file: ``python -m tests.scenarios``. Then read ``git diff``."""

from tests.scenarios.player import FILES, played

for path in FILES:
    path.write_text(played(path.read_text("utf-8")), "utf-8")
