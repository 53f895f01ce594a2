"""The broker and the records of ``sharegroup quickstart``.

Rule: the programs are those of README.md, as they stand. So the broker has their address, and their dead letter topic
is there."""

from __future__ import annotations

import contextlib
import errno
import signal
import time
from collections.abc import Callable

import click

from coordinator.client.client import CoordinatorClient
from coordinator.protocol.admin_messages import ListGroups
from sharegroup.demo.broker_front import HOST, PortNotFree
from sharegroup.demo.command import missing_for_spark
from sharegroup.demo.group import GroupState, group_state
from sharegroup.demo.local_broker import local_broker
from sharegroup.demo.orders import TOPIC, Orders
from sharegroup.demo.processes import ENDING, DemoFailed, undisturbed
from sharegroup.demo.programs import BROKER_PORT, READING, program

DEAD_LETTERS = "dlq.payments"
"""The dead letter topic of README's second program, which has to exist before a query names it."""
RECORDS = 40_000
"""Four batches of the first program."""
_LOOK_EVERY_S = 1.0
_LINE_EVERY_S = 5.0
"""A group whose queries stay the same has a line at most this often: its lag changes with each record."""
_PATIENCE_S = 60.0


def run(port: int, rate: int) -> None:
    """Run until an interrupt.

    Raises:
        click.ClickException: the port can't be had, or the broker did not take the records.
        ShareGroupError: the coordinator could not be started."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as cleanup:
        try:
            _run(port, rate, cleanup)
        finally:
            with undisturbed():
                cleanup.close()
    click.echo(
        "The broker has ended, and its records are gone. Remove the programs' folders checkpoints and output before "
        "the next quickstart."
    )


def _run(port: int, rate: int, cleanup: contextlib.ExitStack) -> None:
    try:
        broker = cleanup.enter_context(local_broker(port))
    except PortNotFree as error:
        why = "another program uses it" if error.errno == errno.EADDRINUSE else error.strerror
        raise click.ClickException(
            f"Port {port} of this host can't be had ({why}): stop that program, or choose a port, for example "
            "--port 19092."
        ) from None
    broker.embedded.create_topic(TOPIC)
    broker.embedded.create_topic(DEAD_LETTERS)
    orders = Orders(broker.embedded.bootstrap_servers, partition=None)
    _place(orders, RECORDS)
    client = CoordinatorClient(broker.coordinator, retry_timeout_s=_PATIENCE_S)
    cleanup.callback(client.close)
    group_state(client)  # once it answers, programs find the coordinator
    click.echo(instructions(int(broker.address.rpartition(":")[2]), rate))
    if missing := missing_for_spark():
        click.echo(f"The programs do not run here yet: {missing}.")
    _go_on(orders, rate, Lines(client))


def instructions(port: int, rate: int) -> str:
    """Returns what a person runs against the broker."""
    command = "sharegroup quickstart" + ("" if port == BROKER_PORT else f" --port {port}") + " --print-program"
    more = f", and {rate:,} more each second" if rate else ""
    return (
        f"A Kafka broker runs in this process, at {HOST}:{port}. Its topic {TOPIC} has {RECORDS:,} records{more}.\n"
        "This program reads them:\n\n"
        f"{program(READING, port)}\n"
        "Run it in a second terminal, and in a third one a copy with another name, which shares the records with it:"
        "\n\n"
        f"    {command} > billing.py; python billing.py\n"
        "    sed s/billing-1/billing-2/ billing.py > billing2.py; python billing2.py\n\n"
        f"A program that accepts, releases or rejects each record, and the dead letters ({DEAD_LETTERS}) that it "
        "leaves:\n\n"
        f"    {command} sink > payments.py; python payments.py\n"
        f"    sharegroup dlq list --bootstrap-server {HOST}:{port} --topic {DEAD_LETTERS} --limit 5\n\n"
        "Ctrl-C ends the broker."
    )


def _place(orders: Orders, count: int) -> None:
    try:
        orders.place(count)
    except DemoFailed as error:
        raise click.ClickException(f"The quickstart ends: {error}. Start it again.") from None


def _go_on(orders: Orders, rate: int, lines: Lines) -> None:
    began_s = time.monotonic()
    while True:
        lines.print()
        time.sleep(_LOOK_EVERY_S)
        _place(orders, RECORDS + int((time.monotonic() - began_s) * rate) - orders.count)


class Lines:
    """Prints a line for a group when its queries have changed, and every 5 s when its lag has."""

    def __init__(self, client: CoordinatorClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._seen: dict[str, tuple[GroupState, float]] = {}

    def print(self) -> None:
        """Print the lines that are due."""
        for group in self._client.ask(ListGroups()).groups:
            state = group_state(self._client, group.group_id)
            seen, at_s = self._seen.get(group.group_id, (GroupState(), 0.0))
            if state == seen or (state.members == seen.members and self._clock() - at_s < _LINE_EVERY_S):
                continue
            self._seen[group.group_id] = state, self._clock()
            queries = f"{state.members} {'query' if state.members == 1 else 'queries'}"
            left = "" if state.lag is None else f", {state.lag:,} records are left"
            given_up = f", {state.archived:,} given up" if state.archived else ""
            click.echo(f"{time.strftime('%H:%M:%S')} share group {group.group_id}: {queries}{left}{given_up}")
