"""Builds the dead letters of a backlog: reads the source records that are copied, and builds dead letters without a
record for the others.

Rule: a dead letter copies the record that was delivered, or none: in a topic that was created again, that offset has
another record. If the brokers do not show a topic, and it does not count as deleted yet
(:mod:`coordinator.service.brokers.topic_doubts`), the dead letters that may copy its records wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby

from coordinator.dead_letters.record_format import DeadLetterRecord, Origin, dead_letter
from coordinator.dead_letters.source_records import AbsenceReason, Absent, SourceRecord, SourceRecordReader
from coordinator.protocol.errors import BrokerNotReachable, BrokerRefused
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.values import Disposition, SharePartitionKey
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.brokers.topic_doubts import LookedAt, TopicDoubts
from coordinator.service.dead_letters.group_backlog import Backlog, Due

STALL_S = 5.0
PAST_END_S = 60.0
"""If a log has ended below a record for this many seconds, the record is lost. A new leader may show less at first."""


_NO_ORIGINAL = frozenset({AbsenceReason.GONE, AbsenceReason.DAMAGED})


class DeadLetterBuilder:
    """Builds the dead letters of one group. It calls ``wait_for`` with the reason why one can't be built now."""

    def __init__(
        self,
        group_id: str,
        cluster: KafkaCluster,
        kafka_config: Mapping[str, str],
        doubts: TopicDoubts,
        log: LogOnce,
        wait_for: Callable[[str], None],
    ) -> None:
        self._group_id, self._cluster, self._kafka_config = group_id, cluster, kafka_config
        self._doubts, self._log, self._wait_for = doubts, log, wait_for
        self._readers: dict[bool, SourceRecordReader] = {}
        self._past_end_since: dict[SharePartitionKey, float] = {}

    def of(self, backlog: Backlog, is_up: Callable[[int], bool]) -> Iterator[tuple[Due, int, DeadLetterRecord | None]]:
        """Yield each record of the backlog with its dead letter, in order; None for an offset at which the log never
        had a record. Skips records that can't be read now, and source partitions that are not ``is_up``."""
        topics = self.source_topics(backlog)
        for key, group in groupby(backlog.due, key=lambda due: due.offsets.key):
            built = self._bare_or_read(backlog, list(group), topics)
            while is_up(key.partition) and (entry := next(built, None)) is not None:
                yield entry

    def source_topics(self, backlog: Backlog) -> LookedAt:
        """Returns those of the backlog's topics that the brokers do not list. Calls ``wait_for`` if some of them may
        have been deleted."""
        names = {due.offsets.topic_id: due.topic for due in backlog.due}
        looked = self._doubts.look(self._cluster, names, self._group_id, topic_ids=backlog.topic_ids)
        if looked.in_doubt:
            shown = ", ".join(sorted(names[topic_id] for topic_id in looked.in_doubt))
            self._wait_for(f"the brokers do not show {shown} at present, which may be deleted")
        return looked

    def bare(self, due: Due, offset: int) -> DeadLetterRecord:
        return dead_letter(self._origin(due, offset), due.disposition, message=due.reason, copy=False)

    def close(self) -> None:
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            reader.close()

    def _bare_or_read(
        self, backlog: Backlog, due: list[Due], topics: LookedAt
    ) -> Iterator[tuple[Due, int, DeadLetterRecord | None]]:
        copies = backlog.config.errors_deadletterqueue_copy_record_enable
        # Only a record that a consumer or a sink has rejected certainly exists in the log.
        reads = copies or any(each.disposition is not Disposition.REJECTED for each in due)
        topic_id = due[0].offsets.topic_id
        if reads and topic_id in topics.in_doubt:
            return iter(())
        if reads and topic_id not in topics.deleted:
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
                    yield owner, answer.offset, self._copied(owner, answer, copies=copies)
                elif answer.why is AbsenceReason.NEVER:
                    yield owner, answer.offset, None
                elif answer.why in _NO_ORIGINAL or self._is_lost(owner.offsets.key, answer.offset):
                    yield owner, answer.offset, self.bare(owner, answer.offset)
                is_whole = is_whole and not (isinstance(answer, Absent) and answer.why is AbsenceReason.PAST_END)
            if is_whole:
                self._past_end_since.pop(due[0].offsets.key, None)
        except BrokerNotReachable as error:
            self._wait_for(str(error))

    def _answers(self, backlog: Backlog, due: Due, offsets: list[int]) -> Iterator[SourceRecord | Absent]:
        """Yield an answer for each offset. A source record that can never be read counts as gone."""
        while offsets:
            answered = 0
            try:
                for answer in self._reader(backlog).read(due.topic, due.offsets.partition, offsets):
                    answered += 1
                    yield answer
                return
            except BrokerRefused as refused:
                self._log.warn(f"unreadable {self._group_id}", str(refused))
                is_all = "AUTH" in refused.fields["reason"]
                unreadable_to = len(offsets) if is_all else answered + 1
                yield from (Absent(n, AbsenceReason.GONE) for n in offsets[answered:unreadable_to])
                offsets = offsets[unreadable_to:]

    def _reader(self, backlog: Backlog) -> SourceRecordReader:
        committed = backlog.config.share_isolation_level == "read_committed"
        if committed not in self._readers:
            self._readers[committed] = SourceRecordReader(
                self._cluster.addresses, self._kafka_config, read_committed=committed, stall_s=STALL_S
            )
        return self._readers[committed]

    def _is_lost(self, key: SharePartitionKey, offset: int) -> bool:
        now = time.monotonic()
        if now - self._past_end_since.setdefault(key, now) >= PAST_END_S:
            return True
        self._wait_for(f"the log ends below offset {offset}")
        return False

    def _copied(self, due: Due, record: SourceRecord, *, copies: bool) -> DeadLetterRecord:
        return dead_letter(
            self._origin(due, record.offset),
            due.disposition,
            message=due.reason,
            key=record.key,
            value=record.value,
            headers=record.headers,
            timestamp_ms=record.timestamp_ms,
            copy=copies,
        )

    def _origin(self, due: Due, offset: int) -> Origin:
        return Origin(due.topic, due.offsets.partition, offset, self._group_id, due.delivery_count)
