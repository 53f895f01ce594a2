"""The times at which groups have something due: finds the earliest one, and the groups whose time has come.

Rule: neither looks at every group, since a coordinator may serve thousands, and each of its rounds asks.
"""

from __future__ import annotations

import heapq

SPARE = 64
"""Old times that are kept beside one for each group before all old ones are forgotten."""


class DueTimes:
    """One time for each group, in milliseconds, or none."""

    __slots__ = ("_heap", "_of_group")

    def __init__(self) -> None:
        self._of_group: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []  # with old times, which count no more

    def __len__(self) -> int:
        return len(self._of_group)

    def __repr__(self) -> str:
        return f"<DueTimes {len(self._of_group)}>"

    def set(self, group_id: str, due_ms: int | None) -> None:
        """Set the group's time; None: it has none."""
        if due_ms == self._of_group.get(group_id):
            return
        if due_ms is None:
            del self._of_group[group_id]
            return
        self._of_group[group_id] = due_ms
        heapq.heappush(self._heap, (due_ms, group_id))
        if len(self._heap) > 2 * len(self._of_group) + SPARE:
            self._heap = [(due_ms, group_id) for group_id, due_ms in self._of_group.items()]
            heapq.heapify(self._heap)

    def earliest_ms(self) -> int | None:
        """The earliest time; None: no group has one."""
        while self._heap and self._of_group.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[str]:
        """The groups whose time is ``now_ms`` or earlier, by id."""
        found, look = set(), [0]
        while look:
            index = look.pop()
            if index < len(self._heap) and self._heap[index][0] <= now_ms:
                due_ms, group_id = self._heap[index]
                if self._of_group.get(group_id) == due_ms:
                    found.add(group_id)
                look += [2 * index + 1, 2 * index + 2]
        return sorted(found)
