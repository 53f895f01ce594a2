"""Has the doctor examine groups in a thread, and keeps the findings for a few seconds.

Rule: a page waits only briefly for the doctor. If a group has many runs, its page appears before the doctor has
finished."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from sharegroup.doctor.findings import Finding
from sharegroup.web.words import told

KEPT_S = 5.0
"""Findings are shown for at least this many seconds before the group is examined again."""
REST = 9.0
"""Findings are kept for this many times the length of their examination, and at least KEPT_S. So the doctor works up to
a tenth of the time, even if somebody watches a group with many runs all day."""
STALE_S = 10.0
"""Findings that are due to be examined again are not shown if nobody has asked for them for this many seconds."""
PATIENCE_S = 0.1
"""A page waits this many seconds for a group's first findings."""
MOST_KEPT = 200
"""The findings of up to this many groups are kept."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The findings of a group. ``is_known`` False: the doctor has not finished. ``error``: why the last examination
    failed; ``found`` is then the result before. ``at_s``: when the group was examined. ``since``: what had happened to
    the group by then, as the caller of :meth:`Examinations.of` said."""

    found: tuple[Finding, ...] = ()
    is_known: bool = False
    error: str = ""
    at_s: float = 0.0
    since: object = None

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.at_s


class Examinations:
    """The findings of groups. ``examine`` finds them, and raises ShareGroupErrors."""

    def __init__(self, examine: Callable[[str], list[Finding]]) -> None:
        self._examine = examine
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[float, Findings]] = OrderedDict()
        self._asked: dict[str, Future[None]] = {}
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="web-doctor")

    def of(self, group_id: str, since: object = None) -> Findings:
        """The newest findings of the group. There are none while the group is examined for the first time, or again
        because something has happened to it. ``since``: what has happened up to now, for comparison."""
        with self._lock:
            now_s = time.monotonic()
            until_s, known = self._known.get(group_id, (0.0, Findings()))
            is_old = known.is_known and known.since != since
            if now_s < until_s and not is_old:
                return known
            if now_s > until_s + STALE_S or is_old:
                self._known.pop(group_id, None)
                known = Findings()
            if group_id not in self._asked and len(self._asked) < MOST_KEPT:
                self._asked[group_id] = self._pool.submit(self._find, group_id, since)
            asked = self._asked.get(group_id)
        if not known.is_known and asked is not None:
            wait([asked], PATIENCE_S)
            with self._lock:
                newest = self._known.get(group_id, (0.0, known))[1]
            return newest if newest.since == since else known
        return known

    def forget(self, group_id: str) -> None:
        """Drop the findings of a group that an action has changed."""
        with self._lock:
            self._known.pop(group_id, None)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _find(self, group_id: str, since: object) -> None:
        began_s = time.monotonic()
        try:
            findings = Findings(found=tuple(self._examine(group_id)), is_known=True)
        except Exception as error:  # noqa: BLE001 - whatever the brokers answer, the page is shown
            before = self._known.get(group_id, (0.0, Findings()))[1]
            findings = Findings(found=before.found, is_known=True, error=told(error))
        findings = replace(findings, at_s=time.monotonic(), since=since)
        kept_s = max(KEPT_S, REST * (findings.at_s - began_s))
        with self._lock:
            self._known[group_id] = (findings.at_s + kept_s, findings)
            self._known.move_to_end(group_id)
            while len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)
            self._asked.pop(group_id, None)
