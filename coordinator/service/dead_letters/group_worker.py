"""Writes a group's dead letters. Each pass reads source records, writes dead letters, and archives their records.

Rules: a record is archived only once its dead letter is written or not wanted any more, or the log has no such record.
A crash in between writes the dead letter twice; its origin headers identify the duplicate. A dead letter that can't be
written now does not block others: the rest of the pass skips the failing partition of the dead letter topic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum

from coordinator.config.group_keys import DEAD_LETTER_SOURCES
from coordinator.dead_letters.producer import OF_THE_RECORD, DeadLetterProducer, WriteResult, WriteStatus
from coordinator.dead_letters.record_format import DeadLetterRecord, dead_letter_partition
from coordinator.protocol.allowed_topics import SOURCE_KEY
from coordinator.protocol.errors import (
    BrokerNotReachable,
    CoordinatorNotAvailable,
    GroupTakenOver,
    NotCoordinator,
    ShareGroupError,
)
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.topic_names import is_allowed
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.dead_letters import group_backlog
from coordinator.service.dead_letters.builder import DeadLetterBuilder
from coordinator.service.dead_letters.group_backlog import BEGINNING, Backlog, BacklogCursor, Due
from coordinator.service.dead_letters.topic_check import check_dead_letter_topic
from coordinator.service.runtime.transaction import Groups

DEAD_LETTERS_IN_A_CHUNK = 10_000
"""Up to this many dead letters are written before one append archives their records. After a crash no more than these
are written again."""
CHUNK_BYTES = 16 << 20
"""A chunk of dead letters has up to this many bytes, so that large source records need little memory."""
DEAD_LETTERS_IN_A_PROBE = 100
"""The first write of a pass after a failure has this many dead letters: reading more may be useless."""
ARCHIVE_AFTER_ATTEMPTS = 5
"""A record is archived without its dead letter after this many attempts where
errors.deadletterqueue.on.failure=archive, as in Kafka."""

WRITTEN, HEADERS_ONLY = "written", "headers_only"
"""The log's words for a record whose dead letter was written."""

_log = logging.getLogger(__name__)


class PassResult(IntEnum):
    """The result of a pass: the largest result of its dead letters. WAITING is above BLOCKED: a coordinator may leave
    while dead letters are blocked, and may not leave while some may still be written."""

    DONE = 0
    BLOCKED = 1
    """Some dead letters can't be written until a person corrects something."""
    WAITING = 2
    """Some dead letters may be written later."""
    GROUP_GONE = 3
    """This coordinator does not serve the group any more."""


class GroupWorker:
    """The writer of one group's dead letters. One thread at a time uses it. A pass opens the connections that it needs;
    :meth:`close` closes them."""

    def __init__(
        self,
        group_id: str,
        groups: Groups,
        cluster: KafkaCluster,
        kafka_config: Mapping[str, str],
        doubts: TopicDoubts,
        log: LogOnce,
        is_stopped: Callable[[], bool],
    ) -> None:
        self.group_id = group_id
        self.attempts = 0
        """Passes in a row that left dead letters to write."""
        self._groups, self._cluster, self._kafka_config = groups, cluster, kafka_config
        self._log, self._is_stopped = log, is_stopped
        self._builder = DeadLetterBuilder(
            group_id, cluster, kafka_config, doubts, log, lambda why: self._hold(PassResult.WAITING, why)
        )
        self._writer: DeadLetterProducer | None = None
        self._pass = _Pass()

    def work(self) -> PassResult:
        self._pass = _Pass()
        try:
            result = self._work()
        except (GroupTakenOver, NotCoordinator):
            return PassResult.GROUP_GONE
        except (BrokerNotReachable, CoordinatorNotAvailable) as error:
            self._hold(PassResult.WAITING, str(error))
            result = PassResult.WAITING
        except ShareGroupError as error:  # a missing or forbidden topic, or a configuration that librdkafka refuses
            self._hold(PassResult.BLOCKED, str(error))
            result = max(self._pass.result, PassResult.BLOCKED)
        self.attempts = self.attempts + 1 if result in (PassResult.BLOCKED, PassResult.WAITING) else 0
        if self._pass.counts:
            counts = " ".join(f"{what}={count}" for what, count in self._pass.counts.items())
            _log.info("dead letters done: group=%s %s", self.group_id, counts)
        return result

    def close(self) -> None:
        self._builder.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    # --- a pass

    def _work(self) -> PassResult:
        cursor: BacklogCursor | None = BEGINNING
        while cursor is not None and not self._is_stopped():
            backlog = self._groups.call(self.group_id, group_backlog.look(cursor, self._pass.is_up))
            if backlog is None:
                return PassResult.GROUP_GONE
            cursor = backlog.reached
            if backlog.due:
                self._process(backlog)
        return PassResult.WAITING if self._is_stopped() else self._pass.result

    def _process(self, backlog: Backlog) -> None:
        if not backlog.config.errors_deadletterqueue_topic_name:
            unwanted = [(due, offset) for due in backlog.due for offset in due.offsets.as_range()]
            self._mark_written(backlog, unwanted, "not_wanted")
            return
        if not self._has_topic(backlog):
            return
        backlog = self._copied_from_allowed(backlog)
        chunk: list[tuple[Due, int, DeadLetterRecord | None]] = []
        size_bytes = 0
        for due, offset, written in self._builder.of(backlog, self._pass.is_up):
            chunk.append((due, offset, written))
            size_bytes += 0 if written is None else len(written.value or b"")
            most = DEAD_LETTERS_IN_A_PROBE if self.attempts and not self._pass.has_written else DEAD_LETTERS_IN_A_CHUNK
            if len(chunk) >= most or size_bytes >= CHUNK_BYTES:
                self._write(backlog, chunk)
                chunk, size_bytes = [], 0
            if self._is_stopped():
                return
        if chunk:
            self._write(backlog, chunk)

    def _has_topic(self, backlog: Backlog) -> bool:
        """Whether the dead letter topic can be written to. It is checked once a pass, and again if the config names
        another topic. False: the records were archived without dead letters
        (errors.deadletterqueue.on.failure=archive).

        Raises:
            TopicNotWritten, TopicNotAllowed, DeadLetterTopicMissing, DeadLetterTopicNotAuthorized,
                DeadLetterTopicSubscribed: on.failure is hold.
            BrokerNotReachable, CoordinatorNotAvailable: it may pass."""
        name = backlog.config.errors_deadletterqueue_topic_name
        if self._pass.topic == name:
            return True
        try:
            partitions = check_dead_letter_topic(self._cluster, backlog.config, is_read=backlog.reads_dead_letters)
        except (BrokerNotReachable, CoordinatorNotAvailable):
            raise
        except ShareGroupError as error:
            if backlog.config.errors_deadletterqueue_on_failure != "archive":
                raise
            self._hold_or_archive(backlog, backlog.due, str(error))
            return False
        self._pass.topic, self._pass.partitions, self._pass.down = name, partitions, set()
        return True

    def _copied_from_allowed(self, backlog: Backlog) -> Backlog:
        """Returns the backlog without records whose topic must not be copied. share.coordinator.source.topics and the
        group's errors.deadletterqueue.source.topics say which topics may be. The other records are held, or archived
        without dead letters (errors.deadletterqueue.on.failure=archive)."""
        allowed, of_group = self._cluster.allowed, backlog.config.errors_deadletterqueue_source_topics

        def may_copy(due: Due) -> bool:
            return allowed.allows_source(due.topic) and is_allowed(of_group, due.topic)

        held = [due for due in backlog.due if not may_copy(due)]
        if not held:
            return backlog
        names = ", ".join(sorted({due.topic for due in held}))
        reason = f"records of {names} are not copied: {SOURCE_KEY} of the coordinator allows {allowed.source}, and "
        reason += f"{DEAD_LETTER_SOURCES} of the group {of_group} alone"
        self._hold_or_archive(backlog, held, reason)
        return replace(backlog, due=tuple(filter(may_copy, backlog.due)))

    def _hold_or_archive(self, backlog: Backlog, held: Sequence[Due], reason: str) -> None:
        if backlog.config.errors_deadletterqueue_on_failure != "archive":
            self._hold(PassResult.BLOCKED, reason)
            return
        self._log_lost(reason)
        self._mark_written(backlog, [(due, n) for due in held for n in due.offsets.as_range()], "lost")

    def _write(self, backlog: Backlog, chunk: Sequence[tuple[Due, int, DeadLetterRecord | None]]) -> None:
        # The topic may have been deleted before the read, which then read another topic.
        topics = self._builder.source_topics(backlog)
        if topics.not_shown:
            chunk = [
                (due, offset, self._builder.bare(due, offset) if due.offsets.topic_id in topics.deleted else written)
                for due, offset, written in chunk
                if due.offsets.topic_id not in topics.in_doubt
            ]
        self._mark_written(
            backlog, [(due, offset) for due, offset, written in chunk if written is None], "not_in_the_log"
        )
        letters = [(due, offset, written) for due, offset, written in chunk if written is not None]
        if not letters:
            return
        if self._writer is None:
            self._writer = DeadLetterProducer(self._cluster.addresses, self._kafka_config)
        results = self._writer.write(self._pass.topic, self._pass.partitions, [written for _, _, written in letters])
        settled: dict[str, list[tuple[Due, int]]] = {}
        for (due, offset, written), result in zip(letters, results, strict=True):
            if (settled_as := self._settled(backlog, written, result)) is not None:
                settled.setdefault(settled_as, []).append((due, offset))
        for settled_as, records in settled.items():
            self._mark_written(backlog, records, settled_as)

    def _settled(self, backlog: Backlog, written: DeadLetterRecord, result: WriteResult) -> str | None:
        """Returns how the record is settled, as a word for the log; None if the record still waits."""
        if result.status is WriteStatus.WRITTEN:
            self._pass.has_written = True
            if result.headers_only:
                self._log.warn(
                    f"bare {self.group_id}", f"dead letter without its record: {written.origin} {result.reason}"
                )
            return HEADERS_ONLY if result.headers_only else WRITTEN
        is_permanent = result.status is WriteStatus.PERMANENT_FAILURE
        does_archive = backlog.config.errors_deadletterqueue_on_failure == "archive"
        if does_archive and (is_permanent or self.attempts + 1 >= ARCHIVE_AFTER_ATTEMPTS):
            self._log_lost(f"{written.origin} {result.reason}")
            return "lost"
        if result.reason not in OF_THE_RECORD:
            self._pass.down.add(dead_letter_partition(written.origin.partition, self._pass.partitions))
        self._hold(PassResult.BLOCKED if is_permanent else PassResult.WAITING, f"{self._pass.topic}: {result.reason}")
        return None

    def _mark_written(self, backlog: Backlog, records: Sequence[tuple[Due, int]], settled_as: str) -> None:
        if records:
            letters = group_backlog.coalesced(records)
            are_written = settled_as in (WRITTEN, HEADERS_ONLY)
            marked = group_backlog.mark_written(backlog.incarnation, letters, are_written=are_written)
            self._groups.call(self.group_id, marked)
            self._pass.counts[settled_as] = self._pass.counts.get(settled_as, 0) + len(records)

    # --- dead letters that can't be written

    def _log_lost(self, what: str) -> None:
        self._log.warn(
            f"lost {self.group_id}",
            f"archived without a dead letter (on.failure=archive): group={self.group_id} {what}",
        )

    def _hold(self, result: PassResult, reason: str) -> None:
        self._pass.result = max(self._pass.result, result)
        what = "wait, and are tried again" if result is PassResult.WAITING else "are held until a person corrects this"
        self._log.warn(f"held {self.group_id}", f"dead letters {what}: group={self.group_id} {reason}")


class _Pass:
    """The state of one pass: the dead letter topic, its partitions that fail, and the counts of settled records."""

    def __init__(self) -> None:
        self.topic = ""
        self.partitions = 0
        self.down: set[int] = set()
        self.result = PassResult.DONE
        self.has_written = False
        self.counts: dict[str, int] = {}

    def is_up(self, source_partition: int) -> bool:
        """Whether no write in this pass has failed to the dead letter partition of the source partition."""
        return not self.down or dead_letter_partition(source_partition, self.partitions) not in self.down
