"""How many records a ShareConsumer acquires ahead of its program, and when. Pure: the time comes as an argument.

Rules: nothing is acquired ahead before FULL_ANSWERS replies in a row brought as many records as were requested, and
BACKLOG_RECORDS in all. So a consumer that is not behind takes no record that another could work on, and a program that
reads few records sees the delivery counts of confluent_kafka.ShareConsumer. After that, a request is limited by the
constants below, and is sent just before the program needs the records. A program that works longer than LONGEST_POLL_S
on the records of one poll gets none ahead: it would save little."""

from __future__ import annotations

from typing import NamedTuple

AHEAD_S, MOST_AHEAD_S = 0.25, 2.0
"""A request asks for as many records as the program processes in AHEAD_S seconds, about ten times the length of an
acquisition: a late reply does not stop the program. Where replies are slow, the time is ANSWERS times that of
the last reply, up to MOST_AHEAD_S."""
MOST_READ_S = 2.0
"""A request asks for no more records than can be read in this many seconds, at the speed of the last reply: if each
record is a batch of its own, reading takes about ten times as long."""
ANSWERS = 3
PART_OF_THE_LOCK = 20
"""Records wait for at most a 20th of their lock's time, if the program keeps its speed."""
AHEAD_RECORDS = 200_000
"""A request asks for up to this many records. With a limit of 20,000, a program that does next to nothing waited for
acquisitions half of its time."""
AHEAD_BYTES = 48 << 20
FULL_ANSWERS = 3
BACKLOG_RECORDS = 2_000
"""Nothing is acquired ahead before full replies have brought this many records, which is four polls of the default
max.poll.records. Test programs rarely read as many."""
GROWTH = 32
"""A request asks for up to this many times the records of full replies: the last may have emptied the topic."""
LONGEST_POLL_S = 5.0


class Question(NamedTuple):
    """How many records to request, and when, by the clock of the calls."""

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

    @property
    def is_ahead(self) -> bool:
        return self._full_answers >= FULL_ANSWERS and self._backlog >= BACKLOG_RECORDS

    def polled(self, now_s: float) -> None:
        """A poll begins: the program has processed the records of the poll before."""
        if self._returned:
            each_s = (now_s - self._returned_s) / self._returned
            self._each_s = each_s if self._each_s is None else (self._each_s + each_s) / 2
            self._returned = 0

    def answered(
        self, asked: int, came: int, bytes_each: float, lock_s: float, took_s: float, read_s: float = 0.0
    ) -> None:
        """Record the reply to a request for ``asked`` records, which brought ``came``. ``bytes_each``: mean size of a
        record; ``lock_s``: length of the locks; ``took_s``: time from request to reply, of which ``read_s`` to read the
        records."""
        is_full = came >= asked
        self._full_answers = self._full_answers + 1 if is_full else 0
        self._backlog = self._backlog + came if is_full else 0
        if came:
            self._bytes_each = max(bytes_each, 1.0)
            self._read_each_s = read_s / came
            self._ahead_s = min(max(AHEAD_S, ANSWERS * took_s), MOST_AHEAD_S, lock_s / PART_OF_THE_LOCK)

    def returned(self, records: int, now_s: float) -> None:
        self._returned, self._returned_s = records, now_s

    def next_question(self, left: int, now_s: float) -> Question | None:
        """Returns the next request ahead of the program, with ``left`` records still waiting; None if none is due."""
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
