"""The broker, the records and the coordinator of ``sharegroup quickstart``.

Rule: the program is that of README.md, as it stands. So the broker has the program's address, and a coordinator with
its state in a temporary file runs where the program finds it, since the embedded broker can't keep state.
"""

from __future__ import annotations

import contextlib
import errno
import signal
import tempfile
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import click

from coordinator.client.client import CoordinatorClient
from coordinator.client.cluster_metadata import cluster_id
from coordinator.client.on_demand import OnDemand, runtime_dir
from sharegroup.demo.command import missing_for_spark
from sharegroup.demo.embedded_broker import EmbeddedBroker
from sharegroup.demo.errors import DemoFailed
from sharegroup.demo.fixed_port import PORT, fixed_port
from sharegroup.demo.group import GROUP_ID, GroupState, group_state
from sharegroup.demo.orders import TOPIC, Orders
from sharegroup.demo.processes import ENDING, kill_coordinators, undisturbed

DEAD_LETTERS = "dlq.payments"
"""The dead letter topic of README's second program, which has to exist before a query names it."""
RECORDS = 40_000
"""Four batches of the first program. The embedded broker keeps up to 5 MB of a partition."""
_ADDRESS = f"localhost:{PORT}"
_LOOK_EVERY_S = 1.0
_PATIENCE_S = 60.0


def run(port: int) -> None:
    """Run until an interrupt.

    Raises:
        click.ClickException: the port can't be had, or the broker did not take the records.
        ShareGroupError: the coordinator could not be started.
    """
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as cleanup:
        try:
            _run(port, cleanup)
        finally:
            with undisturbed():
                cleanup.close()
    click.echo(
        "The broker has ended, and its records are gone. Remove the program's folders checkpoints and output before "
        "the next quickstart."
    )


def first_program(port: int = PORT) -> str:
    """The first program of README.md, with this port in its address."""
    text = resources.files("sharegroup.demo").joinpath("first_program.txt").read_text(encoding="utf-8")
    return text.replace(_ADDRESS, f"localhost:{port}")


def _run(port: int, cleanup: contextlib.ExitStack) -> None:
    broker = cleanup.enter_context(EmbeddedBroker())
    port = cleanup.enter_context(_at(port, broker.bootstrap_servers))
    broker.create_topic(TOPIC)
    broker.create_topic(DEAD_LETTERS)
    try:
        Orders(broker.bootstrap_servers, partition=None).place(RECORDS)
    except DemoFailed as error:
        raise click.ClickException(f"The quickstart could not begin: {error}. Start it again.") from None
    client = cleanup.enter_context(_coordinator(broker.bootstrap_servers))
    option = "" if port == PORT else f" --port {port}"
    click.echo(
        f"A Kafka broker runs in this process, at localhost:{port}. Its topic {TOPIC} has {RECORDS:,} records.\n"
        "This program reads them:\n\n"
        f"{first_program(port)}\n"
        "Run it in a second terminal:\n\n"
        f"    sharegroup quickstart{option} --print-program > billing.py\n"
        "    python billing.py\n\n"
        "A copy with billing-2 in place of billing-1, in a third terminal, shares the records with it.\n"
        "Ctrl-C ends the broker."
    )
    if missing := missing_for_spark():
        click.echo(f"The program does not run here yet: {missing}.")
    _follow(client)


def _follow(client: CoordinatorClient) -> None:
    """Print a line whenever the group's state has changed, until the process is interrupted."""
    seen = GroupState()
    while True:
        state = group_state(client)
        if state != seen:
            queries = f"{state.members} {'query' if state.members == 1 else 'queries'}"
            left = "" if state.lag is None else f", {state.lag:,} of {RECORDS:,} records are left"
            click.echo(f"{time.strftime('%H:%M:%S')} share group {GROUP_ID}: {queries}{left}")
            seen = state
        time.sleep(_LOOK_EVERY_S)


@contextlib.contextmanager
def _at(port: int, target: str) -> Iterator[int]:
    with contextlib.ExitStack() as cleanup:
        try:
            found = cleanup.enter_context(fixed_port(port, target))
        except OSError as error:
            why = "another program uses it" if error.errno == errno.EADDRINUSE else error.strerror
            raise click.ClickException(
                f"Port {port} of this host can't be had ({why}): stop that program, or choose a port, for example "
                "--port 19092."
            ) from None
        yield found


@contextlib.contextmanager
def _coordinator(bootstrap_servers: str) -> Iterator[CoordinatorClient]:
    """Yields a client of the first program's coordinator, which runs for the length of the `with` block."""
    with tempfile.TemporaryDirectory(prefix="sharegroup-quickstart-", ignore_cleanup_errors=True) as folder:
        directory = OnDemand(
            bootstrap_servers=bootstrap_servers,
            kafka_config={},
            cluster_id=cluster_id(bootstrap_servers, {}),
            state_store="kafka",
            state_file=str(Path(folder).resolve() / "state.db"),
        )
        client = CoordinatorClient(directory, retry_timeout_s=_PATIENCE_S)
        try:
            with undisturbed():  # an interrupt here could hide the coordinator from the cleanup
                group_state(client)
            yield client
        finally:
            client.close()
            kill_coordinators(runtime_dir(), directory.key)
            for path in runtime_dir().glob(f"*-{directory.key}.*"):
                path.unlink(missing_ok=True)
