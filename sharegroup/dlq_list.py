"""``sharegroup dlq list`` and ``sharegroup dlq show``: dead letters as a table, and one of them whole."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import click

from share_sink.errors import InvalidCondition
from share_sink.redrive.conditions import ORIGIN, all_hold, conditions
from sharegroup.cluster_options import JSON_OPTION, Cluster, cluster_options, kafka_config, settings
from sharegroup.durations import second_of
from sharegroup.option_types import Topic, Whole
from sharegroup.progress_bar import console, plain_table, progress

if TYPE_CHECKING:
    from share_sink.redrive.dlq_reader import DeadLetter

MOST_SHOWN = 100
"""A list has up to this many dead letters, unless --limit says otherwise."""
MOST_BYTES = 2_048
"""Up to this many bytes of a key, a value or a header are shown, unless --max-bytes says otherwise."""


class NoDeadLetter(click.ClickException):
    """There is no dead letter at the offset that was named."""


def checked_conditions(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Check the texts of --where. Raises BadParameter if a text is no condition."""
    try:
        conditions(texts)
    except InvalidCondition as error:
        raise click.BadParameter(str(error)) from None
    return texts


_TOLD_EVERY = 1_000
"""The count on the screen changes every this many records, because drawing takes longer than reading."""
_DEAD_LETTERS, _OTHERS = "dead letters", "others"
_TOPIC = click.option("--topic", type=Topic(), required=True, help="The dead letter topic.")


@click.command("list", short_help="List dead letters: of which record, when and why.")
@cluster_options
@_TOPIC
@click.option(
    "--where",
    multiple=True,
    callback=checked_conditions,
    metavar="NAME=VALUE",
    help="Only dead letters whose header NAME has this value; NAME~=REGEX: whose header matches the expression. NAME "
    f"can also be {', '.join(ORIGIN)}, key or value; header.NAME always means a header. All conditions must hold.",
)
@click.option("--limit", type=Whole("rows", min=1), default=MOST_SHOWN, show_default=True, help="Rows, at most.")
@JSON_OPTION
def list_dead_letters(cluster: Cluster, topic: str, where: tuple[str, ...], limit: int, as_json: bool) -> None:
    """List the dead letters of a topic, the oldest of each partition first.

    \b
    Example:
      sharegroup dlq list --bootstrap-server localhost:9092 --topic dlq \\
          --where group=billing --where 'message~=timeout'"""
    from share_sink.redrive.dlq_reader import dead_letters

    wanted = conditions(where)
    config = kafka_config(settings(*cluster))
    count = Counter[str]()
    with progress(f"reading {topic}", unit="records") as tell:

        def watch(is_dead_letter: bool) -> None:
            count[_DEAD_LETTERS if is_dead_letter else _OTHERS] += 1
            if count.total() % _TOLD_EVERY == 0:
                tell(count.total())

        read = (each for each in dead_letters(topic, config, watch=watch) if all_hold(wanted, each))
        found = list(islice(read, limit + 1))
    shown, is_cut = found[:limit], len(found) > limit
    if as_json:
        click.echo(json.dumps({"topic": topic, "dead_letters": [each.named() for each in shown], "more": is_cut}))
        return
    if shown:
        _print_table(topic, shown)
    elif count[_OTHERS] and not count[_DEAD_LETTERS]:
        click.echo(f"{topic} has no dead letters: its {count[_OTHERS]:,} records are others. Is the topic right?")
    else:
        click.echo(f"{topic} has no dead letters{' as asked' if count else ''}.")
    if is_cut:
        click.echo("… and more: --limit shows more")


@click.command("show", short_help="Show one dead letter: its headers, key and value.")
@cluster_options
@_TOPIC
@click.option("--partition", type=Whole(min=0), required=True, help="Its partition in the dead letter topic.")
@click.option("--offset", type=Whole(min=0), required=True, help="Its offset in the dead letter topic.")
@click.option(
    "--max-bytes",
    type=Whole("bytes", min=1),
    default=MOST_BYTES,
    show_default=True,
    help="Bytes of the key, the value and each header that are shown, at most.",
)
@JSON_OPTION
def show_dead_letter(cluster: Cluster, topic: str, partition: int, offset: int, max_bytes: int, as_json: bool) -> None:
    """Show one dead letter. Text is shown as text, other bytes as hexadecimal digits.

    \b
    Example:
      sharegroup dlq show --bootstrap-server localhost:9092 --topic dlq \\
          --partition 0 --offset 12"""
    from share_sink.redrive.dlq_reader import dead_letter_at

    config = kafka_config(settings(*cluster))
    found = dead_letter_at(topic, partition, offset, config)
    if found is None:
        where = f"{topic}-{partition}@{offset}"
        raise NoDeadLetter(f"There is no dead letter at {where}: run sharegroup dlq list to see those that there are.")
    record = {"key": in_words(found.key, max_bytes), "value": in_words(found.value, max_bytes)}
    headers = [(name, in_words(value, max_bytes)) for name, value in found.headers]
    if as_json:
        click.echo(json.dumps({**found.named(), **record, "headers": headers}))
        return
    times = {"timestamp_ms": found.timestamp_ms, "origin_timestamp_ms": found.origin_timestamp_ms}
    named = {**found.named(), **{name: time_in_words(time_ms) for name, time_ms in times.items()}}
    told = {name.removesuffix("_ms"): clean("-" if each in (None, "") else str(each)) for name, each in named.items()}
    for name, text in (*told.items(), *record.items(), *((f"header {clean(name)}", text) for name, text in headers)):
        click.echo(f"{name}: {'null' if text is None else text}")


def _print_table(topic: str, letters: list[DeadLetter]) -> None:
    headings = ("AT", "WRITTEN", "GROUP", "RECORD", "DELIVERY", "DISPOSITION", "MESSAGE")
    table = plain_table(f"Dead letters of {printable(topic)}", *headings)
    for letter in letters:
        at = f"{letter.partition}@{letter.offset}"
        record = f"{letter.origin_topic}-{letter.origin_partition}@{letter.origin_offset}"
        found = (time_in_words(letter.timestamp_ms), letter.group_id, record, letter.delivery_count, letter.disposition)
        table.add_row(*(printable(str(each or "-")) for each in (at, *found, letter.message)))
    console().print(table)


def time_in_words(time_ms: int | None) -> str | None:
    """Returns the time to the second, in UTC; None if there is none."""
    return None if time_ms is None else second_of(time_ms, "Z")


def in_words(data: bytes | None, max_bytes: int) -> str | None:
    """Returns the bytes, cut after ``max_bytes``: as text if all of it is printable, else as hexadecimal digits."""
    if data is None:
        return None
    cut = data[:max_bytes]
    more = f" … ({len(data)} bytes)" if len(data) > max_bytes else ""
    text = cut.decode("utf-8", "ignore" if more else "replace")
    is_text = "\ufffd" not in text and all(letter.isprintable() or letter in "\t\n" for letter in text)
    return (text if is_text else cut.hex(" ")) + more


def clean(text: str) -> str:
    """Replace control characters: a reason or a hint may quote any record."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def printable(text: str) -> str:
    """Replace control characters, and escape rich's markup."""
    from rich.markup import escape

    return escape(clean(text))
