"""``sharegroup`` and ``python -m sharegroup``: runs a subcommand.

Rule: an error is one line on standard error, never a traceback; the exit status is then 1, or 2 if the command line is
wrong."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys

import click

from sharegroup.shadowed import check_packages

try:
    check_packages()
except ImportError as error:
    sys.exit(f"sharegroup: {error}")

from coordinator.protocol.errors import ShareGroupError, in_words_of_clients
from coordinator.protocol.package_version import package_version
from coordinator.service.process.process_exit import end_process
from share_source.executor.reader_choice import reader_choice
from sharegroup.browse import browse
from sharegroup.check.command import check
from sharegroup.configs import configs
from sharegroup.consume import consume
from sharegroup.coordinator import coordinator
from sharegroup.demo.command import demo
from sharegroup.dlq import dlq
from sharegroup.doctor.command import doctor
from sharegroup.groups import groups
from sharegroup.in_flight import in_flight
from sharegroup.moving import export_command, import_command
from sharegroup.perf import perf
from sharegroup.quickstart.command import quickstart
from sharegroup.top import top
from sharegroup.web.command import web

ERROR, USAGE, UNREAD = 1, 2, 128 + signal.SIGPIPE
"""Exit statuses: something went wrong; the command line is wrong; nobody reads the output, as of any Unix command."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, _, asked: _show_version(context) if asked else None,
    help="Show the version, and the reader (native or python) that tasks in this environment use.",
)
def cli() -> None:
    """Kafka share groups for Spark Structured Streaming and plain Python.

    Exit status: 0, or 1 after an error, or 2 if the command line is wrong; an error is one line on standard error.

    \b
    Example:
      sharegroup groups --bootstrap-server localhost:9092 --describe --all-groups"""


def _show_version(context: click.Context) -> None:
    click.echo(f"sharegroup, version {package_version()}")
    click.echo(f"reader: {reader_choice()}")
    context.exit()


_COMMANDS = (
    *(browse, check, configs, consume, coordinator, demo, dlq, doctor, export_command, groups, import_command),
    *(in_flight, perf, quickstart, top, web),
)
for _command in _COMMANDS:
    cli.add_command(_command)


def run(arguments: list[str]) -> int:
    """Run the command line. Returns the exit status: after an error, which is printed, ERROR or USAGE; else the
    subcommand's, or 0."""
    try:
        status = cli.main(arguments, prog_name="sharegroup", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else _command_path(arguments)
        return _fail(f"{error.format_message()} (see {command} --help)", USAGE)
    except click.ClickException as error:
        return _fail(error.format_message())
    except click.Abort:
        return _fail("interrupted")
    except BrokenPipeError:  # as in `| head`: nobody reads the rest
        _drop_output()
        return UNREAD
    except SystemExit:  # click ends with 1 for the same
        poll = select.poll()
        poll.register(1, 0)
        if not any(event & select.POLLERR for _, event in poll.poll(0)):
            raise
        return UNREAD
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _drop_output()
        return _fail(f"the output, or a file, can't be written: {error.strerror}")
    except ShareGroupError as error:
        status = USAGE if str(error.fields.get("option", "")).startswith("--") else ERROR
        return _fail(_in_words_of_commands(f"{type(error).__name__}: {error}", arguments), status)
    return status if isinstance(status, int) else 0


def _drop_output() -> None:
    """Let what is not written yet go nowhere: the process would try again as it ends."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _in_words_of_commands(text: str, arguments: list[str]) -> str:
    """Replace names of a query's options in an error's text: by the names on the command line if the arguments have
    --bootstrap-server, and by that of a coordinator's file if it is a coordinator's command."""
    if arguments[:1] == ["coordinator"] and not text.startswith("UnknownConfig"):
        return text.replace("kafka.bootstrap.servers", "bootstrap.servers")
    if not any(argument.partition("=")[0] == "--bootstrap-server" for argument in arguments):
        return text
    return in_words_of_clients(text).replace("bootstrap.servers", "--bootstrap-server")


def _command_path(arguments: list[str]) -> str:
    """Returns the command that the arguments name, as ``sharegroup dlq redrive``."""
    path, command = ["sharegroup"], cli
    for argument in arguments:
        found = command.commands.get(argument) if isinstance(command, click.Group) else None
        if found is not None:
            path, command = [*path, argument], found  # type: ignore[assignment]
    return " ".join(path)


def _fail(message: str, status: int = ERROR) -> int:
    click.echo("sharegroup: " + " ".join(message.split()), err=True)
    return status


def main() -> None:
    """Entry point of the command ``sharegroup``."""
    end_process(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
