"""Writes sentences.txt anew: ``python -m tests.bad_input``. Then read ``git diff``."""

from tests.bad_input.golden import GOLDEN, golden_now, golden_text

GOLDEN.write_text(golden_text(golden_now()), "utf-8")
