"""The actions of ``sharegroup groups``: resets of offsets and deletions, as kafka-share-groups.sh has them, and
releases and archiving by hand, which that tool does not have."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sharegroup.admin_access import print_json, print_lines
from sharegroup.members_wait import asked

if TYPE_CHECKING:
    from coordinator.protocol.admin_messages import Altered
    from sharegroup.admin import Admin

SCENARIOS = (
    "to_earliest", "to_latest", "to_datetime", "by_duration", "to_offset", "shift_by", "from_file",
)  # fmt: skip
"""The options that say where a reset goes, of which one is named."""
DRY_RUN = "Dry run: nothing was changed. Use --execute to change it."


def reset_offsets(admin: Admin, group_id: str, options: Mapping[str, Any]) -> None:
    """Reset the group's start offsets, or show what a reset would do; it raises as Admin.reset_offsets."""
    from sharegroup import kafka_tables

    target, shift_by = _target(options)
    reset = functools.partial(
        admin.reset_offsets,
        group_id,
        target,
        shift_by=shift_by,
        topics={} if options["all_topics"] or options["from_file"] else topics_of(options["topics"]),
        execute=options["execute"],
        force=options["force"],
        reason=options["reason"],
    )
    altered = asked(options, reset)
    _tell_notes(altered.notes)
    if options["as_json"]:
        print_json(altered)
        return
    print_lines(kafka_tables.new_offsets(group_id, altered.partitions))
    if not altered.executed:
        click.echo(DRY_RUN, err=True)


def delete_groups(admin: Admin, group_ids: Iterable[str], options: Mapping[str, Any]) -> None:
    """Delete the groups, one after another; with dry_run nothing. It raises as Admin.delete_group."""
    delete = functools.partial(
        admin.delete_group, execute=not options["dry_run"], force=options["force"], reason=options["reason"]
    )
    deleted = [asked(options, functools.partial(delete, group_id)) for group_id in group_ids]
    if options["as_json"]:
        print_json(deleted)
    elif options["dry_run"]:
        for altered in deleted:
            show_effects(altered)
    else:
        named = ", ".join(f"'{group_id}'" for group_id in group_ids)
        click.echo(f"Deletion of requested share groups ({named}) was successful.")


def delete_offsets(admin: Admin, group_id: str, options: Mapping[str, Any]) -> None:
    """Delete the group's offsets of topics; with dry_run nothing. It raises as Admin.delete_offsets."""
    from sharegroup import kafka_tables

    delete = functools.partial(
        admin.delete_offsets,
        group_id,
        options["topics"],
        execute=not options["dry_run"],
        force=options["force"],
        reason=options["reason"],
    )
    altered = asked(options, delete)
    _tell_notes(altered.notes)
    if options["as_json"]:
        print_json(altered)
    elif altered.executed:
        print_lines(kafka_tables.statuses(options["topics"]))
    else:
        print_lines(kafka_tables.new_offsets(group_id, altered.partitions))
        click.echo(DRY_RUN, err=True)


def act_by_hand(admin: Admin, group_id: str, action: str, options: Mapping[str, Any]) -> None:
    """Release a member, or release or archive records: first what it does is told in numbers, then it is done if
    --execute is set. It raises as the function of Admin with the name of the action."""
    arguments: list[Any] = [group_id]
    if action == "release_member":
        arguments.append(options["member_id"])
    else:
        arguments += [*_one_partition(options["topics"][0]), options["records"]]
    act = functools.partial(getattr(admin, action), *arguments, reason=options["reason"])
    altered = act(execute=False)
    _tell_notes(altered.notes)
    if options["execute"]:
        altered = act(execute=True)
    if options["as_json"]:
        print_json(altered)
        return
    _print_effects(altered)


def show_effects(altered: Altered) -> None:
    """Print what an action changed, or would change, with values before and after."""
    _tell_notes(altered.notes)
    _print_effects(altered)


def _print_effects(altered: Altered) -> None:
    for effect in altered.effects:
        click.echo(f"{effect.what}: {effect.before or '-'} -> {effect.after or '-'}")
    if not altered.executed:
        click.echo(DRY_RUN, err=True)


def topics_of(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Topics and their partitions, of texts such as orders and orders:0,1,2.

    Raises:
        UsageError: a partition is no number.
    """
    found: dict[str, tuple[int, ...]] = {}
    for text in texts:
        topic, _, partitions = text.partition(":")
        numbers = [part.strip() for part in partitions.split(",") if part.strip()]
        if not topic or not all(part.isascii() and part.isdecimal() for part in numbers):
            raise click.UsageError(f"Invalid topic arg '{text}', expected topic name and partitions")
        found[topic] = (*found.get(topic, ()), *map(int, numbers))
    return found


def offset_range(context: click.Context, option: click.Parameter, text: str | None) -> range | None:
    """The offsets of FIRST[-LAST], both inclusive.

    Raises:
        BadParameter: the text is something else.
    """
    if text is None:
        return None
    first, dash, last = text.partition("-")
    if not dash:
        last = first
    is_range = all(part.isascii() and part.isdecimal() for part in (first, last))
    if not is_range or not int(first) <= int(last) < 2**63:
        raise click.BadParameter(f"'{text}' is not FIRST or FIRST-LAST")
    return range(int(first), int(last) + 1)


def _one_partition(text: str) -> tuple[str, int]:
    """The topic and the partition of a text such as orders:0.

    Raises:
        UsageError: it names no partition, or several.
    """
    ((topic, partitions),) = topics_of([text]).items()
    if len(partitions) != 1:
        raise click.UsageError(f"Invalid topic arg '{text}', expected topic name and one partition")
    return topic, partitions[0]


def _target(options: Mapping[str, Any]) -> tuple[Any, int | None]:
    """The target of a reset as Admin.reset_offsets takes it, and its shift_by."""
    if options["to_earliest"] or options["to_latest"]:
        return ("earliest" if options["to_earliest"] else "latest"), None
    if options["to_datetime"] is not None:
        return _datetime(options["to_datetime"]), None
    if options["by_duration"] is not None:
        return _duration(options["by_duration"]), None
    if options["from_file"] is not None:
        return _offsets(options["from_file"]), None
    return ("earliest", options["shift_by"]) if options["to_offset"] is None else (options["to_offset"], None)


def _datetime(text: str) -> datetime:
    """The time of YYYY-MM-DDThh:mm:ss.sss; without a time zone it is UTC, as in Kafka's tool.

    Raises:
        UsageError: it is none.
    """
    try:
        found = datetime.fromisoformat(text.removesuffix("Z") + ("+00:00" if text.endswith("Z") else ""))
    except ValueError:
        raise click.UsageError(f"--to-datetime {text} is not YYYY-MM-DDThh:mm:ss.sss") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)


def _duration(text: str) -> timedelta:
    from coordinator.config.duration import parse_duration_ms

    duration_ms = parse_duration_ms(text)
    if duration_ms is None:
        raise click.UsageError(f"--by-duration {text} is not PnDTnHnMnS")
    return timedelta(milliseconds=duration_ms)


def _offsets(path: str) -> dict[str, dict[int, int]]:
    """The offsets of a CSV file with topic,partition,offset in each line.

    Raises:
        UsageError: the file can't be read, or a line is something else.
    """
    found: dict[str, dict[int, int]] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--from-file {path}: {error}") from None
    for number, row in enumerate(csv.reader(lines), 1):
        if not row:
            continue
        try:
            topic, partition, offset = (cell.strip() for cell in row)
            found.setdefault(topic, {})[int(partition)] = int(offset)
        except ValueError:
            raise click.UsageError(f"--from-file {path}: line {number} is not topic,partition,offset") from None
    return found


def _tell_notes(notes: Iterable[str]) -> None:
    for note in notes:
        click.echo(note, err=True)
