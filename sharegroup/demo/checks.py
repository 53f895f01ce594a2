"""Checks the demo's promises on its outcome. Pure: turns an outcome into a list of checks, each passed or failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import pairwise

from sharegroup.demo.dead_letters import DeadLetter
from sharegroup.demo.orders import TOPIC, Record
from sharegroup.demo.payments import Asked
from sharegroup.demo.traces import BatchOutput, Bill, KilledBatch

BACKOFF_S = 0.5
"""Seconds: share.release.backoff.ms of query_program."""
GROWS = 2.0
SPREAD = 0.2
"""Defaults of share.release.backoff.multiplier and share.release.backoff.jitter; the backoff is shorter or longer by up
to the jitter, at random."""

_SHOWN = 5


@dataclass(frozen=True)
class Check:
    """One promise, whether it was kept, and the observed result (``finding``)."""

    promise: str
    passed: bool
    finding: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The state at the end of the story.

    Orders ``0 … orders - 1`` went into the topic, each at the offset that is its number. ``broken``: the records of the
    orders that can't be read. ``busy``: how often the payment service answers "try again" for an order. ``asked``: the
    requests for these orders. ``lag`` and ``archived`` are the group's, from its coordinator; ``lag`` None: not known.
    """

    orders: int
    broken: Mapping[int, Record]
    busy: Mapping[int, int]
    queries: tuple[str, ...]
    outputs: tuple[BatchOutput, ...]
    killed: KilledBatch
    dead_letters: tuple[DeadLetter, ...]
    asked: Mapping[int, tuple[Asked, ...]]
    lag: int | None
    archived: int

    def bills(self) -> Iterator[tuple[BatchOutput, Bill]]:
        """Every line of the output, with its batch."""
        return ((output, bill) for output in self.outputs for bill in output.bills)

    def of_query(self, query: str) -> tuple[BatchOutput, ...]:
        """The output of one query."""
        return tuple(output for output in self.outputs if output.query == query)

    def replayed(self) -> tuple[Bill, ...]:
        """The output of the batch that was killed, after its replay."""
        same = (o for o in self.of_query(self.killed.query) if o.batch_id == self.killed.batch_id)
        return tuple(bill for output in same for bill in output.bills)

    def released_by_killed(self) -> Set[int]:
        """Orders that the payment service refused in the batch that was killed."""
        key = key_of(self.killed.query, self.killed.batch_id)
        return {order for order, asked in self.asked.items() if any(a.key == key and not a.is_paid for a in asked)}

    def dead(self) -> Set[int]:
        """Orders that have a dead letter."""
        return {dead_letter.order for dead_letter in self.dead_letters}


def key_of(query: str, batch_id: int) -> str:
    """The key with which a batch calls the payment service."""
    return f"{query}-{batch_id}"


def check(outcome: Outcome) -> list[Check]:
    """All checks, in the order of the story."""
    return [
        _billed_or_dead(outcome),
        _shared(outcome),
        _more_tasks_than_partitions(outcome),
        _dead_letters(outcome),
        _tried_again(outcome),
        _killed_in_the_middle(outcome),
        _replayed_as_it_was(outcome),
        _delivery_counts(outcome),
        _lag(outcome),
        _archived(outcome),
    ]


def _billed_or_dead(outcome: Outcome) -> Check:
    found = Counter(bill.order for _, bill in outcome.bills())
    expected, dead = range(outcome.orders), outcome.dead()
    problems = _named(
        {
            "lost": [order for order in expected if order not in found and order not in dead],
            "billed more than once": [order for order, times in found.items() if times > 1],
            "both": [order for order in found if order in dead],
            "never ordered": [order for order in {*found, *dead} if order not in expected],
        }
    )
    return Check(
        "every order is billed once, or is a dead letter; none is both, none is lost",
        not problems,
        problems or f"{outcome.orders:,} orders: {found.total():,} bills, {len(dead):,} dead letters",
    )


def _dead_letters(outcome: Outcome) -> Check:
    dead_letters, broken = outcome.dead_letters, outcome.broken
    problems = _named(
        {
            "no dead letter": [order for order in broken if order not in outcome.dead()],
            "not broken": [order for order in outcome.dead() if order not in broken],
            "not as it was": [
                dead_letter.order
                for dead_letter in dead_letters
                if dead_letter.order in broken
                and (dead_letter.topic, dead_letter.record) != (TOPIC, broken[dead_letter.order])
            ],
            "without its reason": [
                dead_letter.order
                for dead_letter in dead_letters
                if dead_letter.order in broken and broken[dead_letter.order].value.decode() not in dead_letter.reason
            ],
        }
    )
    # At least once: a replayed batch writes its dead letters again. Their headers name the order.
    twice = (
        f", {len(dead_letters):,} dead letters: a replay writes them again"
        if len(dead_letters) > len(outcome.dead())
        else ""
    )
    return Check(
        "each broken order is in the dead letter topic as it was, with its reason",
        not problems,
        problems or f"{len(outcome.dead()):,} orders{twice}",
    )


def _tried_again(outcome: Outcome) -> Check:
    waits = {order: _waits_s(asked) for order, asked in outcome.asked.items()}
    problems = _named(
        {
            "not asked again": [order for order, times in outcome.busy.items() if len(waits.get(order, ())) < times],
            "asked more often": [order for order in waits if len(waits[order]) > outcome.busy.get(order, 0)],
            "too soon": [
                order
                for order, between in waits.items()
                if any(wait_s < _least_backoff_s(release) for release, wait_s in enumerate(between))
            ],
        }
    )
    shortest_s = min((wait_s for between in waits.values() for wait_s in between), default=0.0)
    twice = sum(len(between) > 1 for between in waits.values())
    found = f"{len(waits)} orders, {twice} of them twice; backoff {BACKOFF_S} s, back after {shortest_s:.1f} s or more"
    return Check("each order that was to be tried again came back, after its backoff", not problems, problems or found)


def _waits_s(asked: tuple[Asked, ...]) -> list[float]:
    return [after.at_s - before.at_s for before, after in pairwise(asked)]


def _least_backoff_s(release: int) -> float:
    """The shortest backoff of a release, in seconds; the first release is number 0."""
    return BACKOFF_S * GROWS**release * (1 - SPREAD)


def _shared(outcome: Outcome) -> Check:
    shares = {query: sum(len(output.bills) for output in outcome.of_query(query)) for query in outcome.queries}
    finding = ", ".join(f"{query}: {share:,}" for query, share in shares.items())
    return Check("both queries had a share of the partition", all(shares.values()), finding)


def _more_tasks_than_partitions(outcome: Outcome) -> Check:
    partitions = {bill.partition for _, bill in outcome.bills()}
    tasks = max((output.tasks for output in outcome.outputs), default=0)
    return Check(
        "more tasks than partitions read at a time",
        tasks > len(partitions) > 0,
        f"{tasks} tasks in a batch, {len(partitions)} partition{'' if len(partitions) == 1 else 's'}",
    )


def _killed_in_the_middle(outcome: Outcome) -> Check:
    killed = outcome.killed
    written, planned = len(killed.written), len(killed.planned)
    finding = f"{killed.query}'s batch {killed.batch_id}: {written:,} of {planned:,} orders written"
    if killed.committed:
        finding = f"{killed.query}'s batch {killed.batch_id} was done already"
    return Check("the kill hit the middle of a batch", not killed.committed and 0 < written < planned, finding)


def _replayed_as_it_was(outcome: Outcome) -> Check:
    killed = outcome.killed
    replayed = outcome.replayed()
    decided = outcome.broken.keys() | outcome.released_by_killed()
    to_bill = {(partition, offset) for partition, offset in killed.planned if offset not in decided}
    places = Counter((bill.partition, bill.offset) for bill in replayed)
    same_plan = places == Counter(to_bill)
    orders = {(bill.partition, bill.offset): bill.order for bill in replayed}
    changed = [bill.order for bill in killed.written if orders.get((bill.partition, bill.offset)) != bill.order]
    if not same_plan:
        missing, more = to_bill - places.keys(), places.keys() - to_bill
        doubled = [place for place, times in places.items() if times > 1]
        finding = f"{len(missing)} of its orders are missing, {len(more)} are new, {len(doubled)} doubled"
    elif changed:
        finding = f"not as written before: {_some(changed)}"
    else:
        finding = f"the same {len(killed.planned):,} orders: {len(replayed):,} billed"
    return Check("the killed batch was replayed as it was", same_plan and not changed, finding)


def _delivery_counts(outcome: Outcome) -> Check:
    replayed = {offset for _, offset in outcome.killed.planned}
    wrong = [
        bill.order
        for _, bill in outcome.bills()
        if bill.delivery_count != 1 + outcome.busy.get(bill.order, 0) + (bill.order in replayed)
    ]
    return Check(
        'deliveryCount is 1, and 1 more for the replay and for each "try again"',
        not wrong,
        f"not so for orders {_some(wrong)}" if wrong else "so for all bills",
    )


def _lag(outcome: Outcome) -> Check:
    return Check("the group's lag is 0", outcome.lag == 0, "unknown" if outcome.lag is None else f"lag {outcome.lag:,}")


def _archived(outcome: Outcome) -> Check:
    dead = len(outcome.dead())
    return Check(
        "the group archived the dead letters, and nothing else",
        outcome.archived == dead,
        f"{outcome.archived:,} archived",
    )


def _named(wrong: Mapping[str, list[int]]) -> str:
    """The problems, with their orders, as text; empty if there are none."""
    return "; ".join(f"{what}: {_some(orders)}" for what, orders in wrong.items() if orders)


def _some(orders: Iterable[int]) -> str:
    """The first few orders, and how many there are."""
    found = sorted(orders)
    more = f", … ({len(found):,} in all)" if len(found) > _SHOWN else ""
    return ", ".join(str(order) for order in found[:_SHOWN]) + more
