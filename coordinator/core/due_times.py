"""The times at which groups, or members of a group, have something due: finds the earliest one, and those that came.

Rule: neither looks at all of them, since a coordinator may serve thousands, and each of its rounds asks.
"""

from __future__ import annotations

import heapq

SPARE = 64
"""Old times that are kept beside one for each name before all old ones are forgotten."""


class DueTimes:
    """One time for each name, a group's or a member's id, in milliseconds, or none."""

    __slots__ = ("_heap", "_of_name")

    def __init__(self) -> None:
        self._of_name: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []  # with old times, which count no more

    def __len__(self) -> int:
        return len(self._of_name)

    def __repr__(self) -> str:
        return f"<DueTimes {len(self._of_name)}>"

    def set(self, name: str, due_ms: int | None) -> None:
        """Set the time of the name; None: it has none."""
        if due_ms == self._of_name.get(name):
            return
        if due_ms is None:
            del self._of_name[name]
            return
        self._of_name[name] = due_ms
        heapq.heappush(self._heap, (due_ms, name))
        if len(self._heap) > 2 * len(self._of_name) + SPARE:
            self._heap = [(due_ms, name) for name, due_ms in self._of_name.items()]
            heapq.heapify(self._heap)

    def earliest_ms(self) -> int | None:
        """The earliest time; None: there is none."""
        while self._heap and self._of_name.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[str]:
        """The names whose time is ``now_ms`` or earlier, in order."""
        found, look = set(), [0]
        while look:
            index = look.pop()
            if index < len(self._heap) and self._heap[index][0] <= now_ms:
                due_ms, name = self._heap[index]
                if self._of_name.get(name) == due_ms:
                    found.add(name)
                look += [2 * index + 1, 2 * index + 2]
        return sorted(found)
