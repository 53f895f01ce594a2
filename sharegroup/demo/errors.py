"""The error that ends the demo early."""

from __future__ import annotations


class DemoFailed(Exception):
    """A step of the demo failed; the message names the step and the reason."""
