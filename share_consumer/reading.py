"""Reads the records of one acquisition. A broker that is unreachable delays no records of others.

Rule: once some records were read, or another broker answers, the rest is given up after a while without a record. After
``part_s`` the records read so far are returned, and the rest is ``left`` to the next call: a poll must not wait for the
slowest record of a large acquisition. If no broker answers, all may be unreachable: then reading waits and fails as a
query's task does. The same holds if the broker answers with a refusal or with the end of its log."""

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
    """Offsets without a record: lost by the log, given up, or in damaged batches. ``left``: the next offset to read of
    each partition that was not read to its end."""

    lost: Offsets
    given_up: Offsets
    damaged: Mapping[Key, list[Damage]] = MappingProxyType({})
    left: Mapping[Key, int] = MappingProxyType({})

    @property
    def released(self) -> Offsets:
        """The offsets to release: all but the damaged ones."""
        return {key: [*self.lost.get(key, ()), *self.given_up.get(key, ())] for key in {*self.lost, *self.given_up}}


def read_records(
    task: ReadTask, into: Collector[Any], *, native: bool, patience_s: float, part_s: float = inf
) -> NotRead:
    """Read the task's records into a collection. ``native``: use the compiled reader; ``into`` must be a
    NativeCollector. ``patience_s``: give up the rest after this many seconds without a record, unless all brokers may
    be unreachable; then raise as ``read_task``. ``part_s``: return after this many seconds if any record has come."""
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
    """Read with each reader in turn until all is read or given up, or until ``until_s`` (monotonic) if any was read."""
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
    """Returns whether anything was read. At a ReadTimeout it gives up if others have read records, else it raises."""
    try:
        return reader.read_on(into, until_s)
    except ReadTimeout:
        if not _any_begun(readers):
            raise
        reader.give_up()
        return False


def _any_begun(readers: list[Reader]) -> bool:
    return any(reader.has_begun for reader in readers)
