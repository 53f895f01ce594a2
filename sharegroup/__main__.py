"""``sharegroup`` and ``python -m sharegroup``: runs a subcommand, and prints an error as one line."""

from __future__ import annotations

import sys

import click

from coordinator.protocol.errors import ShareGroupError
from coordinator.service.process.process_exit import end_process
from sharegroup.coordinator import coordinator
from sharegroup.demo.command import demo
from sharegroup.dlq import dlq


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="sharegroup")
def cli() -> None:
    """Kafka share groups for Spark Structured Streaming."""


cli.add_command(coordinator)
cli.add_command(demo)
cli.add_command(dlq)


def run(arguments: list[str]) -> int:
    """Run the command line. Returns the exit status: 1 after an error, which is printed, else the subcommand's or 0."""
    try:
        status = cli.main(arguments, prog_name="sharegroup", standalone_mode=False)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "sharegroup"
        return _fail(f"{error.format_message()} (see {command} --help)")
    except click.ClickException as error:
        return _fail(error.format_message())
    except click.Abort:
        return _fail("interrupted")
    except ShareGroupError as error:
        return _fail(f"{type(error).__name__}: {error}")
    return status if isinstance(status, int) else 0


def _fail(message: str) -> int:
    click.echo("sharegroup: " + " ".join(message.split()), err=True)
    return 1


def main() -> None:
    """Entry point of the command ``sharegroup``."""
    end_process(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
