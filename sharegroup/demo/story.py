"""The story: two queries share a partition; one is killed in the middle of a batch and restarts, and nothing is lost.
Broken orders become dead letters meanwhile, and released orders are delivered again.

Rule: each step waits for an observable event (the group's members, Spark's log, files), within a limit; never for a
fixed time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from coordinator.client.client import CoordinatorClient
from sharegroup.demo.checks import Outcome
from sharegroup.demo.dead_letters import TOPIC as DEAD_LETTER_TOPIC
from sharegroup.demo.dead_letters import DeadLetters
from sharegroup.demo.embedded_broker import EmbeddedBroker
from sharegroup.demo.errors import DemoFailed
from sharegroup.demo.events import OrderEvents
from sharegroup.demo.group import GROUP_ID, GroupWatch
from sharegroup.demo.orders import TOPIC, Orders, is_broken, record_of
from sharegroup.demo.payments import Payments, times_busy
from sharegroup.demo.processes import kill_coordinators, undisturbed
from sharegroup.demo.query import TASKS, Query
from sharegroup.demo.screen import Screen, View
from sharegroup.demo.traces import KilledBatch
from sharegroup.demo.workspace import Workspace

NAMES = ("A", "B")
FIRST_ORDERS = 8_000
MORE_ORDERS = 4_000
STEP_LIMIT_S = 180.0

_LOOK_EVERY_S = 0.02  # a batch takes about 2 s; its middle must not be missed
_SHOW_EVERY_S = 0.2


T = TypeVar("T")


class Story:
    """Runs the story. At the end of its ``with`` block all its processes have ended."""

    def __init__(self, workspace: Workspace, screen: Screen) -> None:
        self._screen = screen
        self._cleanup = ExitStack()
        try:
            self._set_up(workspace)
        except BaseException:  # also an interrupt: the caller has no object to close yet
            self.close()
            raise

    def _set_up(self, workspace: Workspace) -> None:
        self._broker = self._cleanup.enter_context(EmbeddedBroker())
        self._orders = Orders(self._broker.bootstrap_servers)
        self._cleanup.callback(kill_coordinators, workspace.runtime)
        with undisturbed():  # after an interrupt here, the cleanup could miss the coordinator
            self._group = GroupWatch(CoordinatorClient.connect(self._broker.bootstrap_servers, state_store="sqlite"))
        self._cleanup.callback(self._group.close)
        for topic in (TOPIC, DEAD_LETTER_TOPIC):
            self._broker.create_topic(topic)
        self._dead_letters = DeadLetters(self._broker.bootstrap_servers)
        self._cleanup.callback(self._dead_letters.close)
        self._payments = Payments(workspace.payments)
        self._queries = tuple(Query(name, workspace, self._broker.bootstrap_servers) for name in NAMES)
        for query in self._queries:
            self._cleanup.callback(query.kill)
        self._events = OrderEvents(self._screen, self._queries, self._dead_letters, self._payments)

    def __repr__(self) -> str:
        return f"<Story {self._broker!r} {self._orders!r}>"

    def __enter__(self) -> Story:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; an interrupt is raised after that."""
        with undisturbed():
            self._cleanup.close()

    def tell(self) -> Outcome:
        """Run the whole story.

        Raises:
            DemoFailed: a step did not end; the message names the step.
        """
        say, victim = self._screen.say, self._queries[0]
        say(f"A Kafka broker runs inside this process, at [bold]{self._broker.bootstrap_servers}[/].")
        for query in self._queries:
            query.start()
        say(f"Two Spark programs start, [bold]query A[/] and [bold]query B[/], in the share group [bold]{GROUP_ID}[/].")
        self._wait("both queries are in the group", lambda: self._group.look().members == len(NAMES))
        self._place(FIRST_ORDERS)
        say(f"Both are in the group. {FIRST_ORDERS:,} orders go into [bold]one partition[/], 0 of topic orders.")
        say(
            f"{sum(map(is_broken, range(FIRST_ORDERS)))} of them are broken JSON, and for "
            f"{sum(map(bool, map(times_busy, range(FIRST_ORDERS))))} the payment service is too busy at first."
        )
        self._wait("both queries have billed a batch", lambda: all(query.traces.committed() for query in self._queries))
        say(f"Both bill orders of that partition side by side, each in {TASKS} tasks a batch.")
        killed = self._kill_in_the_middle(victim)
        self._start_again(victim, killed)
        self._place(MORE_ORDERS)
        say(f"{MORE_ORDERS:,} more orders go into the partition; both queries are at work again.")
        self._wait("every order is billed, or a dead letter", lambda: self._group.look().lag == 0)
        say("Nothing is left to do: the group's lag is 0.")
        return self._outcome(killed)

    def _place(self, orders: int) -> None:
        self._orders.place(orders)
        self._group.look(fresh=True)  # a lag from before these orders would mean that they are billed

    def _kill_in_the_middle(self, query: Query) -> KilledBatch:
        killed = self._wait(f"query {query.name} is in the middle of a batch", query.stopped_in_a_batch)
        processes = query.kill()
        query.replays = killed.batch_id
        written, planned = len(killed.written), len(killed.planned)
        self._screen.say(
            f"[bold red]SIGKILL[/] to query {query.name}: driver JVM, Python and workers, {processes} processes. "
            f"It was in batch {killed.batch_id}: {written:,} of {planned:,} orders written."
        )
        return killed

    def _start_again(self, query: Query, killed: KilledBatch) -> None:
        query.start()
        self._screen.say(f"Query {query.name} is started again, from its checkpoint. Query B works on meanwhile.")
        self._wait(
            f"query {query.name} has replayed batch {killed.batch_id}",
            lambda: query.traces.is_committed(killed.batch_id),
        )
        self._screen.say(
            f"Query {query.name} has replayed batch {killed.batch_id}: the {len(killed.planned):,} orders that Spark's "
            f"log names, which the group had kept for it. {self._dead_again(killed)}"
        )

    def _dead_again(self, killed: KilledBatch) -> str:
        dead = sum(is_broken(offset) for _, offset in killed.planned)
        return (
            f"Its dead letters are there twice now ({dead}); their headers say which order each is of." if dead else ""
        )

    def _outcome(self, killed: KilledBatch) -> Outcome:
        seen = self._group.look(fresh=True)
        for query in self._queries:
            query.kill()
        return Outcome(
            orders=self._orders.count,
            broken={order: record_of(order) for order in range(self._orders.count) if is_broken(order)},
            busy={order: times_busy(order) for order in range(self._orders.count) if times_busy(order)},
            queries=NAMES,
            outputs=tuple(output for query in self._queries for output in query.traces.outputs()),
            killed=killed,
            dead_letters=self._dead_letters.all(),
            asked=self._payments.asked(),
            lag=seen.lag,
            archived=seen.archived,
        )

    def _wait(self, what: str, condition: Callable[[], T | None]) -> T:
        """Wait for the condition. Returns its first answer that is neither None nor False.

        Raises:
            DemoFailed: STEP_LIMIT_S have passed, or a query ended.
        """
        deadline = time.monotonic() + STEP_LIMIT_S
        show_at_s = 0.0
        while (answer := condition()) is None or answer is False:
            now_s = time.monotonic()
            self._check_alive(what)
            self._events.tell()
            if now_s > deadline:
                raise DemoFailed(f"not within {STEP_LIMIT_S:.0f} s: {what}")
            if now_s >= show_at_s:
                self._show(what)
                show_at_s = now_s + _SHOW_EVERY_S
            time.sleep(_LOOK_EVERY_S)
        return answer

    def _check_alive(self, what: str) -> None:
        for query in self._queries:
            if query.should_run and not query.process.alive:
                cause = query.process.first_error() or "its log has no error"
                raise DemoFailed(f"query {query.name} ended by itself, while waiting until {what}: {cause}")

    def _show(self, what: str) -> None:
        seen = self._group.look()
        self._screen.show(
            View(
                step=f"waiting until {what}",
                orders=self._orders.count,
                lag=seen.lag,
                queries=tuple(query.view() for query in self._queries),
                dead=tuple({letter.order: letter.reason for letter in self._dead_letters.look()}.items()),
                came_back=self._payments.came_back(),
                waiting=seen.waiting,
            )
        )
