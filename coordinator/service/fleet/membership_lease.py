"""MembershipLease that this process is still a member of Kafka's group, and the lease that each of them gives.

Whoever polls Kafka's client makes the attempts; one answers all who wait. Rules: whoever asks gets an attempt that
began after he asked; a lease runs from when its attempt *began*, since a process may be stopped at any point after it.
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
"""Between attempts that told nothing, while somebody waits."""
AFTER_FAILURE_S = 0.5
"""Between attempts that failed, while nobody waits."""
GIVEN_UP_S = 5.0
"""An attempt without an answer for so long stands in the way of no other."""

_NEVER = -math.inf

_log = logging.getLogger(__name__)


class MembershipStatus(Enum):
    """What an attempt said of this process."""

    MEMBER = "a member"
    REBALANCING = "a member, of a group that is about to share its partitions out"
    NOT_MEMBER = "no member"
    UNKNOWN = "unknown to us: no answer"


class LeaseCheck(NamedTuple):
    """An attempt's outcome. ``reason`` is for people."""

    standing: MembershipStatus
    reason: str = ""

    @property
    def is_member(self) -> bool:
        """Whether the group knew this process, so that nobody else had its partitions."""
        return self.standing in (MembershipStatus.MEMBER, MembershipStatus.REBALANCING)


class MembershipLease:
    """Thread-safe. Attempts have numbers; ``begin`` and ``finish`` belong to the one who makes them."""

    def __init__(self, *, lease_ms: int, interval_ms: int, now: Callable[[], float] = now_s) -> None:
        self._lease_s = lease_ms / 1000
        self._interval_s = interval_ms / 1000
        self._now = now
        self._changed = threading.Condition()
        self._asked = 0  # the newest attempt that somebody wants
        self._begun = 0
        self._began_s = _NEVER
        self._done = 0
        self._proof = LeaseCheck(MembershipStatus.UNKNOWN, "nothing was tried yet")
        self._lease_began_s = _NEVER
        self._voided = 0  # the newest attempt that had begun when membership was lost
        self._needed = False
        self._ended = False

    # --- who asks

    def fresh(self, timeout_s: float) -> LeaseCheck:
        """The outcome of an attempt that begins after this call, the first that tells something; UNKNOWN if there is
        none in time."""
        deadline_s = time.monotonic() + timeout_s
        reason = "Kafka did not answer"
        with self._changed:
            while not self._ended:
                wanted = self._begun + 1
                self._asked = max(self._asked, wanted)
                if not self._changed.wait_for(partial(self._is_done, wanted), deadline_s - time.monotonic()):
                    return LeaseCheck(MembershipStatus.UNKNOWN, f"no proof within {timeout_s:g} s ({reason})")
                if self._done >= wanted and self._proof.standing is not MembershipStatus.UNKNOWN:
                    return self._proof
                reason = self._proof.reason
        return LeaseCheck(MembershipStatus.UNKNOWN, "it is leaving")

    def is_current(self) -> bool:
        """Whether the newest proof is younger than the lease."""
        return self._now() - self._lease_began_s < self._lease_s

    # --- who makes the attempts

    def keep(self, needed: bool) -> None:
        """Whether the lease is to be kept up by attempts that nobody asks for; the first is due at once."""
        with self._changed:
            self._needed = needed
            if needed:
                self._asked = max(self._asked, self._begun + 1)

    def begin(self) -> int | None:
        """The number of the attempt to make now; None while none is due."""
        with self._changed:
            pause_s = self._pause_s()
            if self._ended or pause_s is None or self._now() - self._began_s < pause_s:
                return None
            self._begun += 1
            self._began_s = self._now()
            return self._begun

    def finish(self, number: int, proof: LeaseCheck) -> None:
        """The attempt's outcome. What comes after it was given up is nobody's answer any more."""
        with self._changed:
            if number != self._begun or number == self._done:
                return
            if proof.standing is not self._proof.standing and not proof.is_member:
                level = logging.WARNING if proof.standing is MembershipStatus.NOT_MEMBER else logging.INFO
                _log.log(level, "fleet: in Kafka's group this process is %s (%s)", proof.standing.value, proof.reason)
            self._done, self._proof = number, proof
            # REBALANCING does not extend the lease: with that answer Kafka does not start the session's time again.
            if proof.standing is MembershipStatus.MEMBER and number > self._voided:
                self._lease_began_s = self._began_s
            elif proof.standing is MembershipStatus.NOT_MEMBER:
                self._lease_began_s = _NEVER
            self._changed.notify_all()

    def void(self) -> None:
        """Membership was lost: the lease ends now, and an attempt that is under way gives none."""
        with self._changed:
            self._voided = self._begun
            self._lease_began_s = _NEVER

    def end(self) -> None:
        """No attempt begins any more; whoever waits is told UNKNOWN. The lease runs on to its end."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    # --- inside

    def _is_done(self, number: int) -> bool:
        return self._done >= number or self._ended

    def _pause_s(self) -> float | None:
        """How long after the newest attempt began the next one is due; None if nobody needs one."""
        is_asked = self._asked > self._begun
        if not is_asked and not self._needed:
            return None
        if self._done < self._begun:
            return GIVEN_UP_S
        if is_asked:
            return AFTER_UNKNOWN_S if self._proof.standing is MembershipStatus.UNKNOWN else 0.0
        return self._interval_s if self._proof.is_member else min(self._interval_s, AFTER_FAILURE_S)
