"""The actions of ``sharegroup groups``: resets and deletions, as in kafka-share-groups.sh; and releases and archiving
by hand, which that tool lacks."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sharegroup.admin_access import plain, print_json, print_lines
from sharegroup.progress_bar import progress

if TYPE_CHECKING:
    from coordinator.admin.admin import Admin
    from coordinator.protocol.admin_messages import Altered, OffsetChanges

Told = TypeVar("Told", "Altered", "OffsetChanges")
T = TypeVar("T")

SCENARIOS = (
    "to_earliest", "to_latest", "to_datetime", "by_duration", "to_offset", "shift_by", "from_file",
)  # fmt: skip
"""The options that name the target of a reset. Exactly one must be given."""
DRY_RUN = "Dry run: nothing was changed. Use --execute to change it."
DRY_RUN_BY_OPTION = "Dry run: nothing was changed. Leave out --dry-run to change it."
"""The dry run's line of commands that act at once."""
LOOK_MS = 1_000
"""Two requests are up to this many milliseconds apart, because a member may report or leave early."""
ASKED_AGAIN = "Waiting for members of {group_id} that may be there: {seconds} s, twice as long at most (--wait)."


def reset_offsets(admin: Admin, group_id: str, options: Mapping[str, Any]) -> None:
    """Reset the group's start offsets, or show what a reset would do. Raises as Admin.reset_offsets."""
    from sharegroup import kafka_tables

    target, shift_by = _target(options)
    reset = functools.partial(
        admin.reset_offsets,
        group_id,
        target,
        shift_by=shift_by,
        topics={} if options["all_topics"] or options["from_file"] else topics_of(options["topics"]),
        force=options["force"],
        reason=options["reason"],
    )
    altered = _carried_out(options, reset, execute=options["execute"])
    if options["as_json"]:
        print_json(altered)
        return
    print_lines(kafka_tables.new_offsets(group_id, altered.partitions))
    if not altered.executed:
        click.echo(DRY_RUN, err=True)


def delete_groups(admin: Admin, group_ids: Iterable[str], options: Mapping[str, Any]) -> int:
    """Delete the groups, one after another, or with dry_run show what would be deleted. If one of several groups can't
    be deleted, the others are, and the exit status 1 is returned. Raises as Admin.delete_group if only one group is
    named."""
    from coordinator.protocol.errors import ShareGroupError

    done: dict[str, Altered | ShareGroupError] = {}
    wanted = tuple(dict.fromkeys(group_ids))
    for group_id in wanted:
        delete = functools.partial(admin.delete_group, group_id, force=options["force"], reason=options["reason"])
        try:
            done[group_id] = _carried_out(options, delete, execute=not options["dry_run"])
        except ShareGroupError as error:
            if len(wanted) == 1:
                raise
            done[group_id] = error
    failed = {group_id: found for group_id, found in done.items() if isinstance(found, ShareGroupError)}
    deleted = {group_id: found for group_id, found in done.items() if not isinstance(found, ShareGroupError)}
    if options["as_json"]:
        errors = [{"group_id": g, "error": type(e).__name__, "message": str(e)} for g, e in failed.items()]
        print_json([*({"group_id": g, **plain(altered)} for g, altered in deleted.items()), *errors])
    else:
        _tell_deletions(deleted, failed, dry_run=options["dry_run"])
    return 1 if failed else 0


def _tell_deletions(deleted: Mapping[str, Altered], failed: Mapping[str, Exception], *, dry_run: bool) -> None:
    named = ", ".join(f"'{group_id}'" for group_id in deleted)
    if not deleted and not failed:
        click.echo("There are no share groups to delete.", err=True)
    if failed:
        click.echo("Deletion of some share groups failed:", err=True)
    for group_id, error in failed.items():
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        click.echo(f"* Group '{group_id}' could not be deleted due to: {reason}", err=True)
    if dry_run:
        for altered in deleted.values():
            _print_effects(altered, DRY_RUN_BY_OPTION)
    elif failed and deleted:
        click.echo(f"These share groups were deleted successfully: {named}")
    elif deleted:
        click.echo(f"Deletion of requested share groups ({named}) was successful.")


def delete_offsets(admin: Admin, group_id: str, options: Mapping[str, Any]) -> None:
    """Delete the group's offsets of topics, or with dry_run show which ones. Raises as Admin.delete_offsets."""
    from sharegroup import kafka_tables

    delete = functools.partial(
        admin.delete_offsets, group_id, options["topics"], force=options["force"], reason=options["reason"]
    )
    altered = _carried_out(options, delete, execute=not options["dry_run"])
    if options["as_json"]:
        print_json(altered)
    elif altered.executed:
        print_lines(kafka_tables.statuses(options["topics"]))
    else:
        print_lines(kafka_tables.new_offsets(group_id, altered.partitions))
        click.echo(DRY_RUN_BY_OPTION, err=True)


def act_by_hand(admin: Admin, group_id: str, action: str, options: Mapping[str, Any]) -> None:
    """Release a member, or release or archive records. Prints the effect in numbers, then acts if --execute is given.
    Raises as Admin's method with the action's name."""
    arguments: list[Any] = [group_id]
    if action == "release_member":
        arguments.append(options["member_id"])
    else:
        (text,) = options["topics"]
        ((topic, partitions),) = topics_of([text]).items()
        if len(partitions) != 1:
            raise click.UsageError(f"Invalid topic arg '{text}', expected topic name and one partition")
        arguments += [topic, partitions[0], options["records"]]
    act = functools.partial(getattr(admin, action), *arguments, reason=options["reason"])
    altered = _told_first(options, act, execute=options["execute"])
    if options["as_json"]:
        print_json(altered)
        return
    _print_effects(altered, DRY_RUN)


def pause_or_resume(admin: Admin, group_id: str, action: str, options: Mapping[str, Any]) -> None:
    """Pause or resume the group or some topics. Raises as Admin's method with the action's name."""
    act = getattr(admin, action)
    altered = act(group_id, options["topics"], execute=not options["dry_run"], reason=options["reason"])
    print_json(altered) if options["as_json"] else show_effects(altered)


def _carried_out(options: Mapping[str, Any], action: Callable[..., Told], *, execute: bool) -> Told:
    """Returns the result of the action; with --wait waits for it. With --force, prints the notes before acting."""
    if options["force"]:
        return _told_first(options, action, execute=execute)
    altered = asked(options, functools.partial(action, execute=execute))
    _tell_notes(altered.notes)
    return altered


def _told_first(options: Mapping[str, Any], action: Callable[..., Told], *, execute: bool) -> Told:
    """Dry-run the action and print its notes. With --execute, then run it and print only new notes."""
    altered = asked(options, functools.partial(action, execute=False))
    told = altered.notes
    _tell_notes(told)
    if execute:
        altered = asked(options, functools.partial(action, execute=True))
        _tell_notes(note for note in altered.notes if note not in told)
    return altered


def asked(options: Mapping[str, Any], action: Callable[[], T]) -> T:
    """Returns the result of the action. With --wait, repeats the action while it raises MembersNotKnown, for up to
    twice the longest time that a refusal names, because the group may be loaded again meanwhile. Raises MembersNotKnown
    without --wait, or after that time."""
    if not options["wait"]:
        return action()
    from coordinator.protocol.errors import MembersNotKnown

    began_s, longest_ms = time.monotonic(), 0
    with progress("waiting for members"):
        while True:
            try:
                return action()
            except MembersNotKnown as refusal:
                wait_ms, is_first = int(refusal.fields["wait_ms"]), not longest_ms
                longest_ms = max(longest_ms, wait_ms, 1)
                if (time.monotonic() - began_s) * 1000 > 2 * longest_ms:
                    raise
                if is_first:
                    group_id, seconds = refusal.fields["group_id"], -(-wait_ms // 1000)
                    click.echo(ASKED_AGAIN.format(seconds=seconds, group_id=group_id), err=True)
            time.sleep(min(wait_ms, LOOK_MS) / 1000)


def show_effects(altered: Altered, dry_run: str = DRY_RUN_BY_OPTION) -> None:
    """Print what a command changed, or would change, with the values before and after. ``dry_run``: the line that says
    how it is changed."""
    _tell_notes(altered.notes)
    _print_effects(altered, dry_run)


def _print_effects(altered: Altered, dry_run: str) -> None:
    for effect in altered.effects:
        click.echo(f"{effect.what}: {effect.before or '-'} -> {effect.after or '-'}")
    if not altered.executed:
        click.echo(dry_run, err=True)


def topics_of(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Parse texts as orders and orders:0,1,2. Returns the partitions by topic; an empty tuple means all partitions."""
    found: dict[str, dict[int, None] | None] = {}
    for text in texts:
        topic, colon, partitions = text.partition(":")
        numbers = [part.strip() for part in partitions.split(",")] if colon else []
        if not topic or not all(part.isascii() and part.isdecimal() for part in numbers):
            raise click.UsageError(f"Invalid topic arg '{text}', expected topic name and partitions")
        before = found.get(topic, {})
        found[topic] = before | dict.fromkeys(map(int, numbers)) if numbers and before is not None else None
    return {topic: tuple(partitions or ()) for topic, partitions in found.items()}


def offset_range(context: click.Context, option: click.Parameter, text: str | None) -> range | None:
    """Parse FIRST[-LAST], both inclusive. Raises BadParameter if the text has another form."""
    if text is None:
        return None
    first, dash, last = text.partition("-")
    if not dash:
        last = first
    is_range = all(part.isascii() and part.isdecimal() for part in (first, last))
    if not is_range or not int(first) <= int(last) < 2**63:
        raise click.BadParameter(f"'{text}' is not FIRST or FIRST-LAST")
    return range(int(first), int(last) + 1)


def _target(options: Mapping[str, Any]) -> tuple[Any, int | None]:
    if options["to_earliest"] or options["to_latest"]:
        return ("earliest" if options["to_earliest"] else "latest"), None
    if options["shift_by"] is not None:
        return "earliest", options["shift_by"]
    targets = (options[each] for each in ("to_datetime", "by_duration", "from_file", "to_offset"))
    return next(target for target in targets if target is not None), None


def datetime_of(text: str) -> datetime:
    """Parse YYYY-MM-DDThh:mm:ss.sss; without a time zone it is UTC, as in Kafka's tool. Raises UsageError otherwise."""
    try:
        found = datetime.fromisoformat(text.removesuffix("Z") + ("+00:00" if text.endswith("Z") else ""))
    except ValueError:
        raise click.UsageError(f"--to-datetime {text} is not YYYY-MM-DDThh:mm:ss.sss") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)


def duration_of(text: str) -> timedelta:
    """Parse PnDTnHnMnS. Raises UsageError otherwise."""
    from coordinator.config.iso_duration import parse_duration_ms

    duration_ms = parse_duration_ms(text)
    if duration_ms is None:
        raise click.UsageError(f"--by-duration {text} is not PnDTnHnMnS")
    return timedelta(milliseconds=duration_ms)


def offsets_of_file(path: str) -> dict[str, dict[int, int]]:
    """Read a CSV file with topic,partition,offset in each line. Raises UsageError if the file can't be read, has no
    offsets, or has another form."""
    from coordinator.client.offset_resets import offsets_from_file
    from coordinator.protocol.errors import InvalidReset

    try:
        return offsets_from_file(path)
    except InvalidReset as error:
        raise click.UsageError(f"--from-file {path}: {error.fields['reason']}") from None


def _tell_notes(notes: Iterable[str]) -> None:
    for note in notes:
        click.echo(note, err=True)
