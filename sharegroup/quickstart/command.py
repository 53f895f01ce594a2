"""``sharegroup quickstart``: an embedded broker with a topic and records, and README's programs for it."""

from __future__ import annotations

import click

from sharegroup.demo.programs import BROKER_PORT, READING, SINK
from sharegroup.option_types import Whole


@click.command(short_help="A broker with records, for README's programs.")
@click.option(
    "--port",
    type=Whole(min=0, max=65_535),
    default=BROKER_PORT,
    show_default=True,
    help="The port of the broker on this host; 0 is any free one.",
)
@click.option(
    "--rate",
    type=Whole("records", min=0, max=10_000),
    default=100,
    show_default=True,
    help="New records a second, after the first 40,000.",
)
@click.option(
    "--print-program",
    type=click.Choice([READING, SINK]),
    is_flag=False,
    flag_value=READING,
    help="Print one of README's programs alone, and end.  [reading]",
)
def quickstart(port: int, rate: int, print_program: str | None) -> None:
    """Run a Kafka broker in memory with records in the topic orders, and print what to run against it.

    Ctrl-C ends the broker; nothing of it is left. A topic has four partitions, and keeps 5 MB of each. The broker
    serves only programs on this host.

    \b
    Examples:
      sharegroup quickstart --print-program > billing.py
      sharegroup quickstart --print-program sink > payments.py"""
    from sharegroup.demo.programs import program

    if print_program:
        click.echo(program(print_program, port), nl=False)
        return
    from sharegroup.quickstart.broker import run  # importing takes a second, which --help does not need

    run(port, rate)
