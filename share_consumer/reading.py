"""Reads the records of one acquisition: those of a broker that is away hold back no others.

Rule: once some records were read, or another broker answers, the others are given up after a while in which none comes.
After a time what was read is returned, and the rest is ``left`` to the next call: a poll must not wait for the slowest
record of a large acquisition.
Where no broker answers, all may be away: the reading waits, and fails, as a task of a query does. So it does where the
broker answers, with a refusal or the end of its log.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

from coordinator.kafka.damaged_batch import Damage
from coordinator.kafka.librdkafka import Silence
from share_source.errors import ReadTimeout
from share_source.executor.range_cursor import Key
from share_source.executor.range_reader import Collector, Reader, ReadTask
from share_source.executor.task_reader import open_readers

Offsets = dict[Key, list[tuple[int, int]]]
"""Offsets by partition, as (first, last)."""


class NotRead(NamedTuple):
    """The offsets without a record: lost by the log, given up, or of batches that can't be read. And the
    first offset still to be read, of each partition not read to its end."""

    lost: Offsets
    given_up: Offsets
    damaged: Mapping[Key, list[Damage]] = MappingProxyType({})
    left: Mapping[Key, int] = MappingProxyType({})

    @property
    def released(self) -> Offsets:
        """Returns those that are released: all but the damaged ones."""
        return {key: [*self.lost.get(key, ()), *self.given_up.get(key, ())] for key in {*self.lost, *self.given_up}}


def read_records(
    task: ReadTask, into: Collector[Any], *, native: bool, patience_s: float, part_s: float = inf
) -> NotRead:
    """Read the task's records into a collection. ``native``: compiled code reads them, and ``into`` is a
    NativeCollector. ``patience_s``: after this many seconds without a record the rest is given up, unless all brokers
    may be away; then it raises as ``read_task``. ``part_s``: after this many seconds it returns what has come, if
    anything has."""
    with open_readers(task, native) as readers:
        _read_what_comes(readers, into, patience_s, time.monotonic() + part_s)
        into.build()
    return NotRead(
        {key: lost for reader in readers for key, lost in reader.lost.items()},
        {key: offsets for reader in readers for key, offsets in reader.given_up.items()},
        {key: damaged for reader in readers for key, damaged in reader.damaged.items()},
        {key: position for reader in readers for key, position in reader.left.items()},
    )


def _read_what_comes(readers: list[Reader], into: Collector[Any], patience_s: float, until_s: float = inf) -> None:
    """Read with each reader for as long as records come, then with the next one, until all is read or given up, or the
    monotonic clock has reached ``until_s`` and something was read."""
    silence = Silence()
    for reader in readers:
        reader.begin(into)
    while unread := [reader for reader in readers if not reader.done]:
        for reader in unread:
            if _any_begun(readers) and time.monotonic() >= until_s:
                return
            if _read_on(reader, readers, into, until_s):
                silence.ends()
        is_over = silence.lasts_s() >= patience_s
        silent = [reader for reader in unread if not (reader.done or reader.is_answered)]
        if is_over and (_any_begun(readers) or any(reader.others_answer for reader in silent)):
            for reader in silent:
                reader.give_up()


def _read_on(reader: Reader, readers: list[Reader], into: Collector[Any], until_s: float) -> bool:
    """Returns whether the reader has read something. After a task's timeout it gives up, or raises ReadTimeout."""
    try:
        return reader.read_on(into, until_s)
    except ReadTimeout:
        if not _any_begun(readers):
            raise
        reader.give_up()
        return False


def _any_begun(readers: list[Reader]) -> bool:
    return any(reader.has_begun for reader in readers)
