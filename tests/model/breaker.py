"""The naive model's breaker on releases (docs/adr/0048-a-breaker-on-releases.md): when a query acquires later and less,
and when a release is no try."""

from __future__ import annotations

from tests.model.plans import PlansModel
from tests.model.state import Breaker, Member

FROM, PROBE, DAY_MS, SECOND_MS = 10, 10, 86_400_000, 1_000


class BreakerModel(PlansModel):
    """PlansModel, with the breaker of each query."""

    @property
    def has_breaker(self) -> bool:
        return self.breaker_ratio < 1 and self.backoff.first_ms > 0 and self.backoff.max_ms > 0

    def is_open(self, member: Member) -> bool:
        return self.has_breaker and member.breaker.pauses > 0

    def keeps_tries(self, member: Member) -> bool:
        return self.is_open(member) and member.breaker.paused_ms < DAY_MS

    def is_paused(self, member: Member, now_ms: int) -> bool:
        return self.is_open(member) and now_ms < member.breaker.until_ms <= now_ms + self.backoff.max_ms

    def back_together(self, most: int) -> int:
        """How many of a plan's records may have come back while it is open."""
        return max(1, int(most * self.breaker_ratio))

    def judge(self, member: Member, outcomes: list[bool], now_ms: int) -> bool:
        """A plan is completed, of whose decided records these were released; whether its releases are no tries."""
        keeps = self.keeps_tries(member)
        if not outcomes:
            return keeps
        breaker, released = member.breaker, sum(outcomes)
        if not self.has_breaker or released <= self.breaker_ratio * len(outcomes):
            self.met["breaker closed"] += self.is_open(member)
            member.breaker = Breaker()
            return keeps
        breaker.released += released
        breaker.records += len(outcomes)
        if not breaker.pauses:
            if breaker.released < FROM:
                return False
            others = [m for m in self.members.values() if m is not member and m.deadline_ms is not None]
            breaker.since_ms = now_ms
            breaker.paused_ms = max((m.breaker.paused_ms for m in others if self.is_open(m)), default=0)
            keeps = 0 < breaker.paused_ms < DAY_MS
            self.met["breaker opened, beside another" if breaker.paused_ms else "breaker opened"] += 1
        self.met["released, and no try"] += keeps
        breaker.pauses += 1
        breaker.since_ms = min(breaker.since_ms, now_ms)
        low_ms, high_ms = self.backoff.window_ms(breaker.pauses)
        self.pausing[member.name] = (now_ms, now_ms + low_ms, now_ms + high_ms)
        return keeps

    def pause(self, member: Member, began_ms: int, until_ms: int) -> None:
        """How long the query pauses is the core's choice."""
        member.breaker.until_ms = until_ms
        member.breaker.paused_ms += max(until_ms - began_ms, SECOND_MS)
