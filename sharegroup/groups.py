"""``sharegroup groups``: lists, describes, resets and deletes share groups, under the options and in the columns of
kafka-share-groups.sh; beyond that tool, it releases members, and releases or archives records by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from sharegroup.admin_access import described, opened, print_json, print_lines, tell_source
from sharegroup.cluster_options import JSON_OPTION, cluster_options
from sharegroup.group_actions import offset_range

if TYPE_CHECKING:
    from coordinator.protocol.messages import GroupDescription
    from sharegroup.admin import Admin

ACTIONS = (
    "list", "describe", "delete", "reset_offsets", "delete_offsets", "release_member", "release_records",
    "archive_records",
)  # fmt: skip
_WAITING = ("delete", "reset_offsets", "delete_offsets")
"""The actions that need to know the members."""
_OF_DESCRIBE = ("members", "offsets", "in_flight", "verbose")
_STATES = ("Empty", "Stable", "Dead", "Unknown")


@click.command(short_help="List, describe, reset, delete and release share groups, as kafka-share-groups.sh.")
@cluster_options
@click.option("--list", "do_list", is_flag=True, help="List all share groups.")
@click.option("--describe", "do_describe", is_flag=True, help="Describe groups: offsets and lag, unless more is said.")
@click.option("--delete", "do_delete", is_flag=True, help="Delete groups, which must be empty.")
@click.option("--reset-offsets", "do_reset_offsets", is_flag=True, help="Reset the start offsets of an empty group.")
@click.option("--delete-offsets", "do_delete_offsets", is_flag=True, help="Delete the offsets of topics.")
@click.option(
    "--release-member", "do_release_member", is_flag=True, help="End a member's session: others get its records."
)
@click.option(
    "--release-records",
    "do_release_records",
    is_flag=True,
    help="Make records in flight available now: out of quarantine, without a pause, and also if a member holds them.",
)
@click.option(
    "--archive-records",
    "do_archive_records",
    is_flag=True,
    help="Give up records in flight that no member holds. --reason is needed, and stands in their dead letters.",
)
@click.option("--group", "group_ids", multiple=True, help="The share group. Can be given several times.")
@click.option("--all-groups", is_flag=True, help="Apply to all share groups.")
@click.option("--offsets", is_flag=True, help="With --describe: start offset and lag of each partition. The default.")
@click.option("--members", is_flag=True, help="With --describe: the members.")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATES]",
    help="With --describe: the state of the group. With --list: all groups with their states, or those in these "
    f"states, separated by commas ({', '.join(_STATES)}). With --in-flight: only records in these states.",
)
@click.option("--in-flight", is_flag=True, help="With --describe: the records in flight, as sharegroup in-flight.")
@click.option(
    "--progress-stale-longer-than-ms",
    type=click.IntRange(min=0),
    help="With --in-flight: only records whose holder has told of no progress for longer, marked STALE.",
)
@click.option("--verbose", is_flag=True, help="With --describe: more columns.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1,...]",
    help="A topic whose offsets are reset or deleted; to reset, with partitions if need be; of records, with one "
    "partition.",
)
@click.option(
    "--offset",
    "records",
    metavar="FIRST[-LAST]",
    callback=offset_range,
    help="The offsets of the records that are released or archived, both inclusive.",
)
@click.option("--member", "member_id", help="With --release-member: the member, as --describe --members names it.")
@click.option("--all-topics", is_flag=True, help="With --reset-offsets: all topics of the group.")
@click.option("--to-earliest", is_flag=True, help="Reset to the earliest offsets.")
@click.option("--to-latest", is_flag=True, help="Reset to the latest offsets.")
@click.option("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="Reset to the first records from this time on.")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="Reset to the first records from so long ago on.")
@click.option("--to-offset", type=click.IntRange(min=0), help="Reset to this offset.")
@click.option("--shift-by", type=int, help="Move the start offsets by so many, back if it is negative.")
@click.option("--from-file", metavar="CSV", help="Reset to the offsets in a file: topic,partition,offset in each line.")
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(min=1),
    default=30_000,
    show_default=True,
    help="Milliseconds to wait for the brokers, and then for a coordinator, at most.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would change; the default but of deletions.")
@click.option("--execute", is_flag=True, help="Change it: a reset, a release, or the archiving of records.")
@click.option(
    "--force",
    is_flag=True,
    help="Reset also while the group has members: what they hold is delivered again. Delete also what waits for its "
    "dead letter: it gets none.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Reset or delete: if the coordinator has just started, wait until the group's members have had the time to be "
    "heard of, about one share.session.timeout.ms. Without it the command is refused meanwhile (MembersNotKnown).",
)
@click.option("--reason", default="", help="Why, for the audit log of the coordinator.")
@JSON_OPTION
@click.pass_context
def groups(
    context: click.Context,
    /,
    bootstrap_server: str,
    config_path: str | None,
    properties: Mapping[str, str],
    **options: Any,
) -> None:
    """List, describe, reset and delete share groups; release members; release or archive records by hand.

    With no coordinator running, the state store is read, and a line on standard error says so.

    \b
    Examples:
      sharegroup groups --bootstrap-server localhost:9092 --list --state
      sharegroup groups --bootstrap-server localhost:9092 --describe --group billing
      sharegroup groups --bootstrap-server localhost:9092 --describe --all-groups --members --verbose
      sharegroup groups --bootstrap-server localhost:9092 --describe --group billing \\
          --in-flight --state IN_PROGRESS --progress-stale-longer-than-ms 60000
      sharegroup groups --bootstrap-server localhost:9092 --reset-offsets --group billing \\
          --topic orders:0,1 --to-datetime 2026-11-01T00:00:00.000 --wait --execute
      sharegroup groups --bootstrap-server localhost:9092 --archive-records --group billing \\
          --topic orders:0 --offset 120-124 --reason "no customer" --execute
    """
    action = _action(context, options)
    with opened(bootstrap_server, config_path, properties, timeout_ms=options["timeout_ms"]) as admin:
        if action not in ("list", "describe"):
            _act(admin, action, options)
            return
        if action == "list":
            _list(admin, options["state"], as_json=options["as_json"])
        else:
            group_ids = options["group_ids"] or tuple(each.group_id for each in admin.list_groups().groups)
            _describe(admin, group_ids, options)


def _action(context: click.Context, options: Mapping[str, Any]) -> str:
    """The one action that the options name.

    Raises:
        UsageError: they name none or several, or options that do not go together.
    """
    chosen = _chosen(options)
    if len(chosen) != 1:
        named = ", ".join(f"--{action.replace('_', '-')}" for action in ACTIONS)
        raise click.UsageError(f"Command must include exactly one action: {named}.", context)
    _CHECKS[chosen[0]](context, options)
    if chosen != ["describe"] and (wrong := [each for each in _OF_DESCRIBE if options[each]]):
        raise click.UsageError(f"--{wrong[0].replace('_', '-')} goes with --describe.", context)
    if options["progress_stale_longer_than_ms"] is not None and not options["in_flight"]:
        raise click.UsageError("--progress-stale-longer-than-ms goes with --in-flight.", context)
    if options["member_id"] is not None and chosen != ["release_member"]:
        raise click.UsageError("--member goes with --release-member.", context)
    if options["records"] is not None and chosen[0] not in ("release_records", "archive_records"):
        raise click.UsageError("--offset goes with --release-records or --archive-records.", context)
    if options["wait"] and chosen[0] not in _WAITING:
        raise click.UsageError("--wait goes with --reset-offsets, --delete-offsets or --delete.", context)
    return chosen[0]


def _check_list(context: click.Context, options: Mapping[str, Any]) -> None:
    from sharegroup.in_flight import split_states

    if unknown := [name for name in split_states(options["state"]) if name.capitalize() not in _STATES]:
        raise click.UsageError(f"Invalid state list '{unknown[0]}'. Valid states are: {', '.join(_STATES)}", context)


def _check_describe(context: click.Context, options: Mapping[str, Any]) -> None:
    from sharegroup.in_flight import record_states

    if bool(options["group_ids"]) == options["all_groups"]:
        raise click.UsageError("Option --describe takes one of these options: --all-groups, --group", context)
    parts = [each for each in ("members", "offsets", "in_flight") if options[each]]
    parts += ["state"] if options["state"] is not None and not options["in_flight"] else []
    if len(parts) > 1:
        raise click.UsageError(
            "Option --describe takes at most one of these options: --members, --offsets, --state, --in-flight", context
        )
    if parts == ["state"] and options["state"]:
        raise click.UsageError("Option --describe does not take a value for --state", context)
    if options["in_flight"]:
        record_states(options["state"])


def _check_delete(context: click.Context, options: Mapping[str, Any]) -> None:
    if bool(options["group_ids"]) == options["all_groups"]:
        raise click.UsageError("Option --delete takes one of these options: --all-groups, --group", context)


def _check_delete_offsets(context: click.Context, options: Mapping[str, Any]) -> None:
    if len(options["group_ids"]) != 1 or not options["topics"]:
        raise click.UsageError("Option --delete-offsets takes the following options: --group, --topic", context)


def _check_reset(context: click.Context, options: Mapping[str, Any]) -> None:
    from sharegroup.group_actions import SCENARIOS

    if len(options["group_ids"]) != 1:
        raise click.UsageError("Option --reset-offsets takes the option: --group", context)
    _check_execute(context, options)
    if sum(options[each] is not None and options[each] is not False for each in SCENARIOS) != 1:
        named = ", ".join(f"--{each.replace('_', '-')}" for each in SCENARIOS)
        raise click.UsageError(f"Option --reset-offsets takes one of these options: {named}", context)
    scopes = sum((bool(options["topics"]), options["all_topics"], options["from_file"] is not None))
    if scopes != 1:
        raise click.UsageError("Option --reset-offsets takes the option: --all-topics or --topic", context)


def _check_release_member(context: click.Context, options: Mapping[str, Any]) -> None:
    if len(options["group_ids"]) != 1 or not options["member_id"]:
        raise click.UsageError("Option --release-member takes the following options: --group, --member", context)
    _check_execute(context, options)


def _check_records(context: click.Context, options: Mapping[str, Any]) -> None:
    option = f"--{_chosen(options)[0].replace('_', '-')}"
    if len(options["group_ids"]) != 1 or len(options["topics"]) != 1 or options["records"] is None:
        raise click.UsageError(f"Option {option} takes the following options: --group, --topic, --offset", context)
    if options["do_archive_records"] and not options["reason"].strip():
        raise click.UsageError(f"Option {option} takes the option: --reason", context)
    _check_execute(context, options)


def _check_execute(context: click.Context, options: Mapping[str, Any]) -> None:
    if options["dry_run"] and options["execute"]:
        option = f"--{_chosen(options)[0].replace('_', '-')}"
        raise click.UsageError(f"Option {option} only accepts one of --execute and --dry-run", context)


def _chosen(options: Mapping[str, Any]) -> list[str]:
    """The actions that the options name."""
    return [action for action in ACTIONS if options[f"do_{action}"]]


_CHECKS = {
    "list": _check_list,
    "describe": _check_describe,
    "delete": _check_delete,
    "reset_offsets": _check_reset,
    "delete_offsets": _check_delete_offsets,
    "release_member": _check_release_member,
    "release_records": _check_records,
    "archive_records": _check_records,
}


def _act(admin: Admin, action: str, options: Mapping[str, Any]) -> None:
    """Carry out an action that changes something."""
    from sharegroup import group_actions

    group_ids = options["group_ids"] or tuple(each.group_id for each in admin.list_groups().groups)
    if action == "delete":
        group_actions.delete_groups(admin, group_ids, options)
    elif action == "reset_offsets":
        group_actions.reset_offsets(admin, group_ids[0], options)
    elif action == "delete_offsets":
        group_actions.delete_offsets(admin, group_ids[0], options)
    else:
        group_actions.act_by_hand(admin, group_ids[0], action, options)


def _list(admin: Admin, state: str | None, *, as_json: bool) -> None:
    from sharegroup import kafka_tables
    from sharegroup.in_flight import split_states

    listed = admin.list_groups(split_states(state))
    tell_source(listed.read_from)
    if as_json:
        print_json(listed.groups)
    elif state is None:
        print_lines(each.group_id for each in listed.groups)
    else:
        print_lines(kafka_tables.listing(listed.groups))


def _describe(admin: Admin, group_ids: tuple[str, ...], options: Mapping[str, Any]) -> None:
    from sharegroup import in_flight

    as_json = options["as_json"]
    if options["in_flight"]:
        filters = {
            "only_state": in_flight.record_states(options["state"]),
            "progress_staleness_ms": options["progress_stale_longer_than_ms"],
        }
        for group_id in group_ids:
            in_flight.show(admin, group_id, filters, in_flight.MOST_SHOWN, as_json=as_json)
        return
    found = [described(admin, group_id) for group_id in group_ids]
    tell_source(next((each.read_from for each in found if each.read_from), ""))
    if as_json:
        print_json(found)
        return
    for description in found:
        print_lines(_lines(admin, description, options))


def _lines(admin: Admin, description: GroupDescription, options: Mapping[str, Any]) -> list[str]:
    """The lines of one group, in the way that the options ask for."""
    from sharegroup import kafka_tables

    group_id, verbose = description.group_id, options["verbose"]
    if description.state == "EMPTY":
        click.echo(f"\nShare group '{group_id}' has no active members.", err=True)
    if options["state"] is not None:
        coordinator = admin.coordinator_of(group_id) or kafka_tables.MISSING
        return kafka_tables.states(description, coordinator, verbose=verbose)
    if options["members"]:
        if not any(member.active for member in description.members):
            return []
        return kafka_tables.members(group_id, description.members, verbose=verbose)
    if not description.partitions:
        click.echo(f"\nShare group '{group_id}' has no offset information.")
        return []
    return kafka_tables.offsets(group_id, description.partitions, verbose=verbose)
