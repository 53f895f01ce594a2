"""Checks the demo's promises on its outcome. Pure: an outcome becomes ten checks, each passed or failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from sharegroup.demo.dead_letters import DeadLetter
from sharegroup.demo.group import GroupState
from sharegroup.demo.orders import TOPIC, is_broken, record_of
from sharegroup.demo.payments import Asked, times_busy
from sharegroup.demo.query import Bill, KilledBatch

BACKOFF_S = 0.5
"""Seconds: share.release.backoff.ms of query_program."""
GROWS = 2.0
SPREAD = 0.2
"""Defaults of share.release.backoff.multiplier and share.release.backoff.jitter; the backoff is shorter or longer by up
to the jitter, at random."""

_SHOWN = 5


class Check(NamedTuple):
    """One promise, what was observed (``finding``), and whether the promise was kept."""

    promise: str
    finding: str
    passed: bool


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The state at the end of the story. Orders ``0 … orders - 1`` went into the topic, each at the offset of its
    number. ``bills``: the queries' output. ``asked``: the requests for the orders that the payment service was too busy
    for. ``group``: the group's state, from its coordinator."""

    orders: int
    queries: tuple[str, ...]
    bills: tuple[Bill, ...]
    killed: KilledBatch
    dead_letters: tuple[DeadLetter, ...]
    asked: Mapping[int, tuple[Asked, ...]]
    group: GroupState

    @property
    def dead(self) -> set[int]:
        return {dead_letter.order for dead_letter in self.dead_letters}

    def of_query(self, query: str) -> list[Bill]:
        return [bill for bill in self.bills if bill.query == query]


def key_of(query: str, batch_id: int) -> str:
    """Returns the key with which a batch calls the payment service."""
    return f"{query}-{batch_id}"


def most_tasks(bills: Iterable[Bill]) -> int:
    """Returns how many tasks wrote the batch with the most tasks."""
    tasks = {(bill.query, bill.batch_id, bill.task) for bill in bills}
    return max(Counter((query, batch_id) for query, batch_id, _ in tasks).values(), default=0)


def check(outcome: Outcome) -> list[Check]:
    """Run all checks, in the order of the story."""
    shares = {query: len(outcome.of_query(query)) for query in outcome.queries}
    tasks, partitions = most_tasks(outcome.bills), len({bill.partition for bill in outcome.bills})
    killed, lag, archived = outcome.killed, outcome.group.lag, outcome.group.archived
    written, planned, dead = len(killed.written), len(killed.planned), len(outcome.dead)
    in_middle = not killed.committed and 0 < written < planned
    shared = ", ".join(f"{query}: {share:,}" for query, share in shares.items())
    said = f"{tasks} tasks in a batch, {partitions} partition{'' if partitions == 1 else 's'}"
    state = "was done already" if killed.committed else f"had {written:,} of {planned:,} orders written"
    return [
        _billed_or_dead(outcome),
        Check("both queries had a share of the partition", shared, all(shares.values())),
        Check("more tasks than partitions read at a time", said, tasks > partitions > 0),
        _dead_letters(outcome),
        _tried_again(outcome),
        Check("the kill hit the middle of a batch", f"{killed.query}'s batch {killed.batch_id} {state}", in_middle),
        _replayed_as_it_was(outcome),
        _delivery_counts(outcome),
        Check("the group's lag is 0", "unknown" if lag is None else f"lag {lag:,}", lag == 0),
        Check("the group archived the dead letters, and nothing else", f"{archived:,} archived", archived == dead),
    ]


def _billed_or_dead(outcome: Outcome) -> Check:
    bills, ordered, dead = Counter(bill.order for bill in outcome.bills), range(outcome.orders), outcome.dead
    return _unless(
        (o for o in {*ordered, *bills, *dead} if bills[o] + (o in dead) != (o in ordered)),
        "every order is billed once, or is a dead letter; none is both, none is lost",
        f"{outcome.orders:,} orders: {bills.total():,} bills, {len(dead):,} dead letters",
    )


def _dead_letters(outcome: Outcome) -> Check:
    broken, dead, written = set(filter(is_broken, range(outcome.orders))), outcome.dead, outcome.dead_letters
    # At least once: a replayed batch writes its dead letters again. Their headers name the order.
    again = f", {len(written):,} dead letters: a replay writes them again" if len(written) > len(dead) else ""
    return _unless(
        (broken ^ dead) | {each.order for each in written if not _is_as_it_was(each)},
        "each broken order is in the dead letter topic as it was, with its reason",
        f"{len(dead):,} orders{again}",
    )


def _is_as_it_was(dead_letter: DeadLetter) -> bool:
    was = record_of(dead_letter.order)
    return (dead_letter.topic, dead_letter.record) == (TOPIC, was) and was.value.decode() in dead_letter.reason


def _tried_again(outcome: Outcome) -> Check:
    waits_s = {
        order: [after.at_s - before.at_s for before, after in pairwise(asked)] for order, asked in outcome.asked.items()
    }
    too_soon = {
        order
        for order, between in waits_s.items()
        if any(wait_s < BACKOFF_S * GROWS**n * (1 - SPREAD) for n, wait_s in enumerate(between))
    }
    shortest_s = min((wait_s for between in waits_s.values() for wait_s in between), default=0.0)
    twice = sum(len(between) > 1 for between in waits_s.values())
    return _unless(
        too_soon | {o for o in {*range(outcome.orders), *waits_s} if len(waits_s.get(o, ())) != times_busy(o)},
        "each order that was to be tried again came back, after its backoff",
        f"{len(waits_s)} orders, {twice} of them twice; backoff {BACKOFF_S} s, back after {shortest_s:.1f} s or more",
    )


def _replayed_as_it_was(outcome: Outcome) -> Check:
    killed = outcome.killed
    key = key_of(killed.query, killed.batch_id)
    refused = {order for order, asked in outcome.asked.items() if any(a.key == key and not a.is_paid for a in asked)}
    to_bill = Counter((p, order, order) for p, order in killed.planned if not is_broken(order) and order not in refused)
    replayed = Counter(
        (bill.partition, bill.offset, bill.order)
        for bill in outcome.of_query(killed.query)
        if bill.batch_id == killed.batch_id
    )
    written = Counter((bill.partition, bill.offset, bill.order) for bill in killed.written)
    return _unless(
        (order for _, _, order in (to_bill - replayed) + (replayed - to_bill) + (written - replayed)),
        "the killed batch was replayed as it was",
        f"{len(killed.planned):,} orders, of which {replayed.total():,} are billed",
    )


def _delivery_counts(outcome: Outcome) -> Check:
    replayed = {offset for _, offset in outcome.killed.planned}
    return _unless(
        (b.order for b in outcome.bills if b.delivery_count != 1 + times_busy(b.order) + (b.order in replayed)),
        'deliveryCount is 1, and 1 more for the replay and for each "try again"',
        f"of {len(outcome.bills):,} bills",
    )


def _unless(wrong: Iterable[int], promise: str, finding: str) -> Check:
    orders = sorted(wrong)
    if not orders:
        return Check(promise, finding, passed=True)
    more = f", … ({len(orders):,} in all)" if len(orders) > _SHOWN else ""
    return Check(promise, f"{finding}; wrong: {', '.join(map(str, orders[:_SHOWN]))}{more}", passed=False)
