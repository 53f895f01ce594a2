"""The membership lease: this process's right to act as a member of Kafka's group, renewed by checks of its membership.

The thread that polls Kafka's client makes the checks; one check answers all callers that wait. Rules: a caller gets the
outcome of a check that began after its call; a lease runs from the *beginning* of its check, since the process may be
stopped at any point after it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import NamedTuple

from coordinator.service.process.clock import now_s

AFTER_UNKNOWN_S = 0.05
"""Checks without an outcome are this many seconds apart while a caller waits."""
AFTER_FAILURE_S = 0.5
"""Failed checks are this many seconds apart while no caller waits."""
ABANDONED_S = 5.0
"""A check without an answer is abandoned after this many seconds, and the next one may begin."""

_NEVER = -math.inf

_log = logging.getLogger(__name__)


class MembershipStatus(Enum):
    """The outcome of a check for this process."""

    MEMBER = "a member"
    REBALANCING = "a member, of a group that rebalances"
    NOT_MEMBER = "no member"
    UNKNOWN = "unknown: no answer"


class LeaseCheck(NamedTuple):
    """The outcome of a check. ``reason`` is for logs and error texts."""

    status: MembershipStatus
    reason: str = ""

    @property
    def is_member(self) -> bool:
        """Whether the group knew this process, so that no other process had its partitions."""
        return self.status in (MembershipStatus.MEMBER, MembershipStatus.REBALANCING)


class MembershipLease:
    """Counts the checks, and knows the lease that they gave. Thread-safe. The thread that makes the checks calls
    ``begin`` and ``finish``; checks have numbers."""

    def __init__(self, *, lease_ms: int, interval_ms: int, now: Callable[[], float] = now_s) -> None:
        self._lease_s = lease_ms / 1000
        self._interval_s = interval_ms / 1000
        self._now = now
        self._changed = threading.Condition()
        self._asked = 0  # the newest check that a caller waits for
        self._begun = 0
        self._began_s = _NEVER
        self._done = 0
        self._check = LeaseCheck(MembershipStatus.UNKNOWN, "no check was made yet")
        self._lease_began_s = _NEVER
        self._voided = 0  # the newest check that had begun when membership was lost
        self._needed = False
        self._ended = False

    # --- for callers

    def fresh(self, timeout_s: float) -> LeaseCheck:
        """The first outcome, other than UNKNOWN, of a check that begins after this call; UNKNOWN if none comes in
        time."""
        deadline_s = time.monotonic() + timeout_s
        reason = "Kafka did not answer"
        with self._changed:
            while not self._ended:
                wanted = self._begun + 1
                self._asked = max(self._asked, wanted)
                if not self._changed.wait_for(partial(self._is_done, wanted), deadline_s - time.monotonic()):
                    return LeaseCheck(MembershipStatus.UNKNOWN, f"no confirmation within {timeout_s:g} s ({reason})")
                if self._done >= wanted and self._check.status is not MembershipStatus.UNKNOWN:
                    return self._check
                reason = self._check.reason
        return LeaseCheck(MembershipStatus.UNKNOWN, "it is leaving")

    def is_current(self) -> bool:
        """Whether the newest confirmation is younger than the lease's duration."""
        return self._now() - self._lease_began_s < self._lease_s

    # --- for the thread that makes the checks

    def keep(self, needed: bool) -> None:
        """Turns regular checks, which renew the lease, on or off; the first one is due at once."""
        with self._changed:
            self._needed = needed
            if needed:
                self._asked = max(self._asked, self._begun + 1)

    def begin(self) -> int | None:
        """The number of the check to make now; None while none is due."""
        with self._changed:
            pause_s = self._pause_s()
            if self._ended or pause_s is None or self._now() - self._began_s < pause_s:
                return None
            self._begun += 1
            self._began_s = self._now()
            return self._begun

    def finish(self, number: int, check: LeaseCheck) -> None:
        """Applies the outcome of a check. It has no effect once the check was abandoned."""
        with self._changed:
            if number != self._begun or number == self._done:
                return
            if check.status is not self._check.status and not check.is_member:
                level = logging.WARNING if check.status is MembershipStatus.NOT_MEMBER else logging.INFO
                _log.log(level, "fleet: in Kafka's group this process is %s (%s)", check.status.value, check.reason)
            self._done, self._check = number, check
            # REBALANCING does not renew the lease: with that answer Kafka does not restart the session timeout.
            if check.status is MembershipStatus.MEMBER and number > self._voided:
                self._lease_began_s = self._began_s
            elif check.status is MembershipStatus.NOT_MEMBER:
                self._lease_began_s = _NEVER
            self._changed.notify_all()

    def void(self) -> None:
        """Ends the lease, since the membership was lost. A check that is running gives no new one."""
        with self._changed:
            self._voided = self._begun
            self._lease_began_s = _NEVER

    def end(self) -> None:
        """Stops the checks; callers that wait get UNKNOWN. The lease runs on to its end."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    # --- inside

    def _is_done(self, number: int) -> bool:
        return self._done >= number or self._ended

    def _pause_s(self) -> float | None:
        """Seconds from the beginning of the newest check to the next one; None if no check is needed."""
        is_asked = self._asked > self._begun
        if not is_asked and not self._needed:
            return None
        if self._done < self._begun:
            return ABANDONED_S
        if is_asked:
            return AFTER_UNKNOWN_S if self._check.status is MembershipStatus.UNKNOWN else 0.0
        return self._interval_s if self._check.is_member else min(self._interval_s, AFTER_FAILURE_S)
