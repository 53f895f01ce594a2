"""Limits of the doctor, unless the user says otherwise. This module imports nothing, so that ``--help`` is quick."""

HELD_LONG_MS = 300_000
"""Milliseconds after which a member holds records for long: five minutes."""
