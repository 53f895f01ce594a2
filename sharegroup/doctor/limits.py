"""What the doctor looks for unless the user says otherwise. Imports nothing, so that ``--help`` is quick."""

HELD_LONG_MS = 300_000
"""Milliseconds after which a member holds records for long: five minutes."""
