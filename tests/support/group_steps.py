"""Steps of consumers, queries and time on one group, chosen at random by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from coordinator.protocol.values import AcknowledgeType
from tests.kip932.consumers import ShareConsumers
from tests.support.state_records import small


def play_step(group: ShareConsumers, newest: dict[str, str], what: str, who: int, first: int, size: int) -> None:
    """Plays one step of a consumer, a query or an administrator; the core may refuse it."""
    consumer, query = f"c{who % 2 + 1}", f"q{who % 2 + 1}"
    if what == "join":
        group.join(consumer if who < 2 else query, query=who >= 2)
    elif what == "fetch":
        group.fetch(consumer, size)
    elif what == "acknowledge":
        for at, last, run in list(group.partition().runs.between(first, first + size)):
            group.acknowledge(AcknowledgeType(who), at, last, count=run.delivery_count, member=consumer)
    elif what == "batch":
        newest[query] = group.next(newest.get(query, ""), query, size).plan.plan_id or newest.get(query, "")
    elif what == "use":
        group.start(newest.get(query, ""), query)
    elif what == "restart":
        group.restart(newest.get(query, ""), query)
    elif what == "time":
        group.pass_time(first * 2_000)
    elif what == "log start":
        group.move_log_start(min(max(group.log_starts[0], first), group.ends[0]))
    elif what == "records":
        group.ends[0] += size


WORLD = ("join", "fetch", "fetch", "acknowledge", "batch", "batch", "use", "restart", "time", "log start", "records")


steps = st.tuples(st.sampled_from(WORLD), st.integers(0, 3), small, st.integers(1, 12))
