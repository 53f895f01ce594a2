"""``sharegroup groups``: lists, describes, resets and deletes share groups, under the options and in the columns of
kafka-share-groups.sh; beyond that tool, it releases members, and releases or archives records by hand. The lag comes
from :mod:`coordinator.service.questions.lags`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sharegroup.admin_access import existing, opened, print_json, print_lines, tell_source
from sharegroup.cluster_options import JSON_OPTION, Cluster, cluster_options
from sharegroup.group_action_options import STATES, action_of
from sharegroup.group_actions import datetime_of, duration_of, offset_range, offsets_of_file
from sharegroup.option_types import Group, Whole

if TYPE_CHECKING:
    from coordinator.admin.admin import Admin
    from coordinator.protocol.messages import GroupDescription

Look = TypeVar("Look")


def _read_by(read: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Returns the callback of an option that is read before any broker is asked."""
    return lambda context, option, text: None if text is None else read(text)


@click.command(short_help="List, describe, reset and delete groups, as kafka-share-groups.sh; release their records.")
@cluster_options
@click.option("--list", "do_list", is_flag=True, help="List all share groups.")
@click.option("--describe", "do_describe", is_flag=True, help="Describe groups: by default, offsets and lag.")
@click.option("--delete", "do_delete", is_flag=True, help="Delete groups, which must be empty.")
@click.option("--reset-offsets", "do_reset_offsets", is_flag=True, help="Reset the start offsets of an empty group.")
@click.option("--delete-offsets", "do_delete_offsets", is_flag=True, help="Delete the offsets of topics.")
@click.option(
    "--release-member", "do_release_member", is_flag=True, help="End a member's session: other members get its records."
)
@click.option(
    "--release-records",
    "do_release_records",
    is_flag=True,
    help="Make records in flight available now: out of quarantine, without a delay, and even if a member holds them.",
)
@click.option(
    "--archive-records",
    "do_archive_records",
    is_flag=True,
    help="Give up records in flight that no member holds. --reason is needed, and their dead letters show it.",
)
@click.option("--pause", "do_pause", is_flag=True, help="Deliver nothing of the group, or of the topics of --topic.")
@click.option("--resume", "do_resume", is_flag=True, help="Deliver the group's records again, or those of --topic.")
@click.option("--group", "group_ids", type=Group(), multiple=True, help="The share group. Can be given several times.")
@click.option("--all-groups", is_flag=True, help="Apply to all share groups.")
@click.option("--offsets", is_flag=True, help="With --describe: start offset and lag of each partition. The default.")
@click.option("--members", is_flag=True, help="With --describe: the members.")
@click.option(
    "--records",
    "counts",
    is_flag=True,
    help="With --describe: how many records were accepted, archived, removed by Kafka or with their topic, and skipped "
    "or repeated by resets. The last line has the sums over all topics that the group reads or has read.",
)
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATES]",
    help="With --describe: the state of the group. With --list: all groups with their states, or those in these "
    f"states, separated by commas ({', '.join(STATES)}). With --in-flight: only records in these states.",
)
@click.option("--in-flight", is_flag=True, help="With --describe: the records in flight, as sharegroup in-flight.")
@click.option(
    "--progress-stale-longer-than-ms",
    type=Whole("milliseconds", min=0),
    help="With --in-flight: only records whose holder has reported no progress for longer; they are marked STALE.",
)
@click.option("--verbose", is_flag=True, help="With --describe: more columns.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1,...]",
    help="With --reset-offsets: a topic, or some of its partitions. With --delete-offsets, --pause and "
    "--resume: a topic. With --release-records and --archive-records: one partition, as orders:0.",
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
@click.option(
    "--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", callback=_read_by(datetime_of),
    help="Reset to the first records from this time on.",
)  # fmt: skip
@click.option(
    "--by-duration", metavar="PnDTnHnMnS", callback=_read_by(duration_of),
    help="Reset to the first records from so long ago on.",
)  # fmt: skip
@click.option("--to-offset", type=Whole(min=0), help="Reset to this offset.")
@click.option(
    "--shift-by", type=Whole("records"), help="Move the start offsets by this number, back if it is negative."
)
@click.option(
    "--from-file", metavar="CSV", callback=_read_by(offsets_of_file),
    help="Reset to the offsets in a file: topic,partition,offset in each line.",
)  # fmt: skip
@click.option(
    "--timeout",
    "timeout_ms",
    type=Whole("milliseconds", min=1),
    default=30_000,
    show_default=True,
    help="Milliseconds to wait for the brokers, and then for a coordinator, at most.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only show what would change: the default of all actions but --delete, --delete-offsets, --pause and "
    "--resume, which act at once.",
)
@click.option("--execute", is_flag=True, help="Carry out the reset, the release or the archiving.")
@click.option(
    "--force",
    is_flag=True,
    help="Reset also while the group has members: the records that they hold are delivered again. Delete also records "
    "that wait for their dead letters: they get none.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Reset or delete: if the coordinator has just started, wait about one share.session.timeout.ms until members "
    "that still run have sent a request. Without --wait the action is refused during that time (MembersNotKnown).",
)
@click.option("--reason", default="", help="The reason, for the audit log of the coordinator.")
@JSON_OPTION
@click.pass_context
def groups(context: click.Context, /, cluster: Cluster, **options: Any) -> int:
    """List, describe, reset, pause and delete share groups; release members; release or archive records by hand.

    \b
    Examples:
      sharegroup groups --bootstrap-server localhost:9092 --list --state
      sharegroup groups --bootstrap-server localhost:9092 --describe \\
          --group billing --in-flight --state IN_PROGRESS \\
          --progress-stale-longer-than-ms 60000
      sharegroup groups --bootstrap-server localhost:9092 --reset-offsets \\
          --group billing --topic orders:0,1 \\
          --to-datetime 2026-11-01T00:00:00.000 --wait --execute
      sharegroup groups --bootstrap-server localhost:9092 --archive-records \\
          --group billing --topic orders:0 --offset 120-124 \\
          --reason "no customer" --execute"""
    action = action_of(context, options)
    with opened(*cluster, timeout_ms=options["timeout_ms"]) as admin:
        if action == "list":
            _list(admin, options["state"], as_json=options["as_json"])
        elif action == "describe":
            _describe(admin, *_named(admin, options), options)
        else:
            return _act(admin, action, options)
    return 0


def _named(admin: Admin, options: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Returns the named groups, each once; with --all-groups all existing ones. Also returns what was read to find
    them, as in GroupsListed."""
    if options["group_ids"]:
        return tuple(dict.fromkeys(options["group_ids"])), ""
    listed = admin.list_groups()
    return tuple(each.group_id for each in listed.groups), listed.read_from


def _act(admin: Admin, action: str, options: Mapping[str, Any]) -> int:
    from sharegroup import group_actions

    group_ids, _ = _named(admin, options)
    if action == "delete":
        return group_actions.delete_groups(admin, group_ids, options)
    if action == "reset_offsets":
        group_actions.reset_offsets(admin, group_ids[0], options)
    elif action == "delete_offsets":
        group_actions.delete_offsets(admin, group_ids[0], options)
    elif action in ("pause", "resume"):
        group_actions.pause_or_resume(admin, group_ids[0], action, options)
    else:
        group_actions.act_by_hand(admin, group_ids[0], action, options)
    return 0


def _list(admin: Admin, state: str | None, *, as_json: bool) -> None:
    from sharegroup import kafka_tables
    from sharegroup.in_flight import split_states

    listed = admin.list_groups(split_states(state), only_ids=state is None and not as_json)
    tell_source(listed.read_from)
    if as_json:
        print_json(listed.groups)
    elif state is None:
        print_lines(each.group_id for each in listed.groups)
    else:
        print_lines(kafka_tables.listing(listed.groups))


def _describe(admin: Admin, group_ids: tuple[str, ...], read_from: str, options: Mapping[str, Any]) -> None:
    if options["in_flight"]:
        _describe_in_flight(admin, group_ids, read_from, options)
        return
    known = admin.describe_groups(group_ids)
    found = _of_each(group_ids, options, lambda group_id: existing(known[group_id]))
    tell_source(next((each.read_from for each in found if each.read_from), read_from))
    if not options["as_json"]:
        for description in found:
            print_lines(_lines(admin, description, options))
    else:
        print_json(found)


def _of_each(group_ids: Iterable[str], options: Mapping[str, Any], look: Callable[[str], Look]) -> list[Look]:
    """Returns the result of ``look`` for each group. With --all-groups, skips a group that was deleted meanwhile.
    Raises GroupIdNotFound if a group that --group names does not exist."""
    from coordinator.protocol.errors import GroupIdNotFound

    found = []
    for group_id in group_ids:
        try:
            found.append(look(group_id))
        except GroupIdNotFound:
            if not options["all_groups"]:
                raise
    return found


def _describe_in_flight(admin: Admin, group_ids: tuple[str, ...], read_from: str, options: Mapping[str, Any]) -> None:
    from sharegroup import in_flight

    filters = {
        "only_state": in_flight.record_states(options["state"]),
        "progress_staleness_ms": options["progress_stale_longer_than_ms"],
    }
    found = _of_each(group_ids, options, lambda group: in_flight.look(admin, group, filters, in_flight.MOST_SHOWN))
    tell_source(next((each.page.read_from for each in found if each.page.read_from), read_from))
    if options["as_json"]:
        print_json([each.plain() for each in found])
        return
    for each in found:
        each.print(f"sharegroup in-flight --group {each.group_id} --limit shows more")


def _tell_queries(admin: Admin, description: GroupDescription) -> None:
    from sharegroup.doctor.findings import GroupFacts
    from sharegroup.doctor.rules import query_is_slowed
    from sharegroup.group_line import ending_queries, in_words, slowed_queries

    for ended in ending_queries(description):
        click.echo(f"\n{in_words(*ended)}", err=True)
    if slowed_queries(description):
        page = admin.in_flight(description.group_id)
        for finding in query_is_slowed(GroupFacts(description=description, runs=page.runs, now_ms=page.now_ms)):
            click.echo(f"\n{finding.what} sharegroup doctor says more.", err=True)


def _lines(admin: Admin, description: GroupDescription, options: Mapping[str, Any]) -> list[str]:
    from coordinator.protocol.log_lines import printable
    from sharegroup import kafka_tables
    from sharegroup.group_line import flow_in_words, given_up_without_dead_letter, topics_without_partitions, who

    group_id, verbose = description.group_id, options["verbose"]
    if description.state == "EMPTY":
        click.echo(f"\nShare group '{group_id}' has no active members.", err=True)
    _tell_queries(admin, description)
    for told in flow_in_words(description):
        click.echo(f"\n{told}", err=True)
    _tell_waits(description)
    for topic in topics_without_partitions(description):
        click.echo(f"\nTopic '{topic}', to which a member subscribes, does not exist, or was just created.", err=True)
    if options["state"] is not None:
        return kafka_tables.states(description, verbose=verbose)
    if options["members"]:
        if not any(member.active for member in description.members):
            return []
        for member in description.members if verbose else ():
            if member.active and member.checkpoint:
                click.echo(f"\nQuery '{who(member)}' has the checkpoint {printable(member.checkpoint)}.", err=True)
        return kafka_tables.members(group_id, description.members, verbose=verbose)
    if options["counts"]:
        return kafka_tables.records(description)
    if not description.partitions:
        click.echo(f"\nShare group '{group_id}' has no offset information.")
        return []
    if lost := given_up_without_dead_letter(description):
        click.echo(
            f"\nShare group '{group_id}' has given up {lost} records, and has no dead letter topic: sharegroup doctor "
            "says more.",
            err=True,
        )
    return kafka_tables.offsets(group_id, description.partitions, verbose=verbose)


def _tell_waits(description: GroupDescription) -> None:
    from coordinator.config.resolved import GroupConfig
    from sharegroup.group_line import MOST_NAMED, waiting_members, waits_in_words, waits_of, who

    if waiting := waits_of(description):
        limit = GroupConfig.parse(description.all_configs).share_delivery_count_limit
        told = waits_in_words(waiting, limit)
        click.echo(f"\n{len(waiting)} partition(s) wait: {told}. sharegroup doctor says more.", err=True)
    if members := waiting_members(description):
        named = ", ".join(map(who, members[:MOST_NAMED]))
        click.echo(f"\n{len(members)} member(s) wait for partitions that others hold: {named}.", err=True)
