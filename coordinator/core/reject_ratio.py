"""The limit on rejects (ours; errors.deadletterqueue.max.reject.ratio): a bad deployment must not turn a whole topic
into dead letters.

The limit is judged when a batch completes, by all records of the batch, however many commits its sinks made and
whether the records had rows. Records that the driver itself rejects, since nobody can read them, do not count.
"""

from __future__ import annotations

from typing import NamedTuple

REJECT_WINDOW = 10_000
"""The reject ratio is that of about this many last decided records."""
JUDGED_FROM = 100
"""The reject ratio is judged from this many decided records on: fewer prove nothing."""


class RejectWindow(NamedTuple):
    """The last records of a group that sinks accepted or rejected, and how many of these were rejected."""

    decided: int
    rejected: int

    def with_batch(self, accepted: int, rejected: int) -> RejectWindow:
        """The window after a batch, halved until it holds about the last REJECT_WINDOW records."""
        decided, rejected = self.decided + accepted + rejected, self.rejected + rejected
        while decided > REJECT_WINDOW:
            decided, rejected = decided // 2, rejected // 2
        return RejectWindow(decided, rejected)

    def is_exceeded_by(self, accepted: int, rejected: int, ratio: float) -> bool:
        """Whether the batch's rejects are too many for ``ratio``."""
        decided = self.decided + accepted + rejected
        return ratio < 1 and rejected > 0 and decided >= JUDGED_FROM and self.rejected + rejected > ratio * decided
