"""An administrator who acts at any time: resets, decisions by hand, releases of members, configs; and the judge of what
these actions may do to a record.

Rules: an action is carried out once, however often and late its request comes, and the append that has its effect says
so. A reset is in one append, all of it or nothing. What it skips is done by design, what it takes back is delivered
again under a higher count, and it changes nothing else.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from coordinator.core.log_records import ActionDone, OffsetsAltered
from coordinator.core.record_state import HELD, RecordState
from coordinator.core.runs import Run
from coordinator.protocol.admin_messages import AlterGroupConfigs, AlterOffsets, DecideRecords, ReleaseMember
from coordinator.protocol.admin_messages import OffsetChanges as Altered
from coordinator.protocol.errors import CoordinatorNotAvailable, ShareGroupError
from tests.simulation.broker import TOPIC, Record, log_of
from tests.simulation.session import GROUP, RETRY_TIMEOUT_MS, Answer, Session
from tests.simulation.simulated_world import Gone, Process, Task

if TYPE_CHECKING:
    from tests.simulation.ledger import Ledger
    from tests.simulation.service import ServiceRun

LATE_MS = 30_000
"""A request may arrive, and an append be written, up to this many ms after it was sent last."""
BY_HAND = "archived by hand"
WHY = "by hand"
"""The reason that each decision by hand has."""


@dataclass
class Actions:
    """The requests of an administrator, and the records that the log has of them."""

    ledger: Ledger
    asked: list[tuple[frozenset[int], bool]] = field(default_factory=list)
    """The logs of each reset that was to be executed, and whether the group had no others."""
    by_hand: set[tuple[str, Record]] = field(default_factory=set)
    released_until_ms: dict[str, int] = field(default_factory=dict)
    """By member, until when a request to release it may be under way."""
    reset: set[Record] = field(default_factory=set)
    """Records that a reset took from their holders."""
    starts: set[tuple[int, int]] = field(default_factory=set)
    """Each log and start offset that the group's log ever had, by a reset or at the beginning."""
    resets: int = 0
    skipped: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    """By log, the end of what was handed out, or of what resets passed over."""
    altered: set[int] = field(default_factory=set)
    """Logs whose start offsets the append that is read now altered; ``begun``: or set first."""
    begun: set[int] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    """The ids of the actions that were applied; ``just_done``: by the append that is read now."""
    just_done: set[str] = field(default_factory=set)

    def alter(self, record: OffsetsAltered) -> None:
        """The ledger's records as they are after the reset."""
        self.resets += 1
        for index, start in record.starts:
            log = log_of(record.topic_id, index)
            assert start is not None
            self.altered.add(log)
            self._begin_anew(log, start)

    def _begin_anew(self, log: int, start: int) -> None:
        ledger = self.ledger
        if start < ledger.log_starts.get(log, 0):
            ledger.world.fail(f"log {log} is reset to {start}, and begins at {ledger.log_starts[log]}")
        known = [offset for of, offset in ledger.runs if of == log]
        highest = max((count for of, _, count in ledger.delivered if of == log), default=0)
        end = self.ends[log] = max([self.ends.get(log, 0), start, *(offset + 1 for offset in known)])
        for offset in sorted({*known, *range(start, end if highest else start)}):
            before = ledger.runs.pop((log, offset), None)
            if before is not None and before.state == RecordState.ARCHIVING and offset < start:
                ledger.runs[log, offset] = before
                continue
            self.skipped += offset < start and before is not None
            self.reset.add((log, offset))
            ledger.just_changed.add((log, offset))
            ledger.in_progress.pop((log, offset), None)
            ledger.archived.pop((log, offset), None)
            if offset >= start:
                ledger.runs[log, offset] = Run(RecordState.AVAILABLE, highest)
        if not highest:  # nothing of it was ever delivered
            self.ends[log] = start
        ledger.starts[log] = start
        self.starts.add((log, start))

    def note_done(self, record: ActionDone) -> None:
        """The append carries out this action."""
        if record.action_id in self.done:
            self.ledger.world.fail(f"action {record.action_id} is carried out twice")
        self.done.add(record.action_id)
        self.just_done.add(record.action_id)

    def answered(self, answer: Any) -> None:
        """A reset that was answered as executed is in the log."""
        for row in answer.partitions if isinstance(answer, Altered) and answer.executed else ():
            log = log_of(row.topic_id, row.partition)
            if (log, row.after) not in self.starts and self.ledger.starts.get(log) != row.after:
                self.ledger.world.fail(f"log {log} is said to be reset to {row.after}, and is not in the log")

    def check_append(self) -> None:
        """A reset is in one append: all that one request asked for, and nothing else."""
        found, self.altered = self.altered, set()
        begun, self.begun = self.begun, set()
        done, self.just_done = self.just_done, set()
        if not found:
            return
        if not done:
            self.ledger.world.fail(f"logs {sorted(found)} are reset, and the append does not say by which action")
        for logs, whole in self.asked:
            if logs <= found | begun and (whole or found <= logs):
                return
        self.ledger.world.fail(f"logs {sorted(found)} are reset, and no request asked for these alone")

    def wrong_by_hand(self, key: Record, before: Run, after: Run) -> str | None:
        """Returns the reason why a decision by hand may not do this, empty if it may; None for any other change."""
        if after.state in (RecordState.ARCHIVED, RecordState.ARCHIVING) and ("archive", key) in self.by_hand:
            if before.state != RecordState.AVAILABLE:
                return None  # its holder may have given it up
            self.ledger.archived[key] = BY_HAND
            return ""
        if after.state != RecordState.AVAILABLE or ("release", key) not in self.by_hand:
            return None
        plan_id = None if before.quarantined else before.plan_id
        if after != Run(RecordState.AVAILABLE, before.delivery_count, plan_id=plan_id, reason=WHY):
            return None
        if before.state in HELD:
            self.ledger.note_lost(key, before)
        return ""

    def may_release(self, member_id: str) -> bool:
        """Whether a request to end the member's session is under way."""
        return self.ledger.world.now_ms <= self.released_until_ms.get(member_id, -1)


class Administrator(Process):
    """A person with a command line, who acts at random times until the faults stop."""

    def __init__(self, run: ServiceRun) -> None:
        super().__init__(run.world, "administrator")
        self.run, self.actions, self.mean_ms = run, run.ledger.actions, run.scenario.faults.administration_ms
        self.configs_share = 0.5 if run.scenario.faults.pauses else 0.1
        self.session, self.sent = Session(self, run.network, run.find, "administrator"), 0
        self.spawn(self._live())

    def _live(self) -> Task:
        while True:
            yield 1 + int(self.world.chance.expovariate(1 / self.mean_ms))
            if self.run.peace:
                yield from self._end_the_pause()
                raise Gone("peace")
            act = self.world.chance.choice((self._reset, self._reset, self._decide, self._decide, self._release))
            request = (self._configs if self.world.happens(self.configs_share) else act)()
            if request is None:
                continue
            try:
                yield from self._send(request)
            except CoordinatorNotAvailable:
                continue
            except ShareGroupError as error:
                self.world.note(self.name, f"is refused: {error}")

    def _end_the_pause(self) -> Task:
        """Before the run can end, what is paused must go on."""
        while self.run.scenario.faults.pauses and self.run.ledger.config.share_paused_topics:
            with contextlib.suppress(ShareGroupError):
                yield from self._send(AlterGroupConfigs(group_id=GROUP, execute=True, set={"share.paused.topics": ""}))
            yield 1_000

    def _send(self, request: Any) -> Answer:
        if isinstance(request, ReleaseMember):
            until_ms = self.world.now_ms + RETRY_TIMEOUT_MS + LATE_MS
            self.actions.released_until_ms[request.member_id] = until_ms
        if request.execute:
            self.sent += 1
            request = msgspec.structs.replace(request, action_id=f"{self.name}-{self.sent}")
        if request.execute and self.world.happens(0.5):
            look = yield from self.session.ask(msgspec.structs.replace(request, execute=False))
            request = msgspec.structs.replace(request, seen=look.state)
        return (yield from self.session.ask(request))

    def _reset(self) -> AlterOffsets:
        ledger, chance = self.actions.ledger, self.world.chance
        logs = sorted(ledger.starts)
        topics: dict[str, tuple[int, ...]] = {}
        if logs and self.world.happens(0.4):
            topics = {TOPIC: tuple(sorted(chance.sample(logs, self.world.between(1, len(logs)))))}
        execute = self.world.happens(0.8)
        if execute:
            self.actions.asked.append((frozenset(topics.get(TOPIC, logs)), not topics))
        to, value = chance.choice(
            (("earliest", 0), ("latest", 0), ("offset", chance.randrange(30)), ("shift", chance.randrange(-20, 20)))
        )
        return AlterOffsets(
            group_id=GROUP, execute=execute, to=to, value=value, topics=topics, force=self.world.happens(0.8)
        )

    def _decide(self) -> DecideRecords | None:
        """By hand: mostly of what is in flight."""
        ledger, chance = self.actions.ledger, self.world.chance
        if not ledger.runs:
            return None
        log, first = chance.choice(sorted(ledger.runs))
        last = first + chance.choice((0, 0, 2))
        decision = chance.choice(("archive", "release"))
        self.actions.by_hand.update((decision, (log, offset)) for offset in range(first, last + 1))
        fields = {"topic": TOPIC, "partition": log, "first": first, "last": last, "reason": WHY}
        return DecideRecords(group_id=GROUP, execute=True, decision=decision, **fields)

    def _release(self) -> ReleaseMember | None:
        members = sorted(self.actions.ledger.epochs)
        if not members:
            return None
        return ReleaseMember(group_id=GROUP, execute=True, member_id=self.world.chance.choice(members))

    def _configs(self) -> AlterGroupConfigs:
        if self.run.scenario.faults.pauses:
            paused, most = self.world.chance.choice(("", TOPIC, "*")), self.world.chance.choice(("", "2", "10"))
            flow = {"share.paused.topics": paused, "share.max.in.flight.records": most}
            return AlterGroupConfigs(group_id=GROUP, execute=True, set=flow)
        limit = self.world.chance.choice(("3", "5", "8"))
        return AlterGroupConfigs(group_id=GROUP, execute=True, set={"share.delivery.count.limit": limit})


def begin_administration(run: ServiceRun) -> None:
    """The administrator of the run begins to act."""
    Administrator(run)
