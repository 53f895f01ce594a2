"""Writes sentences.txt and docs/run/bad-input.md anew: ``python -m tests.bad_input``. Then read ``git diff``."""

from tests.bad_input.page import GOLDEN, PAGE, golden_now, golden_text, page_text

found = golden_now()
GOLDEN.write_text(golden_text(found), "utf-8")
PAGE.write_text(page_text(found), "utf-8")
