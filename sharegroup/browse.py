"""``sharegroup browse``: the records of a group that are not done, with key, value and state, without acquiring any."""

from __future__ import annotations

import re
from typing import Any

import click

from sharegroup.admin_access import opened, print_json, tell_source
from sharegroup.cluster_options import JSON_OPTION, Cluster, cluster_options, kafka_config, settings
from sharegroup.dlq_list import MOST_BYTES, in_words, printable, time_in_words
from sharegroup.group_line import HELD
from sharegroup.option_types import Group, Topic, Whole
from sharegroup.progress_bar import console, plain_table

BROWSED, MOST_BROWSED = 20, 10_000
"""A list has up to BROWSED records, unless --max-records says otherwise. It can't have more than MOST_BROWSED."""
IN_A_TABLE = 80
"""A table has up to this many bytes of a key and a value; JSON has MOST_BYTES, also of a header."""
_CAPITAL = re.compile("[A-Z]")


@click.command(short_help="Show the records that are not done, without taking them.")
@cluster_options
@click.option("--group", type=Group(), required=True, help="The share group.")
@click.option("--topic", type=Topic(), help="Only records of this topic.")
@click.option("--partition", type=Whole(min=0), help="Only records of this partition of --topic.")
@click.option("--from-offset", type=Whole(min=0), help="Only records of --partition from this offset on.")
@click.option("--to-offset", type=Whole(min=0), help="Only records of --partition below this offset.")
@click.option(
    "--state",
    "states",
    help="Only records in these states, separated by commas: AVAILABLE, ACQUIRED, IN_PROGRESS, or ARCHIVING (given up, "
    "without a dead letter yet).",
)
@click.option(
    "--max-records",
    type=Whole("records", min=1, max=MOST_BROWSED),
    default=BROWSED,
    show_default=True,
    help="Records, at most.",
)
@JSON_OPTION
def browse(
    cluster: Cluster,
    group: str,
    topic: str | None,
    partition: int | None,
    from_offset: int | None,
    to_offset: int | None,
    states: str | None,
    max_records: int,
    as_json: bool,
) -> None:
    """Show the records of a group that are not done, with key, value and state. None is acquired.

    They wait, are held or quarantined, or are given up without a dead letter yet. For more than --max-records there is
    spark.read with the view records.

    \b
    Example:
      sharegroup browse --bootstrap-server localhost:9092 --group billing \\
          --topic orders --partition 0 --from-offset 1200 --state AVAILABLE"""
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic.")
    if partition is None and (from_offset, to_offset) != (None, None):
        raise click.UsageError(
            "--from-offset and --to-offset need --topic and --partition: each has offsets of its own."
        )
    from coordinator.admin.waiting_records import Bounds  # importing takes a second, which --help does not need
    from share_source.views.record_rows import browse as first_records

    place = (topic or "", partition or 0)
    bounds = Bounds(
        partitions={} if topic is None else {topic: () if partition is None else (partition,)},
        starts={} if from_offset is None else {place: from_offset},
        ends={} if to_offset is None else {place: to_offset},
        states=() if states is None else tuple(states.split(",")),
        max_records=max_records,
    )
    with opened(*cluster) as admin:
        most_bytes = MOST_BYTES if as_json else IN_A_TABLE
        config = kafka_config(settings(*cluster))
        found = first_records(admin, config, group, bounds, lambda row: as_object(row, most_bytes))
    if as_json:
        print_json({"group_id": group, "read_from": found.read_from, "records": found.rows, "more": found.more})
    else:
        _print(group, found.rows, more=found.more)
    tell_source(found.read_from)


def as_object(row: dict[str, Any], max_bytes: int) -> dict[str, Any]:
    """Returns the record as for JSON: under the names that other commands print, with its bytes in words."""
    named = {_CAPITAL.sub(lambda found: f"_{found[0].lower()}", name): value for name, value in row.items()}
    headers = [(header["key"], in_words(header["value"], max_bytes)) for header in row["headers"] or ()]
    return {**named, **{name: in_words(row[name], max_bytes) for name in ("key", "value")}, "headers": headers}


def _print(group: str, rows: list[dict[str, Any]], *, more: bool) -> None:
    if not rows:
        click.echo(f"No record of {group} waits as asked.")
        return
    headings = ("RECORD", "WRITTEN", "STATE", "DELIVERY", "HELD BY", "KEY", "VALUE")
    table = plain_table(f"Records of {printable(group)}", *headings)
    for row in rows:
        record = f"{row['topic']}-{row['partition']}@{row['offset']}"
        holder = (row["client_id"] or row["member_id"]) if row["state"] in HELD else ""
        state = row["state"] if row["stage"] == "normal" else f"{row['state']} {row['stage']}"
        counted = (state, str(row["delivery_count"]), holder)
        content = ("null" if row[name] is None else row[name] for name in ("key", "value"))
        table.add_row(*map(printable, (record, time_in_words(row["timestamp_ms"]) or "-", *counted, *content)))
    console().print(table)
    if more:
        click.echo("… and more: --max-records or --from-offset shows more")
