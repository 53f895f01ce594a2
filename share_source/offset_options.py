"""Parses the options that are JSON over topics and partitions, as Spark does: ``assign``, ``startingOffsets`` and
``endingOffsets``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coordinator.protocol.option_errors import InvalidOption

_EARLIEST = -2
_LARGEST_PARTITION = 2**31 - 1


def parse_assign(text: str) -> dict[str, tuple[int, ...]]:
    """Parse ``{"orders":[0,1]}``: topic -> ascending partitions. Raises InvalidOption for other texts."""
    example = '{"orders":[0,1]}'
    assign: dict[str, tuple[int, ...]] = {}
    for topic, partitions in _object("assign", text, example).items():
        if not isinstance(partitions, list) or not partitions or not all(_is_partition(p) for p in partitions):
            raise InvalidOption(option="assign", problem=f"{topic} needs a list of partition numbers, as in {example}.")
        assign[topic] = tuple(sorted(set(partitions)))
    if not assign:
        raise InvalidOption(option="assign", problem=f"it names no partition; write it as in {example}.")
    return assign


def parse_starting_offsets(
    text: str | None, topics: tuple[str, ...], assign: Mapping[str, tuple[int, ...]] | None
) -> str | None:
    """Parse startingOffsets: ``earliest``, ``latest`` or JSON; returns JSON with sorted keys. If it is None or lacks a
    partition, the group's share.auto.offset.reset applies. Raises InvalidOption if the text is wrong, or names a topic
    or partition that the query does not read."""
    if text is None:
        return None
    if text.strip().lower() in ("earliest", "latest"):
        return text.strip().lower()
    example = 'earliest, latest, or JSON as in {"orders":{"0":23,"1":-2}}'
    offsets = _object("startingOffsets", text, example)
    for topic, by_partition in offsets.items():
        _check_offsets(topic, by_partition, example)
        _check_read(topic, by_partition, topics, assign)
    return json.dumps(offsets, sort_keys=True, separators=(",", ":"))


_OPEN = {"startingOffsets": ("earliest", -2), "endingOffsets": ("latest", -1)}
"""The word and the number that leave a batch open at this side, as in Spark's Kafka source."""


def parse_bounds(
    option: str, text: str | None, topics: tuple[str, ...], assign: Mapping[str, tuple[int, ...]] | None
) -> dict[tuple[str, int], int]:
    """Parse startingOffsets or endingOffsets of a batch: the word that leaves it open, or JSON. Returns the offsets by
    topic and partition, without those that are open. Raises InvalidOption as :func:`parse_starting_offsets`."""
    word, number = _OPEN[option]
    if text is None or text.strip().lower() == word:
        return {}
    example = f'{word}, or JSON as in {{"orders":{{"0":23,"1":{number}}}}}'
    found = {}
    for topic, by_partition in _object(option, text, example).items():
        if not _are_offsets(by_partition) or any(offset < 0 and offset != number for offset in by_partition.values()):
            problem = f"{topic} needs an offset from 0 on, or {number} ({word}), for each partition: {example}."
            raise InvalidOption(option=option, problem=problem)
        _check_read(topic, by_partition, topics, assign, option)
        found.update({(topic, int(index)): offset for index, offset in by_partition.items() if offset != number})
    return found


def _check_offsets(topic: str, by_partition: Any, example: str) -> None:
    if not _are_offsets(by_partition):
        problem = f"{topic} needs an offset from -2 on (-2 earliest, -1 latest) for each partition: {example}."
        raise InvalidOption(option="startingOffsets", problem=problem)


def _are_offsets(by_partition: Any) -> bool:
    return isinstance(by_partition, dict) and all(
        _is_partition_text(partition) and type(offset) is int and _EARLIEST <= offset < 2**63
        for partition, offset in by_partition.items()
    )


def _check_read(
    topic: str,
    by_partition: Mapping[str, int],
    topics: tuple[str, ...],
    assign: Mapping[str, tuple[int, ...]] | None,
    option: str = "startingOffsets",
) -> None:
    if topics and topic not in topics:
        raise InvalidOption(option=option, problem=f"topic {topic} is not subscribed.")
    if assign is None:
        return
    for partition in by_partition:
        if int(partition) not in assign.get(topic, ()):
            raise InvalidOption(option=option, problem=f"{topic}-{partition} is not assigned.")


def _object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidOption(option=option, problem=f"{text!r} is not understood; write {example}.")
    return value


def _is_partition(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_PARTITION


def _is_partition_text(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10 and _is_partition(int(text))
