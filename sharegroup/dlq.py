"""``sharegroup dlq`` and its command ``redrive``; ``list`` and ``show`` are in :mod:`sharegroup.dlq_list`. Options are
named as those of Kafka's own tools."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from sharegroup.admin_access import opened, origins_of, print_json
from sharegroup.cluster_options import JSON_OPTION, Cluster, cluster_options, kafka_config, settings
from sharegroup.dlq_list import checked_conditions, list_dead_letters, printable, show_dead_letter
from sharegroup.option_types import Topic, Whole
from sharegroup.progress_bar import console, progress

if TYPE_CHECKING:
    from share_sink.redrive.report import RedriveReport

ROWS = 50
"""The table has up to this many rows: pairs of target topic and reason."""

_SKIPPED = {
    "doubles": "further dead letters of a record that is sent",
    "redriven_too_often": "redriven as often as --max-redrives allows",
    "without_record": "headers only, without a record",
    "not_dead_letters": "not a dead letter",
    "other_topics": "of no group with this dead letter topic that reads the topic it names (--any-origin sends it)",
    "not_delivered": "of a record that its group was never given (--any-origin sends it)",
    "came_after": "came after what was shown",
    "not_selected": "not selected",
}
_NOT_NAMED = ("not_selected", "doubles", "came_after")


@click.group(short_help="Work with dead letters.")
def dlq() -> None:
    """Work with dead letters: records that a share group rejected or gave up.

    \b
    Example:
      sharegroup dlq list --bootstrap-server localhost:9092 --topic dlq"""


dlq.add_command(list_dead_letters)
dlq.add_command(show_dead_letter)


@dlq.command(short_help="Send dead letters back to their topics.")
@cluster_options
@click.option("--topic", "dlq_topic", type=Topic(), required=True, help="The dead letter topic.")
@click.option("--to", type=Topic(), metavar="TOPIC", help="Send all records to this topic, instead of each to its own.")
@click.option(
    "--where",
    multiple=True,
    callback=checked_conditions,
    metavar="NAME=VALUE",
    help="Send only these dead letters; conditions are those of dlq list.",
)
@click.option(
    "--max-redrives",
    type=Whole(min=1),
    default=3,
    show_default=True,
    help="Do not send a record that was redriven this often already.",
)
@click.option(
    "--keep-timestamp",
    is_flag=True,
    help="Send records with their own timestamps, if known: retention counts from them.",
)
@click.option("--rate", type=Whole("records", min=1), help="Send at most this many records a second.  [no limit]")
@click.option(
    "--any-origin", is_flag=True, help="Also send dead letters whose origin their group's coordinator does not confirm."
)
@click.option("--as-shown", metavar="TEXT", help="With --execute: send what the dry run that printed TEXT has shown.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing. This is the default.")
@click.option("--execute", is_flag=True, help="Send the records.")
@JSON_OPTION
@click.pass_context
def redrive(
    context: click.Context,
    cluster: Cluster,
    dlq_topic: str,
    to: str | None,
    where: tuple[str, ...],
    max_redrives: int,
    keep_timestamp: bool,
    rate: int | None,
    any_origin: bool,
    as_shown: str | None,
    dry_run: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Send dead letters back to the topics that their records came from.

    Each record is sent once, however many dead letters it has. The dead letters stay in their topic: a second --execute
    sends them again.

    \b
    Example:
      sharegroup dlq redrive --bootstrap-server localhost:9092 --topic dlq \\
          --where group=billing --where 'message~=timeout' --execute"""
    if dry_run and execute:
        raise click.UsageError("Name either --dry-run or --execute.", context)
    if as_shown == "" or (as_shown is not None and not execute):
        raise click.UsageError("--as-shown needs the text that a dry run printed, and --execute.", context)
    from share_sink.errors import RedriveStopped  # importing takes a second, which --help does not need
    from share_sink.redrive.redrive import redrive as send

    config = settings(*cluster)
    try:
        with ExitStack() as stack, progress(f"redriving {printable(dlq_topic)}", unit="dead letters read") as tell:
            admin = cache(lambda: stack.enter_context(opened(*cluster)))
            report = send(
                dlq_topic,
                where,
                to,
                options={f"kafka.{key}": value for key, value in kafka_config(config).items()},
                dry_run=not execute,
                max_redrives=max_redrives,
                watch=lambda so_far: tell(so_far.read),
                origins=None if any_origin else lambda group_id: origins_of(admin(), group_id, dlq_topic),
                as_shown=as_shown or "",
                keep_timestamp=keep_timestamp,
                rate=rate,
            )
    except RedriveStopped as error:
        _show(error.report, as_json=as_json)
        raise
    _show(report, as_json=as_json)


def as_object(report: RedriveReport) -> dict[str, Any]:
    """Returns the report as a JSON object with all its fields; by_reason is a list, the largest count first."""
    fields = {each.name: getattr(report, each.name) for each in dataclasses.fields(report)}
    by_reason = [{**dataclasses.asdict(kind), "count": count} for kind, count in report.by_reason.most_common()]
    return {**fields, "by_reason": by_reason}


def _show(report: RedriveReport, *, as_json: bool) -> None:
    if as_json:
        print_json(as_object(report))
        return
    from rich.table import Table

    table = Table(
        "to topic", "disposition", "reason", title=f"Dead letters of {report.dlq_topic}", title_justify="left"
    )
    table.add_column("would be sent" if report.dry_run else "sent", justify="right")
    rows = report.by_reason.most_common()
    for kind, count in rows[:ROWS]:
        table.add_row(*(printable(text) for text in (kind.topic, kind.disposition or "-", kind.message)), f"{count:,}")
    screen = console()
    if rows:
        screen.print(table)
    for line in ([f"… and {len(rows) - ROWS} more reasons"] if len(rows) > ROWS else []) + summary(report):
        screen.print(line, markup=False, soft_wrap=True)


def summary(report: RedriveReport) -> list[str]:
    """Returns the lines below the table."""
    done = "would be sent" if report.dry_run else "sent"
    lines = [f"{report.read:,} read, {report.sent:,} {done}"]
    for kind, meaning in _SKIPPED.items():
        if count := getattr(report, kind):
            named = "" if kind in _NOT_NAMED else f" ({_named(report.examples[kind], count)})"
            lines.append(f"{count:,} skipped: {meaning}{named}")
    lines += [f"--where: no dead letter has the header {printable(name)}" for name in report.unknown_names]
    if report.dry_run and report.sent:
        lines.append(
            f"Dry run: nothing was sent. Use --execute --as-shown {report.shown} to send just these records; --execute "
            "alone also sends what has come since."
        )
    return lines


def _named(examples: list[str], count: int) -> str:
    return ", ".join(examples) + (", …" if count > len(examples) else "")
