"""Scans all groups repeatedly, in a thread, and keeps the results for the pages.

Rule: the page of all groups asks no coordinator. The scans take a fixed part of the time, so groups with many runs, or
many groups, are scanned less often and do not slow down their coordinators. The groups of open pages are scanned in
between, for up to half of that time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from coordinator.admin.admin import Admin
from coordinator.protocol.admin_messages import GroupsListed, InFlightPage
from coordinator.protocol.errors import GroupIdNotFound, ShareGroupError
from coordinator.protocol.messages import GroupDescription
from sharegroup.group_line import HELD, QUARANTINED, GroupLine, line_of
from sharegroup.web.history import History
from sharegroup.web.needs import Need, attention
from sharegroup.web.outages import UNANSWERED, Waiting
from sharegroup.web.words import told

_log = logging.getLogger(__name__)

REST = 4.0
"""A pause of this many times a scan's length follows the scan, so scans take a fifth of the time."""
RUNS_LOOKED_AT = 200
"""If a group has more runs, its oldest one is searched in up to this many that members hold, from the first one on."""
MOST_SCANNED = 1_000
"""A group's records with an earlier delivery are counted in up to this many runs in flight: the first ones, which hold
back start offsets."""
WAITED_REST_S = 1.0
"""The pause after a scan that only waited for a silent coordinator is at most this many seconds, since such a scan
slows no coordinator down."""
MOST_ERRORS = 3
"""A scan is given up after this many groups in a row have failed."""
OPEN_S, MOST_OPEN = 30.0, 100
"""A page counts as open for OPEN_S seconds after its request. The newest MOST_OPEN groups of open pages are kept."""


@dataclass(frozen=True, kw_only=True)
class WatchedGroup:
    """A group as of its last scan. ``failed``: records in flight that failed before, or were delivered more than once;
    ``given_up``: as on its page; ``is_part``: not all runs were scanned, so there may be more. ``attention``: why a
    person should look, the worst reason first; ``dead_letter_topic``: empty if there is none. ``at_s``: the wall clock
    time of the scan. ``description``, ``held``: the group, and runs that members hold, for its page in an outage."""

    line: GroupLine
    failed: int = 0
    given_up: int = 0
    is_part: bool = False
    attention: tuple[tuple[Need, str], ...] = ()
    dead_letter_topic: str = ""
    topics: tuple[str, ...] = ()
    at_s: float = 0.0
    description: GroupDescription | None = None
    held: InFlightPage | None = None

    @property
    def need(self) -> Need | None:
        """The worst need; None if nobody has to look."""
        return min((need for need, _ in self.attention), default=None)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All groups as of their last scan, by id. ``read_from``: as in GroupsListed; ``error``: why the last scan failed;
    ``round``: how many scans of all groups were made."""

    groups: dict[str, WatchedGroup] = field(default_factory=dict)
    read_from: str = ""
    error: str = ""
    round: int = 0


class Watch:
    """The scans of all groups of one cluster. ``interval_s``: the least time between two scans, in seconds."""

    def __init__(self, admin: Admin, interval_s: float = 5.0) -> None:
        self._admin, self._interval_s = admin, interval_s
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._histories: dict[str, History] = {}
        self._looked_s: dict[str, float] = {}
        self._moved_s: dict[str, tuple[int, float]] = {}
        self._wrote_s: dict[str, tuple[int, int, float]] = {}
        self._open_s: dict[str, float] = {}
        self._told: set[Callable[[int], None]] = set()
        self._asking = threading.Thread()
        self.waiting = Waiting()
        self.snapshot = Snapshot()
        self._thread = threading.Thread(target=self._run, name="web-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def history(self, group_id: str) -> History:
        with self._lock:
            return self._histories.get(group_id) or History()

    def opened(self, group_ids: Iterable[str]) -> None:
        """Scan these groups often for a while, since a page shows them."""
        until_s = time.monotonic() + OPEN_S
        with self._lock:
            for group_id in group_ids:
                self._open_s.pop(group_id, None)
                self._open_s[group_id] = until_s
            while len(self._open_s) > MOST_OPEN:
                del self._open_s[next(iter(self._open_s))]

    def tell(self, told: Callable[[int], None]) -> Callable[[], None]:
        """Call ``told`` with the number of each round when it ends, and every few seconds of a long one. Returns a
        function that stops the calls."""
        with self._lock:
            self._told.add(told)

        def stop() -> None:
            with self._lock:
                self._told.discard(told)

        return stop

    def notify(self) -> None:
        """Have open pages refresh."""
        with self._lock:
            told_of = tuple(self._told)
        for tell in told_of:
            tell(self.snapshot.round)

    def look(self) -> None:
        """Scan all groups once. If that fails, the pages get the error and the groups of the scan before."""
        before = self.snapshot
        try:
            with self.waiting.asking():
                listed = self._admin.list_groups(only_ids=True)
            self._ask_owners(listed)
            seen = self._look_at_each([listing.group_id for listing in listed.groups], before)
            after = Snapshot(groups=seen, read_from=listed.read_from, round=before.round + 1)
        except ShareGroupError as error:
            after = Snapshot(groups=before.groups, error=told(error), round=before.round + 1)
        with self._lock:  # what was kept about groups that no longer exist
            for kept in (self._histories, self._looked_s, self._moved_s, self._wrote_s):
                for group_id in kept.keys() - after.groups.keys():
                    del kept[group_id]
        self._show(after)

    def _run(self) -> None:
        while not self._ended.is_set():
            began_s = time.monotonic()
            try:
                self.look()
            except Exception:  # noqa: BLE001 - our mistake in one look does not end the looks
                _log.exception("a look at the groups failed")
            took_s = time.monotonic() - began_s
            # Each of several groups rests by itself; a failed scan is repeated soon.
            alone_s = took_s * REST if len(self.snapshot.groups) == 1 and not self.snapshot.error else 0
            self._ended.wait(max(self._interval_s - took_s, alone_s, 0.2))

    def _show(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.notify()

    def _look_at_each(self, group_ids: list[str], before: Snapshot) -> dict[str, WatchedGroup]:
        """Scan the groups. A group that can't be scanned gets its error. Raises ShareGroupError once MOST_ERRORS groups
        in a row failed."""
        seen: dict[str, WatchedGroup] = {}
        errors, due_s = 0, time.monotonic() + self._between_s(before)
        for group_id in group_ids:
            began_s = time.monotonic()
            if began_s > due_s:  # a round over many groups takes long
                self._look_at_open(seen, before)
                self._show(replace(before, groups={**before.groups, **seen}, error=""))
                now_s = time.monotonic()
                due_s, began_s = now_s + max(self._between_s(before), now_s - began_s), now_s
            known = seen.get(group_id) or before.groups.get(group_id)
            try:
                seen[group_id] = self._look_at(group_id, known)
                errors = 0
            except GroupIdNotFound:  # it was deleted meanwhile
                continue
            except ShareGroupError as error:
                errors += 1
                if errors == MOST_ERRORS:
                    raise
                seen[group_id] = _not_seen(group_id, error, before.groups.get(group_id))
            rest_s = (time.monotonic() - began_s) * REST if len(group_ids) > 1 else 0
            if errors or (_is_left(seen[group_id]) and not _is_left(known)):
                rest_s = min(rest_s, WAITED_REST_S)
            if self._ended.wait(rest_s):
                break
        return seen

    def _ask_owners(self, listed: GroupsListed) -> None:
        """Ask the owners on other hosts at once, in a thread. Else scans would wait for each silent owner in turn."""

        def ask() -> None:
            with suppress(ShareGroupError):
                self._admin.list_groups()

        if any(listing.coordinator for listing in listed.groups) and not self._asking.is_alive():
            self._asking = threading.Thread(target=ask, name="web-owners", daemon=True)
            self._asking.start()

    def _between_s(self, before: Snapshot) -> float:
        """Returns after how many seconds of a round its results are published. The first round is early."""
        return self._interval_s if before.round else 1.0

    def _look_at_open(self, seen: dict[str, WatchedGroup], before: Snapshot) -> None:
        """Scan the groups of open pages into ``seen``. A group that can't be scanned now is left to the round."""
        with self._lock:
            now_s = time.monotonic()
            self._open_s = {group_id: until_s for group_id, until_s in self._open_s.items() if until_s > now_s}
            open_ids = [group_id for group_id in self._open_s if group_id in before.groups]
        for group_id in open_ids:
            began_s = time.monotonic()
            with suppress(ShareGroupError):
                seen[group_id] = self._look_at(group_id, seen.get(group_id) or before.groups.get(group_id))
            if self._ended.wait((time.monotonic() - began_s) * REST):
                break

    def _look_at(self, group_id: str, before: WatchedGroup | None) -> WatchedGroup:
        with self.waiting.asking():
            description = self._admin.describe_groups([group_id])[group_id]
            page = self._admin.in_flight(group_id, limit=MOST_SCANNED)
            held = page
            if page.cursor is not None:
                held = self._admin.in_flight(group_id, only_state=HELD, limit=RUNS_LOOKED_AT)
        now_s = time.monotonic()
        elapsed_s = now_s - self._looked_s.get(group_id, now_s)
        self._looked_s[group_id] = now_s
        old = None if before is None else before.line
        line = line_of(description, held.runs, held.now_ms, before=old, elapsed_s=elapsed_s)
        failed, quarantined, is_part = _troubled(page)
        numbers = (line.lag, line.in_flight, line.acquired_rate, line.done_rate, failed)
        stand_s = self._stands_s(line, now_s), self._dead_letters_stand_s(line, now_s)
        kept = tuple(run for run in held.runs if run.state in HELD)[:RUNS_LOOKED_AT]
        with self._lock:
            self._histories.setdefault(group_id, History()).add(time.time(), numbers)
        return WatchedGroup(
            line=line,
            failed=failed,
            given_up=description.records.given_up,
            is_part=is_part,
            attention=attention(line, quarantined, *stand_s, is_part=is_part),
            dead_letter_topic=description.configs.get("errors.deadletterqueue.topic.name", ""),
            topics=tuple(dict.fromkeys(p.topic for p in description.partitions)),
            at_s=time.time(),
            description=description,
            held=msgspec.structs.replace(held, runs=kept),
        )

    def _stands_s(self, line: GroupLine, now_s: float) -> float:
        """Returns for how many seconds records have waited that are not paused, and no acknowledgement of the group has
        changed anything."""
        done, since_s = self._moved_s.get(line.group_id, (-1, now_s))
        if done != line.done or not line.lag_to_do:
            since_s = now_s
        self._moved_s[line.group_id] = (line.done, since_s)
        return now_s - since_s

    def _dead_letters_stand_s(self, line: GroupLine, now_s: float) -> float:
        """Returns for how many seconds dead letters have waited and none was written, which archives its record."""
        waiting, written, since_s = self._wrote_s.get(line.group_id, (0, -1, now_s))
        if not line.archiving or not waiting or line.archiving < waiting or line.archived > written:
            since_s = now_s
        self._wrote_s[line.group_id] = (line.archiving, line.archived, since_s)
        return now_s - since_s


def _is_left(group: WatchedGroup | None) -> bool:
    """Whether the group's coordinator, on another host, did not answer."""
    return group is not None and group.line.state == "Unknown"


def _not_seen(group_id: str, error: ShareGroupError, before: WatchedGroup | None) -> WatchedGroup:
    """Returns a group that can't be scanned: marked with the error and, if nobody answered, otherwise as before."""
    why = (Need.STUCK, type(error).__name__)
    if before is not None and isinstance(error, UNANSWERED):
        return replace(before, attention=(why, *(each for each in before.attention if each != why)))
    line = line_of(GroupDescription(group_id=group_id, state="UNKNOWN", incarnation=""), (), 0)
    return WatchedGroup(line=line, attention=(why,), at_s=time.time())


def _troubled(page: InFlightPage) -> tuple[int, int, bool]:
    """Returns how many of the page's records in flight failed or were delivered before, how many of these are in
    quarantine, and whether there are more runs than these."""
    failed = quarantined = 0
    for run in page.runs:
        size = run.last - run.first + 1
        failed += size if run.failures or run.delivery_count > 1 else 0
        quarantined += size if run.stage in QUARANTINED else 0
    return failed, quarantined, page.cursor is not None
