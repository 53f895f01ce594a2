"""The story: two queries share a partition; one is killed in the middle of a batch and restarts, and nothing is lost.
Broken orders become dead letters meanwhile, and released orders are delivered again.

Rule: each step waits for an observable event (the group's members, Spark's log, files), within a limit; never for a
fixed time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from rich.markup import escape

from coordinator.client.client import CoordinatorClient
from sharegroup.demo.checks import Outcome, key_of
from sharegroup.demo.dead_letters import TOPIC as DEAD_LETTER_TOPIC
from sharegroup.demo.dead_letters import DeadLetters
from sharegroup.demo.group import GROUP_ID, group_state
from sharegroup.demo.local_broker import local_broker
from sharegroup.demo.orders import TOPIC, Orders, is_broken
from sharegroup.demo.payments import Payments, times_busy
from sharegroup.demo.processes import DemoFailed, undisturbed
from sharegroup.demo.query import TASKS, KilledBatch, Query
from sharegroup.demo.screen import Row, Screen, View
from sharegroup.demo.workspace import Workspace

NAMES = ("A", "B")
FIRST_ORDERS = 8_000
MORE_ORDERS = 4_000
STEP_LIMIT_S = 180.0

_ASK_EVERY_S = 0.2
_LOOK_EVERY_S = 0.02  # a batch takes about 2 s; its middle must not be missed

T = TypeVar("T")


def tell(workspace: Workspace, screen: Screen) -> Outcome:
    """Run the whole story. All its processes have ended when this returns or raises; an interrupt is raised after that.
    Raises DemoFailed, naming the step, if a step did not end."""
    cleanup = ExitStack()
    try:
        return _Story(workspace, screen, cleanup).tell()
    finally:
        with undisturbed():
            cleanup.close()


class _Story:
    """The story's broker, orders, queries and services. ``cleanup`` ends them."""

    def __init__(self, workspace: Workspace, screen: Screen, cleanup: ExitStack) -> None:
        self._screen = screen
        broker = cleanup.enter_context(local_broker(logs=workspace.logs))
        self._address = servers = broker.address
        self._orders = Orders(servers)
        self._client = CoordinatorClient(broker.coordinator, retry_timeout_s=STEP_LIMIT_S)
        cleanup.callback(self._client.close)
        for topic in (TOPIC, DEAD_LETTER_TOPIC):
            broker.embedded.create_topic(topic)
        self._dead_letters = DeadLetters(servers)
        cleanup.callback(self._dead_letters.close)
        self._payments = Payments(workspace.payments)
        self._queries = tuple(Query(name, workspace, servers) for name in NAMES)
        for query in self._queries:
            cleanup.callback(query.kill)
        self._events = [self._first_dead_letter, self._first_return]

    def tell(self) -> Outcome:
        self._begin()
        killed = self._kill_and_restart(self._queries[0])
        self._orders.place(MORE_ORDERS)
        self._screen.say(f"{MORE_ORDERS:,} more orders go into the partition; both queries are at work again.")
        self._wait("every order is billed, or a dead letter", lambda: group_state(self._client).lag == 0)
        self._screen.say("Nothing is left to do: the group's lag is 0.")
        group = group_state(self._client)
        for query in self._queries:
            query.kill()
        return Outcome(
            orders=self._orders.count,
            queries=NAMES,
            bills=tuple(bill for query in self._queries for bill in query.all_bills()),
            killed=killed,
            dead_letters=self._dead_letters.all(),
            asked=self._payments.asked(),
            group=group,
        )

    def _begin(self) -> None:
        say = self._screen.say
        say(f"A Kafka broker runs inside this process, at [bold]{self._address}[/].")
        for query in self._queries:
            query.start()
        say(f"Two Spark programs start, [bold]query A[/] and [bold]query B[/], in the share group [bold]{GROUP_ID}[/].")
        self._wait("both queries are in the group", lambda: group_state(self._client).members == len(NAMES))
        self._orders.place(FIRST_ORDERS)
        say(f"Both are in the group. {FIRST_ORDERS:,} orders go into [bold]one partition[/], 0 of topic orders.")
        say(
            f"{sum(map(is_broken, range(FIRST_ORDERS)))} of them are broken JSON, and for "
            f"{sum(map(bool, map(times_busy, range(FIRST_ORDERS))))} the payment service is too busy at first."
        )
        self._wait("both queries have billed a batch", lambda: all(query.committed() for query in self._queries))
        say(f"Both bill orders of that partition side by side, each in {TASKS} tasks a batch.")

    def _kill_and_restart(self, query: Query) -> KilledBatch:
        say = self._screen.say
        killed = self._wait(f"query {query.name} is in the middle of a batch", query.stopped_in_a_batch, _LOOK_EVERY_S)
        processes, planned = query.kill(), len(killed.planned)
        say(
            f"[bold red]SIGKILL[/] to query {query.name}: driver JVM, Python and workers, {processes} processes. "
            f"It was in batch {killed.batch_id}: {len(killed.written):,} of {planned:,} orders written."
        )
        query.start()
        say(f"Query {query.name} is started again, from its checkpoint. Query B works on meanwhile.")
        batch_id = killed.batch_id
        self._wait(f"query {query.name} has replayed batch {batch_id}", lambda: query.is_committed(batch_id))
        dead = sum(is_broken(offset) for _, offset in killed.planned)
        twice = f" Its dead letters are there twice now ({dead}); their headers say which order each is of."
        say(
            f"Query {query.name} has replayed batch {batch_id}: the {planned:,} orders that Spark's log names, which "
            f"the group had kept for it.{twice if dead else ''}"
        )
        return killed

    def _wait(self, what: str, condition: Callable[[], T | None], every_s: float = _ASK_EVERY_S) -> T:
        """Wait for the condition. Returns its first answer that is neither None nor False. Raises DemoFailed after
        STEP_LIMIT_S, or if a query ended."""
        deadline_s = time.monotonic() + STEP_LIMIT_S
        show_at_s = 0.0
        while (answer := condition()) is None or answer is False:
            for query in self._queries:
                if error := query.error():
                    raise DemoFailed(f"query {query.name} ended by itself, while waiting until {what}: {error}")
            now_s = time.monotonic()
            if now_s > deadline_s:
                raise DemoFailed(f"not within {STEP_LIMIT_S:.0f} s: {what}")
            if now_s >= show_at_s:
                self._say_events()
                self._show(what)
                show_at_s = now_s + _ASK_EVERY_S
            time.sleep(every_s)
        return answer

    def _show(self, what: str) -> None:
        dead = {letter.order: letter.reason for letter in self._dead_letters.look()}
        last = next(reversed(dead.items()), None)
        asked = [each for each in self._payments.asked().values() if each]  # a new file is empty for a moment
        waiting, came_back = sum(not each[-1].is_paid for each in asked), sum(len(each) > 1 for each in asked)
        rows = (
            *(Row(f"query {query.name}", *query.view()) for query in self._queries),
            Row("dead letters", f"{len(dead)}", "", f"the last one is order {last[0]}: {last[1]}" if last else ""),
            Row("released", f"{waiting} waiting", f"{came_back} came back", ""),
        )
        self._screen.show(View(f"waiting until {what}", self._orders.count, group_state(self._client).lag, rows))

    # --- what happened to two orders: each event is told once, as soon as it is visible; the story does not wait for it

    def _say_events(self) -> None:
        for event in tuple(self._events):
            if text := event():
                self._screen.say(text)
                self._events.remove(event)

    def _first_dead_letter(self) -> str:
        for dead_letter in self._dead_letters.look():
            return (
                f"Order {dead_letter.order} is broken JSON, so its query [bold]rejects[/] it. It is in the dead letter "
                f"topic [bold]{DEAD_LETTER_TOPIC}[/] now, with the reason: {escape(dead_letter.reason)}"
            )
        return ""

    def _first_return(self) -> str:
        """Tells of an order that was paid after a release, in a finished batch."""
        paid = {o: asked for o, asked in self._payments.asked().items() if len(asked) > 1 and asked[-1].is_paid}
        keys = {asked[-1].key for asked in paid.values()}
        done = ((query, number) for query in self._queries for number in query.committed())
        for query, number in done:
            for bill in query.bills(number) if key_of(query.name, number) in keys else ():
                if bill.order in paid and paid[bill.order][-1].key == key_of(query.name, number):
                    before, after = paid[bill.order][-2:]
                    return (
                        f'Order {bill.order} was delivered again: the payment service had answered "try again", and '
                        "its query had [bold]released[/] it, with a backoff. It came after "
                        f"{math.floor((after.at_s - before.at_s) * 10) / 10} s, with deliveryCount "
                        f"{bill.delivery_count}, and is billed."
                    )
        return ""
