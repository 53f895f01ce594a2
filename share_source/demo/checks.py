"""What the demo promises, checked on what it left. Pure: from an outcome to a list of checks, each passed or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from share_source.demo.traces import BatchOutput, Bill, KilledBatch

_SHOWN = 5


@dataclass(frozen=True)
class Check:
    """One promise; ``finding`` is what was seen."""

    promise: str
    passed: bool
    finding: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What there is at the end.

    Orders ``0 … orders - 1`` went into the topic. ``lag`` and ``archived`` are the group's, as its coordinator says
    them; ``lag`` None: it does not know.
    """

    orders: int
    queries: tuple[str, ...]
    outputs: tuple[BatchOutput, ...]
    killed: KilledBatch
    lag: int | None
    archived: int

    def bills(self) -> Iterator[tuple[BatchOutput, Bill]]:
        """Every line of the output, with the batch that it is in."""
        return ((output, bill) for output in self.outputs for bill in output.bills)

    def of_query(self, query: str) -> tuple[BatchOutput, ...]:
        """One query's output."""
        return tuple(output for output in self.outputs if output.query == query)

    def replayed(self) -> tuple[Bill, ...]:
        """What the output holds of the batch that was killed."""
        same = (o for o in self.of_query(self.killed.query) if o.batch_id == self.killed.batch_id)
        return tuple(bill for output in same for bill in output.bills)


def check(outcome: Outcome) -> list[Check]:
    """All checks, in the order of the story."""
    return [
        _exactly_once(outcome),
        _shared(outcome),
        _more_tasks_than_partitions(outcome),
        _killed_in_the_middle(outcome),
        _replayed_as_it_was(outcome),
        _delivery_counts(outcome),
        _lag(outcome),
        _nothing_archived(outcome),
    ]


def _exactly_once(outcome: Outcome) -> Check:
    found = Counter(bill.order for _, bill in outcome.bills())
    expected = range(outcome.orders)
    wrong = {
        "lost": [order for order in expected if order not in found],
        "more than once": [order for order, times in found.items() if times > 1],
        "never ordered": [order for order in found if order not in expected],
    }
    problems = "; ".join(f"{what}: {_some(orders)}" for what, orders in wrong.items() if orders)
    return Check(
        "every order is in the output exactly once",
        not problems,
        problems or f"{outcome.orders:,} orders, {found.total():,} bills",
    )


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
    places = Counter((bill.partition, bill.offset) for bill in replayed)
    same_plan = places == Counter(killed.planned)
    orders = {(bill.partition, bill.offset): bill.order for bill in replayed}
    changed = [bill.order for bill in killed.written if orders.get((bill.partition, bill.offset)) != bill.order]
    if not same_plan:
        missing, more = killed.planned - places.keys(), places.keys() - killed.planned
        doubled = [place for place, times in places.items() if times > 1]
        finding = f"{len(missing)} of its orders are missing, {len(more)} are new, {len(doubled)} doubled"
    else:
        finding = f"not as written before: {_some(changed)}" if changed else f"the same {len(replayed):,} orders"
    return Check("the killed batch was replayed as it was", same_plan and not changed, finding)


def _delivery_counts(outcome: Outcome) -> Check:
    again = (outcome.killed.query, outcome.killed.batch_id)
    wrong = [
        bill.order
        for output, bill in outcome.bills()
        if bill.delivery_count != (2 if (output.query, output.batch_id) == again else 1)
    ]
    finding = f"not so for orders {_some(wrong)}" if wrong else "1 for all the others"
    return Check("deliveryCount is 2 for the replayed orders", not wrong, finding)


def _lag(outcome: Outcome) -> Check:
    return Check("the group's lag is 0", outcome.lag == 0, "unknown" if outcome.lag is None else f"lag {outcome.lag:,}")


def _nothing_archived(outcome: Outcome) -> Check:
    return Check("no order was archived", outcome.archived == 0, f"{outcome.archived:,} archived")


def _some(orders: Iterable[int]) -> str:
    """The first few of them, and how many there are."""
    found = sorted(orders)
    more = f", … ({len(found):,} in all)" if len(found) > _SHOWN else ""
    return ", ".join(str(order) for order in found[:_SHOWN]) + more
