"""Limits of the doctor, unless the user says otherwise. This module imports nothing, so that ``--help`` is quick."""

HELD_LONG_MS = 300_000
"""A member that holds records for this many milliseconds holds them for long: five minutes."""
