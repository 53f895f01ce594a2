"""The letters of a backlog: each record's original, read where one is wanted, and what is written in its place where
there is none.

Rule: a letter copies the record that was delivered, or none: what lies at its offset in a topic made anew is another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby

from coordinator.dead_letters.record_format import DeadLetterRecord, Origin, letter
from coordinator.dead_letters.source_records import AbsenceReason, Absent, SourceRecord, SourceRecordReader
from coordinator.protocol.errors import BrokerNotReachable, BrokerRefused
from coordinator.protocol.values import Disposition, SharePartitionKey
from coordinator.service.brokers.cluster import Cluster
from coordinator.service.brokers.subscription import deleted_topic_ids
from coordinator.service.dead_letters.group_backlog import Backlog, Due
from coordinator.service.process.rate_limited_log import RateLimitedLog

STALL_S = 5.0
PAST_END_S = 60.0
"""A log that still ends below a record after this long has lost it; before, its leader may just not show all of it."""


class DeadLetterBuilder:
    """Of one group. ``wait_for`` is told why a letter can't be made now."""

    def __init__(
        self,
        group_id: str,
        cluster: Cluster,
        kafka_config: Mapping[str, str],
        said: RateLimitedLog,
        wait_for: Callable[[str], None],
    ) -> None:
        self._group_id, self._cluster, self._kafka_config = group_id, cluster, kafka_config
        self._said, self._wait_for = said, wait_for
        self._readers: dict[bool, SourceRecordReader] = {}
        self._past_end_since: dict[SharePartitionKey, float] = {}

    def __repr__(self) -> str:
        return f"<DeadLetterBuilder {self._group_id}>"

    def of(self, backlog: Backlog, is_up: Callable[[int], bool]) -> Iterator[tuple[Due, int, DeadLetterRecord | None]]:
        """Each record of the backlog with its letter, in order; None for one that the log never had. Those that can't
        be read now are left out, and so are those of source partitions that are not ``is_up``."""
        gone = self.gone_topics(backlog)
        for key, group in groupby(backlog.due, key=lambda due: due.offsets.key):
            found = self._bare_or_read(backlog, list(group), is_gone=key.topic_id in gone)
            while is_up(key.partition) and (one := next(found, None)) is not None:
                yield one

    def gone_topics(self, backlog: Backlog) -> frozenset[str]:
        """Ids of the backlog's topics that were deleted, or created anew."""
        names = {due.offsets.topic_id: due.topic for due in backlog.due}
        return deleted_topic_ids(self._cluster, names, self._group_id, topic_ids=backlog.topic_ids)

    def bare(self, due: Due, offset: int) -> DeadLetterRecord:
        """Without the record."""
        return letter(self._origin(due, offset), due.disposition, message=due.reason, copy=False)

    def close(self) -> None:
        """Let go of the connections."""
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            reader.close()

    # --- inside

    def _bare_or_read(
        self, backlog: Backlog, due: list[Due], *, is_gone: bool
    ) -> Iterator[tuple[Due, int, DeadLetterRecord | None]]:
        copies = backlog.config.errors_deadletterqueue_copy_record_enable
        # Only what a consumer or a sink has had is known to be in the log.
        reads = copies or any(each.disposition is not Disposition.REJECTED for each in due)
        if reads and not is_gone:
            return self._read(backlog, due, copies=copies)
        return ((each, n, self.bare(each, n)) for each in due for n in each.offsets.as_range())

    def _read(
        self, backlog: Backlog, due: list[Due], *, copies: bool
    ) -> Iterator[tuple[Due, int, DeadLetterRecord | None]]:
        offsets = [n for each in due for n in each.offsets.as_range()]
        owners = iter(due)
        owner, is_whole = next(owners), True
        try:
            for answer in self._answers(backlog, due[0], offsets):
                while answer.offset > owner.offsets.last:
                    owner = next(owners)
                if isinstance(answer, SourceRecord):
                    yield owner, answer.offset, self._whole(owner, answer, copies=copies)
                elif answer.why is AbsenceReason.NEVER:
                    yield owner, answer.offset, None
                elif answer.why is AbsenceReason.GONE or self._is_lost(owner.offsets.key, answer.offset):
                    yield owner, answer.offset, self.bare(owner, answer.offset)
                is_whole = is_whole and not (isinstance(answer, Absent) and answer.why is AbsenceReason.PAST_END)
            if is_whole:
                self._past_end_since.pop(due[0].offsets.key, None)
        except BrokerNotReachable as error:
            self._wait_for(str(error))

    def _answers(self, backlog: Backlog, due: Due, offsets: list[int]) -> Iterator[SourceRecord | Absent]:
        """Of all the offsets; an original that can't be read at all counts as gone."""
        while offsets:
            answered = 0
            try:
                for answer in self._reader(backlog).read(due.topic, due.offsets.partition, offsets):
                    answered += 1
                    yield answer
                return
            except BrokerRefused as refused:
                self._said.say(f"unreadable {self._group_id}", str(refused))
                is_all = "AUTH" in refused.fields["reason"]
                given_up = len(offsets) if is_all else answered + 1
                yield from (Absent(n, AbsenceReason.GONE) for n in offsets[answered:given_up])
                offsets = offsets[given_up:]

    def _reader(self, backlog: Backlog) -> SourceRecordReader:
        committed = backlog.config.share_isolation_level == "read_committed"
        if committed not in self._readers:
            self._readers[committed] = SourceRecordReader(
                self._cluster.addresses, self._kafka_config, read_committed=committed, stall_s=STALL_S
            )
        return self._readers[committed]

    def _is_lost(self, key: SharePartitionKey, offset: int) -> bool:
        """Whether a log has ended below the record for so long that it is not there any more."""
        now = time.monotonic()
        if now - self._past_end_since.setdefault(key, now) >= PAST_END_S:
            return True
        self._wait_for(f"the log ends below offset {offset}")
        return False

    def _whole(self, due: Due, original: SourceRecord, *, copies: bool) -> DeadLetterRecord:
        return letter(
            self._origin(due, original.offset),
            due.disposition,
            message=due.reason,
            key=original.key,
            value=original.value,
            headers=original.headers,
            copy=copies,
        )

    def _origin(self, due: Due, offset: int) -> Origin:
        return Origin(due.topic, due.offsets.partition, offset, self._group_id, due.delivery_count)
