"""How many records a ShareConsumer acquires ahead of its program, and when. Pure: the time comes as an argument.

Rules: nothing is acquired ahead before FULL_ANSWERS answers in a row brought as many records as were asked for, and
BACKLOG_RECORDS together: a consumer that is not behind takes nothing that another one could work on, and a program that
reads few records sees the delivery counts that confluent_kafka.ShareConsumer shows. Then a question asks for no more
records than the program works through in AHEAD_S (or in ANSWERS times what the last answer took), or for one poll's
records, and is sent so long before the program needs them; for no more than are read in MOST_READ_S; and for no more
than GROWTH times what the full answers have brought. A program that works for longer than LONGEST_POLL_S on one poll's
records gets none ahead: the saving would be one answer's time in all of these seconds.
"""

from __future__ import annotations

from typing import NamedTuple

AHEAD_S, MOST_AHEAD_S = 0.25, 2.0
"""A request asks for as many records as the program works off in AHEAD_S seconds, about ten times as long as an
acquisition takes, so that a late answer does not stop the program. Where answers take longer, the time is up to
MOST_AHEAD_S."""
MOST_READ_S = 2.0
"""A request asks for no more records than are read in this many seconds, at the last answer's speed: where each record
is a batch of its own, reading is some ten times slower."""
ANSWERS = 3
PART_OF_THE_LOCK = 20
"""Records wait for up to a 20th of their lock, if the program keeps its speed."""
AHEAD_RECORDS = 200_000
"""A request asks for up to this many records, for a program that does next to nothing: with 20,000 it waited for
acquisitions half of its time."""
AHEAD_BYTES = 48 << 20
FULL_ANSWERS = 3
BACKLOG_RECORDS = 2_000
"""Nothing is acquired ahead before full answers brought this many records: four polls of the default max.poll.records.
A test program rarely reads them, so it sees the delivery counts of confluent_kafka.ShareConsumer."""
GROWTH = 32
"""A request asks for up to this many times the records of the last full answers, which may have been all there was."""
LONGEST_POLL_S = 5.0


class Question(NamedTuple):
    """How many records to ask for, and when, in seconds of the clock of the calls."""

    records: int
    at_s: float


class Pace:
    """The speed of a program, from its polls."""

    def __init__(self, max_poll_records: int) -> None:
        self._max_poll_records = max_poll_records
        self._full_answers = 0
        self._backlog = 0
        self._returned_s = 0.0
        self._returned = 0
        self._each_s: float | None = None
        self._ahead_s = AHEAD_S
        self._bytes_each = 1.0
        self._read_each_s = 0.0

    def __repr__(self) -> str:
        return f"<Pace {self._each_s} s a record, {self._backlog} in {self._full_answers} full answers>"

    @property
    def is_ahead(self) -> bool:
        """Whether records are acquired ahead."""
        return self._full_answers >= FULL_ANSWERS and self._backlog >= BACKLOG_RECORDS

    def polled(self, now_s: float) -> None:
        """Record a poll: the program has worked through the records of the one before."""
        if self._returned:
            each_s = (now_s - self._returned_s) / self._returned
            self._each_s = each_s if self._each_s is None else (self._each_s + each_s) / 2
            self._returned = 0

    def answered(
        self, asked: int, came: int, bytes_each: float, lock_s: float, took_s: float, read_s: float = 0.0
    ) -> None:
        """Record the answer to a request for ``asked`` records. ``came``: how many it brought; ``bytes_each``: the
        bytes of each; ``lock_s``: the seconds of their locks; ``took_s``: seconds from the request to the answer, of
        which ``read_s`` to read the records."""
        is_full = came >= asked
        self._full_answers = self._full_answers + 1 if is_full else 0
        self._backlog = self._backlog + came if is_full else 0
        if came:
            self._bytes_each = max(bytes_each, 1.0)
            self._read_each_s = read_s / came
            self._ahead_s = min(max(AHEAD_S, ANSWERS * took_s), MOST_AHEAD_S, lock_s / PART_OF_THE_LOCK)

    def returned(self, records: int, now_s: float) -> None:
        """Record that a poll returns this many records."""
        self._returned, self._returned_s = records, now_s

    def next_question(self, left: int, now_s: float) -> Question | None:
        """Returns the request to send ahead of the program while ``left`` records wait for a poll; None if none is due
        then."""
        if not self.is_ahead or self._each_s is None or not self._returned:
            return None
        if self._returned * self._each_s > LONGEST_POLL_S:
            return None
        records = max(int(self._ahead_s / max(self._each_s, 1e-9)), self._max_poll_records)
        records = min(records, GROWTH * self._backlog, max(AHEAD_RECORDS, self._max_poll_records))
        records = min(records, max(int(AHEAD_BYTES / self._bytes_each), 1))
        records = min(records, max(int(MOST_READ_S / max(self._read_each_s, 1e-9)), 1))
        if left > records // 2:
            return None
        needed_s = now_s + (self._returned + left) * self._each_s
        return Question(records - left, max(needed_s - self._ahead_s, now_s))
