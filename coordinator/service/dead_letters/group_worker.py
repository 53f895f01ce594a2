"""A group's dead letters, one pass over them after the other: originals read, letters written, records filed.

Rules: a record is filed only once its letter is written, or is wanted no more, or there is no record; a crash between
the two doubles the letter, whose origin headers make it one again. What can't be written now does not hold up what can:
a partition of the dead letter topic that fails is left out for the rest of the pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

from coordinator.dead_letters.producer import OF_THE_RECORD, DeadLetterProducer, WriteResult, WriteStatus
from coordinator.dead_letters.record_format import DeadLetterRecord, dead_letter_partition
from coordinator.protocol.errors import (
    BrokerNotReachable,
    CoordinatorNotAvailable,
    GroupTakenOver,
    NotCoordinator,
    ShareGroupError,
)
from coordinator.service.brokers.cluster import Cluster
from coordinator.service.dead_letters import group_backlog
from coordinator.service.dead_letters.builder import DeadLetterBuilder
from coordinator.service.dead_letters.group_backlog import BEGINNING, Backlog, BacklogCursor, Due
from coordinator.service.dead_letters.topic_check import check_dead_letter_topic
from coordinator.service.process.rate_limited_log import RateLimitedLog
from coordinator.service.runtime.event_loop import RuntimeApi

CHUNK_LETTERS = 10_000
CHUNK_BYTES = 16 << 20
PROBE_LETTERS = 100
"""After a failure the first letters of a pass are so few: there is no use in reading many that can't be written."""
ARCHIVE_AFTER_ATTEMPTS = 5
"""As natively, where errors.deadletterqueue.on.failure=archive."""
_log = logging.getLogger(__name__)


class Left(IntEnum):
    """What a pass has left behind."""

    NOTHING = 0
    BLOCKED = 1
    """DeadLetterBuilder that can't be written until a person mends something."""
    WAITING = 2
    """DeadLetterBuilder that may be written later."""
    GROUP_GONE = 3
    """The group is not served here any more."""


class GroupWorker:
    """Used by one thread at a time. Its connections are opened by a pass that needs them; :meth:`close` ends them."""

    def __init__(
        self,
        group_id: str,
        event_loop: RuntimeApi,
        cluster: Cluster,
        kafka_config: Mapping[str, str],
        said: RateLimitedLog,
        is_stopped: Callable[[], bool],
    ) -> None:
        self.group_id = group_id
        self.attempts = 0
        """Passes in a row that left something behind."""
        self._event_loop, self._cluster, self._kafka_config = event_loop, cluster, kafka_config
        self._said, self._is_stopped = said, is_stopped
        self._letters = DeadLetterBuilder(
            group_id, cluster, kafka_config, said, lambda why: self._hold(Left.WAITING, why)
        )
        self._writer: DeadLetterProducer | None = None
        self._pass = _Pass()

    def __repr__(self) -> str:
        return f"<GroupWorker {self.group_id} attempts={self.attempts}>"

    def work(self) -> Left:
        """One pass over the backlog."""
        self._pass = _Pass()
        try:
            left = self._work()
        except (GroupTakenOver, NotCoordinator):
            return Left.GROUP_GONE
        except (BrokerNotReachable, CoordinatorNotAvailable) as error:
            self._hold(Left.WAITING, str(error))
            left = Left.WAITING
        except ShareGroupError as error:  # the topic is missing, or denied; a configuration that librdkafka refuses
            self._hold(Left.BLOCKED, str(error))
            left = max(self._pass.left, Left.BLOCKED)
        self.attempts = self.attempts + 1 if left in (Left.BLOCKED, Left.WAITING) else 0
        if self._pass.counts:
            counts = " ".join(f"{what}={count}" for what, count in self._pass.counts.items())
            _log.info("dead letters: group=%s %s", self.group_id, counts)
        return left

    def close(self) -> None:
        """Let go of the connections."""
        self._letters.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    # --- a pass

    def _work(self) -> Left:
        place: BacklogCursor | None = BEGINNING
        while place is not None and not self._is_stopped():
            backlog = self._event_loop.call(self.group_id, group_backlog.look(place, self._pass.is_up))
            if backlog is None:
                return Left.GROUP_GONE
            place = backlog.reached
            if backlog.due:
                self._go_through(backlog)
        return Left.WAITING if self._is_stopped() else self._pass.left

    def _go_through(self, backlog: Backlog) -> None:
        if not backlog.config.errors_deadletterqueue_topic_name:
            unwanted = [(due, offset) for due in backlog.due for offset in due.offsets.as_range()]
            self._file(backlog, unwanted, "not_wanted")
            return
        if not self._has_topic(backlog):
            return
        chunk: list[tuple[Due, int, DeadLetterRecord | None]] = []
        size_bytes = 0
        for due, offset, written in self._letters.of(backlog, self._pass.is_up):
            chunk.append((due, offset, written))
            size_bytes += 0 if written is None else len(written.value or b"")
            most = PROBE_LETTERS if self.attempts and not self._pass.has_written else CHUNK_LETTERS
            if len(chunk) >= most or size_bytes >= CHUNK_BYTES:
                self._write(backlog, chunk)
                chunk, size_bytes = [], 0
            if self._is_stopped():
                return
        if chunk:
            self._write(backlog, chunk)

    def _has_topic(self, backlog: Backlog) -> bool:
        """Looked for once a pass, and where the name was changed meanwhile. Its named error, unless records are
        archived without their letters then."""
        name = backlog.config.errors_deadletterqueue_topic_name
        if self._pass.topic == name:
            return True
        try:
            partitions = check_dead_letter_topic(self._cluster, backlog.config, backlog.own_topics)
        except (BrokerNotReachable, CoordinatorNotAvailable):
            raise
        except ShareGroupError as error:
            if backlog.config.errors_deadletterqueue_on_failure != "archive":
                raise
            self._say_lost(str(error))
            self._file(backlog, [(due, n) for due in backlog.due for n in due.offsets.as_range()], "lost")
            return False
        self._pass.found(name, partitions)
        return True

    def _write(self, backlog: Backlog, chunk: Sequence[tuple[Due, int, DeadLetterRecord | None]]) -> None:
        """Write the letters, then file what is settled."""
        if gone := self._letters.gone_topics(backlog):  # since it was read, perhaps: then another's was read
            chunk = [(d, n, self._letters.bare(d, n) if d.offsets.topic_id in gone else w) for d, n, w in chunk]
        self._file(backlog, [(due, offset) for due, offset, written in chunk if written is None], "not_in_the_log")
        letters = [(due, offset, written) for due, offset, written in chunk if written is not None]
        if not letters:
            return
        if self._writer is None:
            self._writer = DeadLetterProducer(self._cluster.addresses, self._kafka_config)
        fates = self._writer.write(self._pass.topic, self._pass.partitions, [written for _, _, written in letters])
        settled: dict[str, list[tuple[Due, int]]] = {}
        for (due, offset, written), fate in zip(letters, fates, strict=True):
            if (settled_as := self._settled(backlog, written, fate)) is not None:
                settled.setdefault(settled_as, []).append((due, offset))
        for settled_as, records in settled.items():
            self._file(backlog, records, settled_as)

    def _settled(self, backlog: Backlog, written: DeadLetterRecord, fate: WriteResult) -> str | None:
        """As what the record is filed; None if it stays."""
        if fate.fate is WriteStatus.WRITTEN:
            self._pass.has_written = True
            if fate.headers_only:
                self._said.say(
                    f"bare {self.group_id}", f"dead letter without its record: {written.origin} {fate.reason}"
                )
            return "headers_only" if fate.headers_only else "written"
        is_for_good = fate.fate is WriteStatus.CANT_HEAL
        does_archive = backlog.config.errors_deadletterqueue_on_failure == "archive"
        if (is_for_good and does_archive) or self._gives_up(backlog):
            self._say_lost(f"{written.origin} {fate.reason}")
            return "lost"
        if fate.reason not in OF_THE_RECORD:
            self._pass.down.add(dead_letter_partition(written.origin.partition, self._pass.partitions))
        self._hold(Left.BLOCKED if is_for_good else Left.WAITING, f"{self._pass.topic}: {fate.reason}")
        return None

    def _file(self, backlog: Backlog, records: Sequence[tuple[Due, int]], settled_as: str) -> None:
        if records:
            letters = group_backlog.coalesced(records)
            self._event_loop.call(self.group_id, group_backlog.file(backlog.incarnation, letters))
            self._pass.counts[settled_as] = self._pass.counts.get(settled_as, 0) + len(records)

    # --- what can't be written

    def _gives_up(self, backlog: Backlog) -> bool:
        """Whether a record is archived without its letter after so many attempts, as natively."""
        does_archive = backlog.config.errors_deadletterqueue_on_failure == "archive"
        return does_archive and self.attempts + 1 >= ARCHIVE_AFTER_ATTEMPTS

    def _say_lost(self, what: str) -> None:
        self._said.say(
            f"lost {self.group_id}",
            f"archived without a dead letter (on.failure=archive): group={self.group_id} {what}",
        )

    def _hold(self, left: Left, reason: str) -> None:
        self._pass.left = max(self._pass.left, left)
        what = "waiting for" if left is Left.WAITING else "held, until somebody mends it:"
        self._said.say(f"held {self.group_id}", f"dead letters {what} group={self.group_id} {reason}")


class _Pass:
    """What is known in one pass: the dead letter topic, which of its partitions fail, and what came of the letters."""

    def __init__(self) -> None:
        self.topic = ""
        self.partitions = 0
        self.down: set[int] = set()
        self.left = Left.NOTHING
        self.has_written = False
        self.counts: dict[str, int] = {}

    def found(self, topic: str, partitions: int) -> None:
        self.topic, self.partitions, self.down = topic, partitions, set()

    def is_up(self, source_partition: int) -> bool:
        """Whether letters of this source partition can be written, as far as this pass knows."""
        return not self.down or dead_letter_partition(source_partition, self.partitions) not in self.down
