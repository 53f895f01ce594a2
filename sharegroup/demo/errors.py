"""Errors that end the demo early; each prints one line for the reader."""

from __future__ import annotations


class DemoFailed(Exception):
    """A step of the demo failed; the message names the step and the reason."""


class CannotRun(Exception):
    """The demo can't run on this machine; the message names what is missing and what to do."""
