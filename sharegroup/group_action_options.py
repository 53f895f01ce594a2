"""Which options of ``sharegroup groups`` go together: each action names the options that it takes, as
kafka-share-groups.sh does for its own.

Rule: options are checked before any request to a cluster. An option that an action does not take is refused, and the
error names it: if it were ignored, the action could change more than the user wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click
from click.core import ParameterSource

from coordinator.protocol.topic_names import ALL_TOPICS, is_topic_name
from coordinator.protocol.values import GROUP_STATES
from sharegroup.group_actions import SCENARIOS

STATES = tuple(map(str.capitalize, GROUP_STATES))
"""The states of groups, as Kafka's tools write them."""
_ACTS = ("dry_run", "execute", "reason")
_FORCED = (*_ACTS, "force", "wait")
_PAUSE = ("group_ids", "topics", *_ACTS)
_RECORDS = ("group_ids", "topics", "records", *_ACTS)
TAKES: dict[str, tuple[str, ...]] = {
    "list": ("state", "all_groups"),
    "describe": (
        "group_ids", "all_groups", "members", "offsets", "counts", "in_flight", "verbose", "state",
        "progress_stale_longer_than_ms",
    ),
    "delete": ("group_ids", "all_groups", *_FORCED),
    "reset_offsets": ("group_ids", "topics", "all_topics", *SCENARIOS, *_FORCED),
    "delete_offsets": ("group_ids", "topics", *_FORCED),
    "release_member": ("group_ids", "member_id", *_ACTS),
    "release_records": _RECORDS,
    "archive_records": _RECORDS,
    "pause": _PAUSE,
    "resume": _PAUSE,
}  # fmt: skip
"""The options that each action takes."""
EVERYWHERE = ("bootstrap_server", "config_path", "properties", "timeout_ms", "as_json")
"""The options that every action takes."""
ACTIONS = tuple(TAKES)


def action_of(context: click.Context, options: Mapping[str, Any]) -> str:
    """Returns the one action that the options name. Raises UsageError if they name none or several, or options that do
    not go together."""
    chosen = [action for action in ACTIONS if options[f"do_{action}"]]
    if len(chosen) != 1:
        raise click.UsageError(f"Command must include exactly one action: {_flags(ACTIONS)}.", context)
    _check_taken(context, chosen[0])
    if "group_ids" in TAKES[chosen[0]] and "all_groups" not in TAKES[chosen[0]] and len(options["group_ids"]) > 1:
        raise click.UsageError(f"Option {_flag(chosen[0])} takes one --group", context)
    if options["dry_run"] and options["execute"]:
        raise click.UsageError(f"Option {_flag(chosen[0])} only accepts one of --execute and --dry-run", context)
    _CHECKS[chosen[0]](context, options)
    return chosen[0]


def _check_taken(context: click.Context, action: str) -> None:
    """Refuse an option that the action does not take, and name the actions that take it."""
    for option in context.command.params:
        name = option.name or ""
        if name in EVERYWHERE or name in TAKES[action] or name == f"do_{action}":
            continue
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            others = _flags(other for other in ACTIONS if name in TAKES[other])
            raise click.UsageError(
                f"Option {_flag(action)} does not take the option: {option.opts[0]} (it goes with {others})", context
            )


def _check_list(context: click.Context, options: Mapping[str, Any]) -> None:
    from sharegroup.in_flight import split_states

    if unknown := [name for name in split_states(options["state"]) if name.capitalize() not in STATES]:
        raise click.UsageError(f"Invalid state list '{unknown[0]}'. Valid states are: {', '.join(STATES)}", context)


def _check_describe(context: click.Context, options: Mapping[str, Any]) -> None:
    from sharegroup.in_flight import record_states

    _check_groups(context, options, "describe")
    parts = [each for each in ("members", "offsets", "counts", "in_flight") if options[each]]
    parts += ["state"] if options["state"] is not None and not options["in_flight"] else []
    if len(parts) > 1:
        raise click.UsageError(
            "Option --describe takes at most one of these options: --members, --offsets, --records, --state, "
            "--in-flight",
            context,
        )
    if parts == ["state"] and options["state"]:
        raise click.UsageError("Option --describe does not take a value for --state", context)
    if options["progress_stale_longer_than_ms"] is not None and not options["in_flight"]:
        raise click.UsageError("--progress-stale-longer-than-ms goes with --in-flight.", context)
    if options["in_flight"]:
        record_states(options["state"])


def _check_groups(context: click.Context, options: Mapping[str, Any], action: str = "delete") -> None:
    if bool(options["group_ids"]) == options["all_groups"]:
        raise click.UsageError(f"Option --{action} takes one of these options: --all-groups, --group", context)


def _check_delete_offsets(context: click.Context, options: Mapping[str, Any]) -> None:
    if not options["group_ids"] or not options["topics"]:
        raise click.UsageError("Option --delete-offsets takes the following options: --group, --topic", context)
    if parts := [topic for topic in options["topics"] if ":" in topic]:
        whole = parts[0].partition(":")[0]
        raise click.UsageError(f"Option --delete-offsets deletes those of whole topics: --topic {whole}", context)


def _check_reset(context: click.Context, options: Mapping[str, Any]) -> None:
    if not options["group_ids"]:
        raise click.UsageError("Option --reset-offsets takes the option: --group", context)
    if sum(options[each] is not None and options[each] is not False for each in SCENARIOS) != 1:
        raise click.UsageError(f"Option --reset-offsets takes one of these options: {_flags(SCENARIOS)}", context)
    has_topics = bool(options["topics"])
    if options["from_file"] is not None and (has_topics or options["all_topics"]):
        raise click.UsageError("The file of --from-file names the topics: leave out --topic and --all-topics", context)
    if options["from_file"] is None and has_topics == options["all_topics"]:
        raise click.UsageError("Option --reset-offsets takes the option: --all-topics or --topic", context)


def _check_release_member(context: click.Context, options: Mapping[str, Any]) -> None:
    if not options["group_ids"] or not options["member_id"]:
        raise click.UsageError("Option --release-member takes the following options: --group, --member", context)


def _check_pause(context: click.Context, options: Mapping[str, Any]) -> None:
    action = "pause" if options["do_pause"] else "resume"
    if not options["group_ids"]:
        raise click.UsageError(f"Option --{action} takes the option: --group", context)
    if wrong := [topic for topic in options["topics"] if not is_topic_name(topic) and topic != ALL_TOPICS]:
        raise click.UsageError(f"Option --{action} takes whole topics, and {wrong[0]!r} is no topic's name", context)


def _check_archive_records(context: click.Context, options: Mapping[str, Any]) -> None:
    _check_records(context, options, "--archive-records")
    if not options["reason"].strip():
        raise click.UsageError("Option --archive-records takes the option: --reason", context)


def _check_records(context: click.Context, options: Mapping[str, Any], option: str = "--release-records") -> None:
    if not options["group_ids"] or len(options["topics"]) != 1 or options["records"] is None:
        raise click.UsageError(f"Option {option} takes the following options: --group, --topic, --offset", context)


_CHECKS = {
    "list": _check_list,
    "describe": _check_describe,
    "delete": _check_groups,
    "reset_offsets": _check_reset,
    "delete_offsets": _check_delete_offsets,
    "release_member": _check_release_member,
    "release_records": _check_records,
    "archive_records": _check_archive_records,
    "pause": _check_pause,
    "resume": _check_pause,
}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _flags(names: Iterable[str]) -> str:
    return ", ".join(map(_flag, names))
