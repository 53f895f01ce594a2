"""Decides which characters the page shows as they are, and writes JSON with line breaks.

Rule: the page shows what is there. A character that changes the direction of text is made visible, and JSON is indented
without changing a number, a name or their order."""

from __future__ import annotations

import json
import re
import unicodedata
from codecs import getincrementaldecoder

_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Each of these characters changes the direction of text, so that one text can look like another."""
_NO_TEXT = ("Cc", "Cs")
"""Unicode's categories of control characters and of surrogates."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
_ESCAPE = re.compile(r"\\u([dD][89abAB]\w\w)\\u([dD][c-fC-F]\w\w)|\\u(\w{4})|\\.")


def text_of(data: bytes, *, is_cut: bool = False) -> str | None:
    """Returns the bytes as text; None if they are not UTF-8, or have control characters. ``is_cut``: the bytes may end
    within a character, which is left out."""
    try:
        text = getincrementaldecoder("utf-8")().decode(data, final=not is_cut)
    except UnicodeDecodeError:
        return None
    return text if all(map(is_text, text)) else None


def is_text(character: str) -> bool:
    """Whether the character is part of a text, as spaces, joiners and marks of any script; not control characters."""
    return character in "\t\r\n" or unicodedata.category(character) not in _NO_TEXT


def clean(text: str, kept: str = "") -> str:
    """Replace control characters not in ``kept`` by U+FFFD. Characters that change the direction become ⟨U+202E⟩."""
    shown = "".join(each if each in kept or unicodedata.category(each) not in _NO_TEXT else "\ufffd" for each in text)
    return _BIDI.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", shown)


def json_lines(text: str, most: int) -> str | None:
    """Returns the JSON with line breaks, cut soon after ``most`` characters; None if the text is no JSON. Tokens are
    unchanged, except for escapes of printable characters."""
    try:
        json.loads(text, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return None
    parts: list[str] = []
    depth = size = 0
    before = ""
    for part in _TOKEN.findall(text):
        depth -= part in "]}"
        is_first, is_end = before in ("[", "{"), part in "]}"
        is_new_line = is_first != is_end or before == ","
        space = "\n" + "  " * depth if is_new_line else " " if before == ":" else ""
        parts += (space, _readable(part) if part[0] == '"' else part)
        depth += part in "[{"
        size += len(space) + len(part)
        before = part
        if size > most:
            break
    return "".join(parts)


def _readable(token: str) -> str:
    def shown(found: re.Match[str]) -> str:
        high, low, one = found.groups()
        if high:
            return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
        character = chr(int(one, 16)) if one else ""
        is_shown = character and character not in '"\\' and unicodedata.category(character) not in _NO_TEXT
        return character if is_shown else found[0]

    return _ESCAPE.sub(shown, token)
