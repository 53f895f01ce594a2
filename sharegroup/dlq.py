"""``sharegroup dlq``: redrives dead letters. Its options are named as those of Kafka's own tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from share_sink.redrive.dlq_reader import DeadLetter
    from share_sink.redrive.report import RedriveReport

Predicate = Callable[["DeadLetter"], bool]

ROWS = 50
"""Rows of the table, at most: pairs of target topic and reason."""

ORIGIN = ("topic", "partition", "offset", "group", "delivery.count", "message", "disposition")
"""The last parts of the names of a dead letter's own headers."""

_CONDITION = re.compile(r"(?P<name>.+?)(?P<sign>~?=)(?P<text>.*)", re.DOTALL)

_SKIPPED = {
    "doubles": "further dead letters of a record that is sent",
    "redriven_too_often": "redriven as often as --max-redrives allows",
    "without_record": "headers only, without a record",
    "not_dead_letters": "not a dead letter",
    "not_selected": "not selected",
}
_NOT_NAMED = ("not_selected", "doubles")


def condition(text: str) -> Predicate:
    """``NAME=VALUE`` or ``NAME~=REGEX`` as a predicate.

    Raises:
        BadParameter: the text is neither, or the regular expression is wrong.
    """
    parts = _CONDITION.fullmatch(text)
    if not parts:
        raise click.BadParameter(f"{text!r} is neither NAME=VALUE nor NAME~=REGEX.")
    name, sign, wanted = parts["name"], parts["sign"], parts["text"]
    if sign == "=":
        return lambda dead_letter: wanted in _texts(dead_letter, name)
    try:
        pattern = re.compile(wanted)
    except re.error as error:
        raise click.BadParameter(f"{wanted!r} is no regular expression: {error}.") from None
    return lambda dead_letter: any(pattern.search(value) for value in _texts(dead_letter, name))


def _conditions(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> Predicate:
    every = [condition(text) for text in texts]
    return lambda dead_letter: all(holds(dead_letter) for holds in every)


def _texts(dead_letter: DeadLetter, name: str) -> list[str]:
    if name in ("key", "value"):
        content = dead_letter.key if name == "key" else dead_letter.value
        return [] if content is None else [content.decode("utf-8", "replace")]
    return dead_letter.header(f"__dlq.errors.{name}" if name in ORIGIN else name.removeprefix("header."))


@click.group()
def dlq() -> None:
    """Work with dead letters: records that a share group rejected or gave up."""


@dlq.command()
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT", help="The Kafka brokers, separated by commas.")
@click.option(
    "--command-config",
    "config_path",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="A properties file for the Kafka client, for example with security.protocol.",
)
@click.option("--topic", "dlq_topic", required=True, help="The dead letter topic.")
@click.option("--to", metavar="TOPIC", help="Send all records to this topic, instead of each to its own.")
@click.option(
    "--where",
    multiple=True,
    callback=_conditions,
    metavar="NAME=VALUE",
    help="Send only dead letters whose header NAME has this value; NAME~=REGEX: whose header matches the expression. "
    f"NAME can also be {', '.join(ORIGIN)}, key or value; header.NAME always means a header. If the option is given "
    "several times, all conditions must hold.",
)
@click.option(
    "--max-redrives",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Do not send a record that was redriven this often already.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing. This is the default.")
@click.option("--execute", is_flag=True, help="Send the records.")
@click.pass_context
def redrive(
    context: click.Context,
    bootstrap_server: str,
    config_path: str | None,
    dlq_topic: str,
    to: str | None,
    where: Predicate,
    max_redrives: int,
    dry_run: bool,
    execute: bool,
) -> None:
    """Send dead letters back to the topics that their records came from.

    Each record is sent once, however many dead letters it has. The dead letters stay in their topic: a second --execute
    sends the records again, unless --where leaves them out.
    """
    if dry_run and execute:
        raise click.UsageError("Name either --dry-run or --execute.", context)
    from share_sink.errors import RedriveStopped  # importing takes a second, which --help does not need
    from share_sink.redrive.redrive import redrive as send

    try:
        report = send(
            dlq_topic,
            where,
            to,
            options=_options(bootstrap_server, config_path),
            dry_run=not execute,
            max_redrives=max_redrives,
        )
    except RedriveStopped as error:
        _show(error.report)
        raise
    _show(report)


def _options(bootstrap_server: str, config_path: str | None) -> Mapping[str, str]:
    from coordinator.service.process.properties_file import read_properties

    configs = read_properties(config_path) if config_path else {}
    return {**{f"kafka.{key}": value for key, value in configs.items()}, "kafka.bootstrap.servers": bootstrap_server}


def _show(report: RedriveReport) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "to topic", "disposition", "reason", title=f"Dead letters of {report.dlq_topic}", title_justify="left"
    )
    table.add_column("would be sent" if report.dry_run else "sent", justify="right")
    rows = report.by_reason.most_common()
    for kind, count in rows[:ROWS]:
        table.add_row(*(_plain(text) for text in (kind.topic, kind.disposition or "-", kind.message)), f"{count:,}")
    console = Console(markup=False, highlight=False)
    if rows:
        console.print(table)
    if len(rows) > ROWS:
        console.print(f"… and {len(rows) - ROWS} more reasons")
    for line in summary(report):
        console.print(line, soft_wrap=True)


def summary(report: RedriveReport) -> list[str]:
    """The lines below the table."""
    done = "would be sent" if report.dry_run else "sent"
    lines = [f"{report.read:,} read, {report.sent:,} {done}"]
    for kind, meaning in _SKIPPED.items():
        if count := getattr(report, kind):
            named = "" if kind in _NOT_NAMED else f" ({_named(report.examples[kind], count)})"
            lines.append(f"{count:,} skipped: {meaning}{named}")
    if report.dry_run and report.sent:
        lines.append("Dry run: nothing was sent. Use --execute to send the records.")
    return lines


def _named(examples: list[str], count: int) -> str:
    return ", ".join(examples) + (", …" if count > len(examples) else "")


def _plain(text: str) -> str:
    """The text without control characters and without markup: a reason may quote any record."""
    from rich.markup import escape

    return escape("".join(character if character.isprintable() else "�" for character in text))
