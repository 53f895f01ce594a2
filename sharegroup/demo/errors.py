"""What ends the demo early: a line for the reader, who can do something about it."""

from __future__ import annotations


class DemoFailed(Exception):
    """The message says which step failed and how."""


class CannotRun(Exception):
    """The message says what is missing on this machine, and what to do."""
