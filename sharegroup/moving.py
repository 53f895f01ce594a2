"""``sharegroup import`` and ``sharegroup export``: a group's position from elsewhere to here, and away."""

from __future__ import annotations

import functools
from typing import Any

import click

from coordinator.protocol.errors import GroupExists, InvalidImport
from sharegroup.admin_access import opened, print_json, print_lines, tell_source
from sharegroup.cluster_options import JSON_OPTION, Cluster, cluster_options, settings
from sharegroup.option_types import Group, Topic

FROM = ("share_group", "consumer_group", "checkpoint", "store")
TOPICS = click.option(
    "--topic", "topics", type=Topic(), multiple=True, help="Only this topic. Can be given several times."
)
TIMEOUT_MS = 30_000
CHANGED = "the source changed while it was read: stop whatever still works there, and try again."
LOST = (
    "{count:,} record(s) beyond the start offsets are done here. A start offset can't say so: whoever begins there "
    "gets them once more."
)
MEMBERS = "Share group {group_id} has {count} member(s): the offsets go on while members work. Stop them first."


@click.command("import", short_help="Create a group where another one stands: Kafka's, a checkpoint's, a store's.")
@cluster_options
@click.option("--group", "group_id", type=Group(), required=True, help="The share group to create.")
@click.option(
    "--from-share-group", "share_group", metavar="GROUP", help="A share group of Kafka's own, without members."
)
@click.option("--from-consumer-group", "consumer_group", metavar="GROUP", help="A consumer group without members.")
@click.option("--from-checkpoint", "checkpoint", metavar="FOLDER", help="A checkpoint of Spark's Kafka source.")
@click.option(
    "--from-store", "store", metavar="STORE", help="The same group in another state store: kafka, or sqlite:FILE."
)
@TOPICS
@click.option("--dry-run", is_flag=True, help="Only show what would be imported: the default.")
@click.option("--execute", is_flag=True, help="Create the group.")
@click.option(
    "--wait",
    is_flag=True,
    help="With --from-store: wait until it is known whether the group there has members with a session.",
)
@click.option("--reason", default="", help="Why, for the audit log of the coordinator.")
@JSON_OPTION
@click.pass_context
def import_command(context: click.Context, /, cluster: Cluster, group_id: str, **options: Any) -> None:
    """Create a share group that goes on where another group stands: what is done there is not delivered again.

    Stop the members of the other group first. The new group gets the start offsets; from a share group also the records
    that are done beyond them, and the delivery counts; and from another state store also the configs, tries and
    quarantined records. The other group is not changed: delete it when the import is done.

    \b
    Examples:
      sharegroup import --bootstrap-server localhost:9092 --group billing \\
          --from-share-group billing
      sharegroup import --bootstrap-server localhost:9092 --group billing \\
          --from-consumer-group billing-consumers --execute"""
    from sharegroup.group_actions import DRY_RUN, asked, show_effects
    from sharegroup.import_sources import Sources

    named = [each for each in FROM if options[each]]
    if len(named) != 1:
        raise click.UsageError("name one source: " + ", ".join(f"--from-{each}" for each in FROM).replace("_", "-"))
    if options["dry_run"] and options["execute"]:
        raise click.UsageError("only one of --execute and --dry-run can be given")
    sources = Sources(group_id, settings(*cluster), options["topics"], TIMEOUT_MS)
    read = functools.partial(asked, options, functools.partial(getattr(sources, named[0]), options[named[0]]))
    with opened(*cluster, timeout_ms=TIMEOUT_MS) as admin:
        if admin.describe_groups([group_id])[group_id].state != "DEAD":  # told before the source is read
            raise GroupExists(group_id=group_id)
        position, notes = read()
        altered = admin.import_group(group_id, position)
        if options["execute"]:
            if read()[0] != position:
                raise InvalidImport(group_id=group_id, reason=CHANGED)
            altered = admin.import_group(group_id, position, execute=True, reason=options["reason"])
    for note in notes:
        click.echo(note, err=True)
    print_json(altered) if options["as_json"] else show_effects(altered, DRY_RUN)


@click.command("export", short_help="Print a group's start offsets, for a consumer group or a checkpoint.")
@cluster_options
@click.option("--group", "group_id", type=Group(), required=True, help="The share group.")
@TOPICS
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, as startingOffsets of Spark's Kafka source takes it."
)
def export_command(cluster: Cluster, group_id: str, topics: tuple[str, ...], as_json: bool) -> None:
    """Print a group's start offsets: topic,partition,offset in each line, as --from-file takes them.

    Standard error says how many records beyond the start offsets are done: whoever begins there gets them once more.
    kafka-consumer-groups.sh --reset-offsets --from-file takes the lines. kafka-share-groups.sh of Kafka 4.3 takes no
    file.

    \b
    Example:
      sharegroup export --bootstrap-server localhost:9092 \\
          --group billing --topic orders"""
    with opened(*cluster, timeout_ms=TIMEOUT_MS) as admin:
        found = admin.position(group_id)
    tell_source(found.read_from)
    if found.members:
        click.echo(MEMBERS.format(group_id=group_id, count=found.members), err=True)
    partitions = [each for each in found.partitions if not topics or each.topic in topics]
    done = sum(run.last - run.first + 1 for each in partitions for run in each.runs if run.state != "AVAILABLE")
    click.echo(LOST.format(count=done), err=True)
    if as_json:
        offsets: dict[str, dict[int, int]] = {each.topic: {} for each in partitions}
        for each in partitions:
            offsets[each.topic][each.partition] = each.start
        print_json(offsets)
        return
    print_lines(f"{each.topic},{each.partition},{each.start}" for each in partitions)
