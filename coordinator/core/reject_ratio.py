"""The limit on rejects (ours; errors.deadletterqueue.max.reject.ratio): a bad deployment must not turn a whole topic
into dead letters.

The limit is judged when a batch completes, by all records of the batch: the number of its sinks' commits does not
matter, nor whether a record had a row. Records that the driver rejects because nobody can read them do not count.
"""

from __future__ import annotations

from typing import NamedTuple

REJECT_WINDOW = 10_000
"""The reject ratio is taken over about this many last decided records."""
JUDGED_FROM = 100
"""The reject ratio is not judged before this many records were decided: fewer prove nothing."""


class RejectWindow(NamedTuple):
    """The last records of a group that sinks accepted or rejected, and how many of these were rejected."""

    decided: int
    rejected: int

    def with_batch(self, accepted: int, rejected: int) -> RejectWindow:
        """The window after a batch. Both numbers are halved until there are at most REJECT_WINDOW records."""
        decided, rejected = self.decided + accepted + rejected, self.rejected + rejected
        while decided > REJECT_WINDOW:
            decided, rejected = decided // 2, rejected // 2
        return RejectWindow(decided, rejected)

    def is_exceeded_by(self, accepted: int, rejected: int, ratio: float) -> bool:
        """Whether the batch's rejects are too many for ``ratio``."""
        decided = self.decided + accepted + rejected
        return ratio < 1 and rejected > 0 and decided >= JUDGED_FROM and self.rejected + rejected > ratio * decided
