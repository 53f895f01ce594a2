"""A process that is part of a fleet and does what its standard input says: a process, since it is stopped and killed.

    python -m tests.support.fleet_program '{"bootstrap": …, "topic": …, "group_id": …, "advertised": …, …}'

A line in is a word and maybe a partition; a line out is its answer as JSON.
"""

from __future__ import annotations

import json
import sys

from coordinator.protocol.errors import ShareGroupError
from coordinator.service.fleet.fleet import Fleet


def main() -> None:
    """Answer until the input ends."""
    given = json.loads(sys.argv[1])
    lost: list[int] = []
    fleet = Fleet(
        given["bootstrap"],
        {},
        advertised=given["advertised"],
        state_topic=given["topic"],
        group_id=given["group_id"],
        session_timeout_ms=given["session_timeout_ms"],
        on_lost=lost.extend,
    )
    for line in sys.stdin:
        word, *numbers = line.split()
        print(json.dumps(answer(fleet, lost, word, *map(int, numbers))), flush=True)


def answer(fleet: Fleet, lost: list[int], word: str, partition: int = -1) -> object:
    """The fleet's answer to the word; an error is answered by its name."""
    try:
        if word == "owned":
            return sorted(fleet.owned)
        if word == "lost":
            return sorted(lost)
        if word == "current":
            return fleet.is_current()
        if word == "verify":
            return fleet.verify(partition)
        if word == "find":
            return fleet.find(partition)
        return fleet.close()
    except ShareGroupError as error:
        return type(error).__name__


if __name__ == "__main__":
    main()
