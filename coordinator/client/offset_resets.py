"""The targets of an offset reset, as a person writes them and as the request names them."""

from __future__ import annotations

import csv
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from coordinator.protocol.errors import InvalidReset

ResetTo: TypeAlias = str | datetime | timedelta | int | Mapping[str, Mapping[int, int]]
"""``earliest``, ``latest``, a datetime with a time zone, a duration before now, an offset, offsets by partition."""


def reset_of(to: ResetTo, shift_by: int | None = None) -> tuple[str, int, dict[str, dict[str, int]]]:
    """The kind, value and offsets of an AlterOffsets request. Raises InvalidReset if the target can't be used."""
    if shift_by is not None:
        if to != "earliest":
            raise InvalidReset(what=to, reason="shift_by is given as well: give one of the two")
        return "shift", shift_by, {}
    if isinstance(to, datetime):
        if to.tzinfo is None:
            raise InvalidReset(what=to, reason="the datetime has no time zone")
        return "timestamp", int(to.timestamp() * 1000), {}
    if isinstance(to, timedelta):
        if to < timedelta():
            raise InvalidReset(what=to, reason="the duration is negative")
        return "timestamp", int((time.time() - to.total_seconds()) * 1000), {}
    if isinstance(to, bool):
        raise InvalidReset(what=to, reason="it is True or False, and no offset")
    if isinstance(to, int):
        if to < 0:
            raise InvalidReset(what=to, reason="an offset can't be negative")
        return "offset", to, {}
    if isinstance(to, Mapping):
        return "offsets", 0, _by_partition(to)
    if to not in ("earliest", "latest"):
        raise InvalidReset(what=to, reason="it is earliest, latest, a datetime, a timedelta, an offset, or offsets")
    return to, 0, {}


def _by_partition(to: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    if not all(isinstance(of_topic, Mapping) for of_topic in to.values()):
        raise InvalidReset(what=to, reason="offsets are written {'orders': {0: 5}}, by topic and partition")
    offsets = {topic: {str(p): offset for p, offset in of_topic.items()} for topic, of_topic in to.items()}
    if not offsets or not all(offsets.values()):
        empty = ", ".join(topic for topic, of_topic in offsets.items() if not of_topic)
        raise InvalidReset(what="offsets", reason=f"there are none{f' of {empty}' if empty else ''}")
    return offsets


def _add(offsets: dict[str, dict[int, int]], topic: str, partition: int, offset: int, file: str, line: int) -> None:
    if offset < 0:
        raise InvalidReset(what=file, reason=f"line {line}: an offset can't be negative")
    if partition in offsets.setdefault(topic, {}):
        raise InvalidReset(what=file, reason=f"line {line}: {topic}-{partition} is there twice")
    offsets[topic][partition] = offset


def offsets_from_file(path: str) -> dict[str, dict[int, int]]:
    """The offsets in a CSV file of topic,partition,offset, as kafka-share-groups.sh --export writes it. Raises
    InvalidReset if the file can't be read, or a line is not of that form."""
    offsets: dict[str, dict[int, int]] = {}
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            for row in rows:
                if row:
                    topic, partition, offset = (cell.strip() for cell in row)
                    _add(offsets, topic, int(partition), int(offset), f"file {path}", rows.line_num)
    except OSError as error:
        raise InvalidReset(what=f"file {path}", reason=error.strerror or type(error).__name__) from None
    except UnicodeDecodeError as error:
        raise InvalidReset(what=f"file {path}", reason=f"it is no text in UTF-8 ({error.reason})") from None
    except ValueError:
        raise InvalidReset(what=f"file {path}", reason=f"line {rows.line_num} is not as orders,0,1207") from None
    if not offsets:
        raise InvalidReset(what=f"file {path}", reason="it has no offsets")
    return offsets
