"""``sharegroup configs``: lists, sets and unsets the configuration that is stored with a share group."""

from __future__ import annotations

from collections.abc import Mapping

import click

from coordinator.protocol.messages import GroupDescription
from sharegroup.admin_access import described, opened, print_json, tell_source
from sharegroup.cluster_options import JSON_OPTION, Cluster, cluster_options, pairs
from sharegroup.group_actions import show_effects
from sharegroup.option_types import Group

_GROUP = click.option("--group", "group_id", type=Group(), required=True, help="The share group.")
_REASON = click.option("--reason", default="", help="The reason, for the audit log of the coordinator.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")


def _keys(context: click.Context, argument: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    if pair := next((text for text in texts if "=" in text), None):
        raise click.BadParameter(f"'{pair}' has a value: give the key alone, {pair.partition('=')[0].strip()}")
    return texts


@click.group()
def configs() -> None:
    """List, set and unset the configuration of a share group.

    \b
    Example:
      sharegroup configs list --bootstrap-server localhost:9092 --group billing"""


@configs.command("list")
@cluster_options
@_GROUP
@click.option("--all", "with_defaults", is_flag=True, help="Also the keys that have their defaults.")
@JSON_OPTION
def list_configs(cluster: Cluster, group_id: str, with_defaults: bool, as_json: bool) -> None:
    """List the configs that are set for a group, as KEY=VALUE.

    A standalone coordinator's defaults and bounds (group.share.*) are listed as well, where they change what holds.

    \b
    Examples:
      sharegroup configs list --bootstrap-server localhost:9092 \\
          --group billing --all"""
    from coordinator.config.group_keys import GROUP_KEYS

    with opened(*cluster) as admin:
        description = described(admin, group_id)
    tell_source(description.read_from)
    defaults = {key.name: key.shown_default for key in GROUP_KEYS.values()} if with_defaults else {}
    found = dict(sorted({**defaults, **description.in_force, **description.configs}.items()))
    if as_json:
        print_json(found)
        return
    for key, value in found.items():
        click.echo(f"{key}={value}" + _told(description, key))


def _told(description: GroupDescription, key: str) -> str:
    """Why a config holds that is not set; or that another value holds than the one that is set."""
    if key not in description.configs:
        return "  (the coordinator's default)" if key in description.in_force else "  (default)"
    now = description.in_force.get(key)
    return "" if now is None else f"  (the coordinator's bounds make it {now})"


@configs.command("set")
@cluster_options
@_GROUP
@click.argument("given", nargs=-1, required=True, metavar="KEY=VALUE...", callback=pairs)
@click.option(
    "--force",
    is_flag=True,
    help="Set errors.deadletterqueue.on.failure=archive also while records wait for their dead letters: they may get "
    "none.",
)
@_REASON
@_DRY_RUN
@JSON_OPTION
def set_configs(
    cluster: Cluster, group_id: str, given: Mapping[str, str], force: bool, reason: str, dry_run: bool, as_json: bool
) -> None:
    """Set configs of a group. They take effect at once, for all members.

    \b
    Examples:
      sharegroup configs set --bootstrap-server localhost:9092 --group billing \\
          share.session.timeout.ms=600000 --reason "restarts take five minutes"
    """
    with opened(*cluster) as admin:
        altered = admin.alter_configs(group_id, given, execute=not dry_run, force=force, reason=reason)
    print_json(altered) if as_json else show_effects(altered)


@configs.command("unset")
@cluster_options
@_GROUP
@click.argument("keys", nargs=-1, required=True, metavar="KEY...", callback=_keys)
@click.option(
    "--force",
    is_flag=True,
    help="Unset errors.deadletterqueue.topic.name also while records wait for their dead letters: they get none.",
)
@_REASON
@_DRY_RUN
@JSON_OPTION
def unset_configs(
    cluster: Cluster, group_id: str, keys: tuple[str, ...], force: bool, reason: str, dry_run: bool, as_json: bool
) -> None:
    """Unset configs of a group, so that their defaults apply.

    \b
    Examples:
      sharegroup configs unset --bootstrap-server localhost:9092 --group billing \\
          share.session.timeout.ms"""
    with opened(*cluster) as admin:
        altered = admin.alter_configs(group_id, unset=keys, execute=not dry_run, force=force, reason=reason)
    print_json(altered) if as_json else show_effects(altered)
