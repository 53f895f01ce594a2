"""``sharegroup quickstart``: an embedded broker with a topic and records, and the first program for it."""

from __future__ import annotations

import click

from sharegroup.demo.fixed_port import PORT


@click.command(short_help="A broker with records, for README's first program.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="The port of the broker on this host; 0 is any free one.",
)
@click.option("--print-program", is_flag=True, help="Print the first program alone, and end.")
def quickstart(port: int, print_program: bool) -> None:
    """Run a Kafka broker in memory with 40,000 records in the topic orders, and print a program that reads them.

    No Kafka is needed. Run the program in a second terminal. Ctrl-C ends the broker; nothing of it is left.

    \b
    Examples:
      sharegroup quickstart
      sharegroup quickstart --print-program > billing.py
    """
    from sharegroup.quickstart_broker import first_program, run  # importing takes a second, which --help does not need

    if print_program:
        click.echo(first_program(port), nl=False)
    else:
        run(port)
