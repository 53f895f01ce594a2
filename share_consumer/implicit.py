"""The records that a ShareConsumer in implicit mode holds. The next poll or commit accepts the records that the program
has, and rejects or releases unreadable ones. Pure: no clock, thread or I/O.

Rule: no record has an outcome of its own. So records are kept as runs, and a poll's records are counted, not scanned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coordinator.protocol.messages import PartitionAcks
from coordinator.protocol.values import AcknowledgeType
from share_consumer.record_runs import RecordRun, acks_of_runs, batch
from share_consumer.sending import Sending, UnreadOffsets


class ImplicitInFlight(UnreadOffsets):
    """The records of one consumer, in the order in which polls return them."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: list[RecordRun] = []
        self._handed_out = 0
        self._accepted: list[RecordRun] = []

    def __repr__(self) -> str:
        return f"<ImplicitInFlight {self._handed_out} records handed out>"

    def add(self, runs: Iterable[RecordRun]) -> None:
        """Add records for a poll to return. No record is accepted before it is handed out."""
        for run in runs:
            if run not in self._runs:  # else this was interrupted, and is done again
                # A topic that was deleted and made anew: nothing of the one before is held.
                self._runs = [each for each in self._runs if each.key != run.key or each.topic_id == run.topic_id]
                self._runs.append(run)

    def hand_out(self, count: int) -> None:
        """Count the next ``count`` records, in the order of :meth:`add`, as handed to the program."""
        self._handed_out += count

    def accept_all(self) -> None:
        while self._handed_out > 0 and self._runs:
            run = self._runs[0]
            part = run.part(self._handed_out)
            run.skip_to(part.last + 1)
            if not len(run):
                del self._runs[0]
            self._handed_out -= len(part)
            if gives_back := self.ordered and part.outcome == AcknowledgeType.RELEASE:
                run.unlocked = True  # the release of its first records gives back the others
            if not (gives_back and part.unlocked):
                self._accepted.append(part)
        self._handed_out = 0

    def releases(self) -> Iterator[tuple[str, int, int]]:
        """Yield topic id, partition and last offset of each release that gives later records back."""
        for run in self._accepted if self.ordered else ():
            if run.outcome == AcknowledgeType.RELEASE:
                yield run.topic_id, run.key[1], run.last

    @property
    def holds_records(self) -> bool:
        """Whether there are records whose outcome was not sent yet."""
        return bool(self._runs or self._accepted)

    @property
    def has_outcomes(self) -> bool:
        return bool(self._accepted or self._unread)

    def take(self) -> Sending:
        """Take the accepted records and the gaps, to send them; they are no longer in flight."""
        sending = self.take_unread()
        accepted, self._accepted = self._accepted, []
        for run, last in _joined(accepted):
            sending.add(run.key, run.topic_id, [batch(run.first, last, run.delivery_count, run.outcome)])
        return sending

    def renewals(self) -> tuple[PartitionAcks, ...]:
        return acks_of_runs((run for run in self._runs if not run.unlocked), AcknowledgeType.RENEW)

    def forget_lock(self, refused: PartitionAcks) -> None:
        """Stop renewing a refused range, if the consumer still holds all of it. Otherwise the range was refused because
        its outcome was sent meanwhile."""
        ranges = {(each.first, each.last, each.delivery_count) for each in refused.batches}
        for run in self._runs:
            if (run.topic_id, run.key[1]) == (refused.topic_id, refused.partition):
                run.unlocked |= (run.first, run.last, run.delivery_count) in ranges

    def clear(self) -> None:
        self._handed_out = 0
        for each in (self._runs, self._accepted, self._unread):
            each.clear()


def _alike(run: RecordRun) -> tuple[object, ...]:
    return run.key, run.topic_id, run.delivery_count, run.outcome


def _joined(runs: list[RecordRun]) -> list[tuple[RecordRun, int]]:
    """Join neighbouring runs that are alike. Returns the first run of each, with the last offset."""
    found: list[tuple[RecordRun, int]] = []
    for run in runs:
        if found:
            before, last = found[-1]
            if _alike(before) == _alike(run) and last + 1 == run.first:
                found[-1] = (before, run.last)
                continue
        found.append((run, run.last))
    return found
