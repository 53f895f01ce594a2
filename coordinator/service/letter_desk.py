"""A group's dead letters, one pass over them after the other: originals read, letters written, records filed.

Rules: a record is filed only once its letter is written, or is wanted no more, or there is no record; a crash between
the two doubles the letter, whose origin headers make it one again. What can't be written now does not hold up what can:
a partition of the dead letter topic that fails is left out for the rest of the pass.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import groupby

from coordinator.dead_letters.letter import Letter, Origin, letter, letter_partition
from coordinator.dead_letters.originals import Absent, Original, Originals, Why
from coordinator.dead_letters.writer import OF_THE_RECORD, Fate, LetterWriter, Written
from coordinator.errors import (
    BrokerNotReachable,
    BrokerRefused,
    CoordinatorNotAvailable,
    GroupTakenOver,
    NotCoordinator,
    ShareGroupError,
)
from coordinator.service import letter_backlog
from coordinator.service.cluster import Cluster
from coordinator.service.dead_letter_topic import check_dead_letter_topic
from coordinator.service.letter_backlog import BEGINNING, Backlog, Due, Place
from coordinator.service.seldom import SeldomLog
from coordinator.service.state import Engined
from coordinator.service.subscription import id_of
from coordinator.values import Disposition

CHUNK_LETTERS = 5_000
CHUNK_BYTES = 16 << 20
PROBE_LETTERS = 100
"""After a failure the first letters of a pass are so few: there is no use in reading many that can't be written."""
ARCHIVE_AFTER_ATTEMPTS = 5
"""As natively, where errors.deadletterqueue.on.failure=archive."""
STALL_S = 5.0
PAST_END_S = 60.0
"""A log that still ends below a record after this long has lost it; before, its leader may just not show all of it."""
GONE_PAUSES_S = (0.1, 0.3, 0.6)

_log = logging.getLogger(__name__)


class Left(IntEnum):
    """What a pass has left behind."""

    NOTHING = 0
    BLOCKED = 1
    """Letters that can't be written until a person mends something."""
    WAITING = 2
    """Letters that may be written later."""
    GROUP_GONE = 3
    """The group is not served here any more."""


class Desk:
    """Used by one thread at a time. Its connections are opened by a pass that needs them; :meth:`close` ends them."""

    def __init__(
        self,
        group_id: str,
        engine: Engined,
        cluster: Cluster,
        kafka_config: Mapping[str, str],
        said: SeldomLog,
        is_stopped: Callable[[], bool],
    ) -> None:
        self.group_id = group_id
        self.attempts = 0
        """Passes in a row that left something behind."""
        self._engine, self._cluster, self._kafka_config = engine, cluster, kafka_config
        self._said, self._is_stopped = said, is_stopped
        self._originals: dict[bool, Originals] = {}
        self._writer: LetterWriter | None = None
        self._past_end_since: float | None = None
        self._pass = _Pass()

    def __repr__(self) -> str:
        return f"<Desk {self.group_id} attempts={self.attempts}>"

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
        for originals in self._originals.values():
            originals.close()
        self._originals = {}
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    # --- a pass

    def _work(self) -> Left:
        place: Place | None = BEGINNING
        while place is not None and not self._is_stopped():
            backlog = self._engine.call(self.group_id, letter_backlog.look(place, self._pass.is_up))
            if backlog is None:
                return Left.GROUP_GONE
            place = backlog.reached
            if backlog.due:
                self._go_through(backlog)
        return Left.WAITING if self._is_stopped() else self._pass.left

    def _go_through(self, backlog: Backlog) -> None:
        if not backlog.config.errors_deadletterqueue_topic_name:
            unwanted = [(due, offset) for due in backlog.due for offset in range(due.first, due.last + 1)]
            self._file(backlog, unwanted, "not_wanted")
            return
        if not self._has_topic(backlog):
            return
        chunk: list[tuple[Due, int, Letter | None]] = []
        size_bytes = 0
        for due, offset, written in self._letters(backlog):
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
            self._file(backlog, [(due, n) for due in backlog.due for n in range(due.first, due.last + 1)], "lost")
            return False
        self._pass.found(name, partitions)
        return True

    def _write(self, backlog: Backlog, chunk: Sequence[tuple[Due, int, Letter | None]]) -> None:
        """Write the letters, then file what is settled."""
        self._file(backlog, [(due, offset) for due, offset, written in chunk if written is None], "not_in_the_log")
        letters = [(due, offset, written) for due, offset, written in chunk if written is not None]
        if self._writer is None:
            self._writer = LetterWriter(self._cluster.addresses, self._kafka_config)
        fates = self._writer.write(self._pass.topic, self._pass.partitions, [written for _, _, written in letters])
        settled: dict[str, list[tuple[Due, int]]] = {}
        for (due, offset, written), fate in zip(letters, fates, strict=True):
            if (settled_as := self._settled(backlog, written, fate)) is not None:
                settled.setdefault(settled_as, []).append((due, offset))
        for settled_as, records in settled.items():
            self._file(backlog, records, settled_as)

    def _settled(self, backlog: Backlog, written: Letter, fate: Written) -> str | None:
        """As what the record is filed; None if it stays."""
        if fate.fate is Fate.WRITTEN:
            self._pass.has_written = True
            if fate.headers_only:
                self._said.say(
                    f"bare {self.group_id}", f"dead letter without its record: {written.origin} {fate.reason}"
                )
            return "headers_only" if fate.headers_only else "written"
        is_for_good = fate.fate is Fate.CANT_HEAL
        does_archive = backlog.config.errors_deadletterqueue_on_failure == "archive"
        if (is_for_good and does_archive) or self._gives_up(backlog):
            self._say_lost(f"{written.origin} {fate.reason}")
            return "lost"
        if fate.reason not in OF_THE_RECORD:
            self._pass.down.add(letter_partition(written.origin.partition, self._pass.partitions))
        self._hold(Left.BLOCKED if is_for_good else Left.WAITING, f"{self._pass.topic}: {fate.reason}")
        return None

    def _file(self, backlog: Backlog, records: Sequence[tuple[Due, int]], settled_as: str) -> None:
        if records:
            letters = letter_backlog.coalesced(records)
            self._engine.call(self.group_id, letter_backlog.file(backlog.incarnation, letters))
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

    # --- letters

    def _letters(self, backlog: Backlog) -> Iterator[tuple[Due, int, Letter | None]]:
        """Each record of the backlog with its letter, in order; None for one that the log never had. Those that can't
        be read now are left out."""
        gone = self._gone_topics(backlog)
        for key, group in groupby(backlog.due, key=lambda due: due.key):
            due = list(group)
            if not self._pass.is_up(key.partition):
                continue
            copies = backlog.config.errors_deadletterqueue_copy_record_enable
            # Only what a consumer or a sink has had is known to be in the log.
            reads = copies or any(each.disposition is not Disposition.REJECTED for each in due)
            if key.topic_id in gone or not reads:
                yield from ((each, n, self._bare(each, n)) for each in due for n in range(each.first, each.last + 1))
            else:
                yield from self._read(backlog, due, copies=copies)

    def _read(self, backlog: Backlog, due: list[Due], *, copies: bool) -> Iterator[tuple[Due, int, Letter | None]]:
        offsets = [n for each in due for n in range(each.first, each.last + 1)]
        owners = iter(due)
        owner = next(owners)
        try:
            for answer in self._answers(backlog, due[0], offsets):
                if not self._pass.is_up(due[0].key.partition):
                    return
                while answer.offset > owner.last:
                    owner = next(owners)
                if isinstance(answer, Original):
                    yield owner, answer.offset, self._whole(owner, answer, copies=copies)
                elif answer.why is Why.NEVER:
                    yield owner, answer.offset, None
                elif answer.why is Why.GONE or self._is_lost(answer.offset):
                    yield owner, answer.offset, self._bare(owner, answer.offset)
        except BrokerNotReachable as error:
            self._hold(Left.WAITING, str(error))

    def _answers(self, backlog: Backlog, due: Due, offsets: list[int]) -> Iterator[Original | Absent]:
        """Of all the offsets; an original that can't be read at all counts as gone."""
        while offsets:
            answered = 0
            try:
                for answer in self._reader(backlog).read(due.topic, due.key.partition, offsets):
                    answered += 1
                    yield answer
                return
            except BrokerRefused as refused:
                self._said.say(f"unreadable {self.group_id}", str(refused))
                is_all = "AUTH" in refused.fields["reason"]
                given_up = len(offsets) if is_all else answered + 1
                yield from (Absent(n, Why.GONE) for n in offsets[answered:given_up])
                offsets = offsets[given_up:]

    def _reader(self, backlog: Backlog) -> Originals:
        committed = backlog.config.share_isolation_level == "read_committed"
        if committed not in self._originals:
            self._originals[committed] = Originals(
                self._cluster.addresses, self._kafka_config, read_committed=committed, stall_s=STALL_S
            )
        return self._originals[committed]

    def _is_lost(self, offset: int) -> bool:
        """Whether a log has ended below the record for so long that it is not there any more."""
        now = time.monotonic()
        self._past_end_since = self._past_end_since or now
        if now - self._past_end_since >= PAST_END_S:
            return True
        self._hold(Left.WAITING, f"the log ends below offset {offset}")
        return False

    def _gone_topics(self, backlog: Backlog) -> frozenset[str]:
        """Ids of topics that were deleted, or made anew: what lies at their offsets now is something else. A broker
        that does not know a topic yet says the same: it is asked again before originals are given up."""
        named = {due.key.topic_id: due.topic for due in backlog.due}
        for pause_s in (*GONE_PAUSES_S, 0.0):
            now = self._cluster.topics(named.values())
            ids = {name: id_of(topic, self.group_id, topic_ids=backlog.topic_ids) for name, topic in now.items()}
            gone = frozenset(topic_id for topic_id, name in named.items() if ids.get(name) != topic_id)
            if not gone:
                break
            time.sleep(pause_s)
        return gone

    def _whole(self, due: Due, original: Original, *, copies: bool) -> Letter:
        return letter(
            self._origin(due, original.offset),
            due.disposition,
            message=due.reason,
            key=original.key,
            value=original.value,
            headers=original.headers,
            copy=copies,
        )

    def _bare(self, due: Due, offset: int) -> Letter:
        return letter(self._origin(due, offset), due.disposition, message=due.reason, copy=False)

    def _origin(self, due: Due, offset: int) -> Origin:
        return Origin(due.topic, due.key.partition, offset, self.group_id, due.delivery_count)


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
        return not self.down or letter_partition(source_partition, self.partitions) not in self.down
