"""The doctor's default limits. This module imports nothing, so that ``--help`` is quick."""

HELD_LONG_MS = 300_000
"""A member that holds records for more than this many milliseconds (five minutes) is named."""
