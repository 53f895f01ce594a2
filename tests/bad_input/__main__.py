"""Writes docs/run/bad-input.md anew: ``python -m tests.bad_input``. Then read ``git diff``."""

from tests.bad_input.page import PAGE, written_page

PAGE.write_text(written_page(), "utf-8")
