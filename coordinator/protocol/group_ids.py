"""Checks that the id of a share group has a valid length and valid characters.

Rule: a client refuses a bad id before it sends anything; a coordinator refuses to create such a group."""

from __future__ import annotations

import re

from coordinator.protocol.errors import InvalidGroupId

MAX_CHARACTERS = 249
"""A group id has up to this many characters, as a topic's name. Kafka allows 32,767 bytes, but the id is in each log
line, error, dead letter header and state record of its group."""
_SHOWN = 40
_PLACEHOLDER = re.compile(r"\s*(\$\{[^{}]*\}|\{\{[^{}]*\}\})\s*")
UNREPLACED = "it is a placeholder that nothing replaces (${env:NAME} is replaced in properties files alone)"


def is_placeholder(text: str) -> bool:
    """Whether a template's variable is all of the text: ${NAME}, or {{ NAME }}."""
    return _PLACEHOLDER.fullmatch(text) is not None


def check_group_id(group_id: str) -> None:
    """Check a group id. Raises InvalidGroupId if the id is too long, is an unreplaced placeholder, or has characters
    that can't be printed: a line break could forge log lines."""
    reason = ""
    if unprintable := next((character for character in group_id if not character.isprintable()), ""):
        reason = f"it has the character {unprintable!a}, which can't be printed"
    elif len(group_id) > MAX_CHARACTERS:
        reason = f"it has {len(group_id):,} characters"
    elif is_placeholder(group_id):
        reason = UNREPLACED
    elif group_id != group_id.strip():
        reason = "it begins or ends with a blank, which looks like the group without it"
    if reason:
        shown = ascii(group_id[:_SHOWN]) + ("..." if len(group_id) > _SHOWN else "")
        raise InvalidGroupId(group_id=shown, reason=reason)
