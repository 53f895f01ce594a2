"""Judges what may become of a record, by the ledger's state before and by what the members wanted (the witness).

One holder at a time; a count is handed out once; nothing terminal changes; nothing is accepted that nobody accepted;
nothing is archived without a reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.core.record_state import HELD, TERMINAL, RecordState
from coordinator.core.runs import Run
from coordinator.protocol.values import Disposition
from tests.simulation.broker import Record
from tests.simulation.signals_judge import lock_is_over, wrong_end_of_work, wrong_signal

if TYPE_CHECKING:
    from tests.simulation.ledger import Ledger

A, Q, ACK = RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ACKNOWLEDGED
ARCHIVING, ARCHIVED, IN_PROGRESS = RecordState.ARCHIVING, RecordState.ARCHIVED, RecordState.IN_PROGRESS
GAP, ACCEPT, RELEASE, REJECT, DEFER = 0, 1, 2, 3, 5
REJECTED_BY_SINK = "rejected by a sink"
USED_UP = "its tries are used up"
LOST = "the log's loss"


@dataclass
class KnownPlan:
    """A plan as its acquisition appended it."""

    plan_id: int
    member_id: str
    query: bool
    trial: bool
    acquired_ms: int
    """When it was acquired, by the coordinator's clock."""
    started: bool = False
    explicit: bool = False
    """Whether the last attempt at its batch was in explicit mode; ``was_explicit``: whether any was."""
    was_explicit: bool = False
    replaces: bool | None = None
    """Whether all sinks of the last attempt sent that their target replaces its output."""
    epoch: int = 0


def wrong_change(ledger: Ledger, key: Record, before: Run, after: Run) -> str:
    """Returns why this change of a record is wrong, in a sentence; empty: it is right."""
    if before.state in TERMINAL:
        return "changes though it is done"
    if before.state == ARCHIVING:
        if after.state != ARCHIVED or after.delivery_count != before.delivery_count:
            return "was to be a dead letter"
        return "" if ledger.broker.letters[key] else "is archived, and its dead letter is not written"
    judge = ledger.ttl.wrong if after.disposition == Disposition.TTL else ledger.actions.wrong_by_hand
    judged = judge(key, before, after)
    if (wrong := _wrong_times(before, after) if judged is None else judged) is not None:
        return wrong
    if after.state == IN_PROGRESS:
        return wrong_signal(ledger, key, before, after)
    if after.progress is not None:
        return "has signals, and is not in progress"
    if after.state == Q:
        return _wrong_acquisition(ledger, key, before, after)
    if after.delivery_count != before.delivery_count:
        return "has another delivery count, and was not acquired"
    if after.state == A:
        return _wrong_return(ledger, key, before, after)
    if after.state == ACK:
        return _wrong_accept(ledger, key, before)
    wrong = _wrong_archive(ledger, key, before, after)
    if not wrong and after.state == ARCHIVING and not ledger.dead_letters:
        return "waits for a dead letter, and none is wanted"
    return wrong


def _wrong_times(before: Run, after: Run) -> str | None:
    """As wrong_change, if nothing else changes than the times that an owner bounds whose clock is behind; else None."""
    times = ("not_before_ms", "failed_alone_ms", "last_tried_ms")
    if after == before or after._replace(**{name: getattr(before, name) for name in times}) != before:
        return None
    later = [name for name in times if (getattr(after, name) or 0) > (getattr(before, name) or 0)]
    return f"has later times: {later}" if later else ""


def _wrong_acquisition(ledger: Ledger, key: Record, before: Run, after: Run) -> str:
    number = after.plan_id
    if number is None or number not in ledger.plans:
        return "is acquired under no known number"
    if after.delivery_count != before.delivery_count + 1:
        return "is acquired, and its count does not rise by one"
    early_ms = (before.not_before_ms or 0) - ledger.plans[number].acquired_ms  # by the clock of who acquired it
    if not before.quarantined and early_ms > 0:
        return f"is delivered {early_ms} ms too early"
    receipt = (*key, after.delivery_count)
    if receipt in ledger.delivered:
        return "is delivered under a count that was handed out before"
    if number not in (before.plan_id, ledger.last_plan_id):
        return f"carries {before.plan_id or 'no number'}, and plan {number} came back to it"
    if before.state == IN_PROGRESS or (before.state == Q and number != before.plan_id):
        return "has a holder, and is acquired by another one"
    if after.failures > before.failures + 1 or after.failures >= after.delivery_count:
        return "has more failures than deliveries"
    ledger.delivered[receipt] = number
    return ""


def _wrong_return(ledger: Ledger, key: Record, before: Run, after: Run) -> str:
    if after.failures > before.failures + 1 or after.failures > after.delivery_count:
        return "has more failures than deliveries"
    if before.state not in HELD:
        return "" if after.plan_id is None else "goes to a number, and nobody acquired it"
    plan = ledger.plans[before.plan_id or 0]
    kept, released = after.plan_id is not None, after.releases > before.releases
    if kept and after.plan_id != before.plan_id:
        return "returns under another number"
    if before.state == IN_PROGRESS:
        return wrong_end_of_work(ledger, key, before, after)
    if released and not plan.query and not _was_released(ledger, plan, key, before.delivery_count):
        return "is released, and nobody released it"
    if released and plan.query:
        return _wrong_release(ledger, plan, key, before, after)
    if kept:
        if not ledger.evidence.may_lose(plan.member_id, key, before.delivery_count):
            return "loses its lock too early"
        ledger.note_lost(key, before)
    elif plan.query and after.quarantined:
        ledger.note_lost(key, before)
    return ""


def _wrong_release(ledger: Ledger, plan: KnownPlan, key: Record, before: Run, after: Run) -> str:
    if not ledger.evidence.committed(plan.member_id, plan.plan_id):
        return f"is released, and plan {plan.plan_id}, whose batch it is in, was not committed"
    if not _may_be_released(ledger, plan, key, before):
        return f"is released, and its sinks said {_said(ledger, key, before)}"
    said = ledger.said.get((plan.plan_id, key), [])
    counts = said and not (plan.replaces and said[-1].delivery_count != before.delivery_count)
    own = counts and said[-1].outcome == RELEASE and said[-1].not_before_ms is not None
    if own and (after.delay_ms != said[-1].delay_ms or (after.not_before_ms or 0) > (said[-1].not_before_ms or 0)):
        return f"is released until {after.not_before_ms}, and its sink said {said[-1].not_before_ms}"
    return ""


def _may_be_released(ledger: Ledger, plan: KnownPlan, key: Record, run: Run) -> bool:
    """Whether the record may be released. An explicit attempt that named no outcome has released it, also in a
    later implicit attempt."""
    mixed = plan.was_explicit and not plan.explicit
    return mixed or ledger.outcome(key, run) == RELEASE


def _said(ledger: Ledger, key: Record, run: Run) -> list[tuple[int, int]]:
    return [(v.delivery_count, v.outcome) for v in ledger.said.get((run.plan_id or 0, key), [])]


def _was_released(ledger: Ledger, plan: KnownPlan, key: Record, count: int) -> bool:
    return ledger.evidence.has_left(plan.member_id) or ledger.evidence.asked_for(key, count, RELEASE)


def _wrong_accept(ledger: Ledger, key: Record, before: Run) -> str:
    number = before.plan_id
    plan = ledger.plans.get(number or 0)
    if plan is None or number is None:
        return "is accepted, and nobody had it"
    if plan.query and not ledger.evidence.committed(plan.member_id, number):
        return f"is accepted, and plan {number}, whose batch it is in, was not committed"
    if plan.query and ledger.evidence.was_unread(number, key):
        return "is accepted, and Kafka had removed it when its batch was read"
    if plan.query and ledger.outcome(key, before) != ACCEPT:
        return f"is accepted, and its sinks said {_said(ledger, key, before)}"
    if not plan.query and (
        before.state not in HELD or not ledger.evidence.asked_for(key, before.delivery_count, ACCEPT)
    ):
        return "is accepted, and its holder did not accept this delivery"
    ledger.done_by[key] = number
    return ""


def _wrong_archive(ledger: Ledger, key: Record, before: Run, after: Run) -> str:
    plan = ledger.plans.get(before.plan_id or 0)
    at_once = ledger.dead_letters and after.state == ARCHIVED
    if after.state == ARCHIVED and (key[0] in ledger.broker.gone or key[1] < ledger.broker.starts[key[0]]):
        ledger.archived[key] = LOST
    elif plan is None:
        return "is archived, and nobody had it"
    elif plan.query and (given_up := _given_up_by_sink(ledger, plan, key, before)):
        ledger.archived[key] = given_up
        if at_once and not (given_up == REJECTED_BY_SINK and _sink_wrote_dead_letter(ledger, plan, key)):
            return "is archived, and its dead letter is not written"
    elif at_once and (plan.query or not ledger.evidence.asked_for(key, before.delivery_count, GAP)):
        return "is archived, and its dead letter is not written"
    elif plan.query:
        if not (plan.trial and plan.started and before.quarantined):
            return "is archived, and was not on trial"
        # A second trial that is lost is judged as it ends, whatever became of its batch (docs/trust/guarantees.md).
        broke_off = before.trials_lost > 0 or ledger.evidence.trial_broke_off(plan.plan_id)
        if key not in ledger.broker.poison and not broke_off:
            return "is archived, is no poison, and its trial was not broken off"
        ledger.archived[key] = "a failed trial"
    elif ledger.evidence.asked_for(key, before.delivery_count, REJECT, GAP):
        ledger.archived[key] = "rejected"
    elif before.state == IN_PROGRESS and not (
        lock_is_over(ledger, before)
        or ledger.evidence.asked_for(key, before.delivery_count, RELEASE)
        or ledger.order.ends_with_its_holder(key, before)
    ):
        return "is in progress, and is given up before its lock is over"
    elif before.tries - before.query_failures + 1 >= ledger.limit:
        ledger.archived[key] = USED_UP
    else:
        return "is archived without a reason"
    return ""


def _given_up_by_sink(ledger: Ledger, plan: KnownPlan, key: Record, before: Run) -> str:
    """Why, if it was so at its completion."""
    if not ledger.evidence.committed(plan.member_id, plan.plan_id):
        return ""
    outcome = ledger.outcome(key, before)
    if outcome == REJECT:
        return REJECTED_BY_SINK
    may_be = _may_be_released(ledger, plan, key, before)
    used_up = may_be and before.state == Q and before.releases + 1 >= ledger.limit
    return USED_UP if used_up else ""


def _sink_wrote_dead_letter(ledger: Ledger, plan: KnownPlan, key: Record) -> bool:
    return ledger.broker.letters[key] > 0 and any(verdict.dead_letter for verdict in ledger.said[plan.plan_id, key])
