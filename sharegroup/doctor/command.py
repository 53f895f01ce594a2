"""The command ``sharegroup doctor``: prints findings, and ends with 1 if there is an error among them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from sharegroup.admin_access import opened, print_json, tell_source
from sharegroup.cluster_options import JSON_OPTION, Cluster, cluster_options, connect_options, settings
from sharegroup.doctor.limits import HELD_LONG_MS
from sharegroup.option_types import Group, Whole
from sharegroup.progress_bar import console

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

    from sharegroup.doctor.findings import Finding


@click.command(short_help="Name what is wrong with groups, and what to do.")
@cluster_options
@click.option(
    "--group", "group_ids", type=Group(), multiple=True, help="A share group. Can be given several times.  [all groups]"
)
@click.option(
    "--held-longer-than-ms",
    type=Whole("milliseconds", min=0),
    default=HELD_LONG_MS,
    show_default=True,
    help="A member that holds records for longer, without a sign of progress, is named.",
)
@JSON_OPTION
def doctor(cluster: Cluster, group_ids: tuple[str, ...], held_longer_than_ms: int, as_json: bool) -> int:
    """Name what is wrong with share groups: the cause, what to do, and the command that does it or shows more.

    Exit status 1 if an error is among the findings; warnings and notes do not count. Nothing is started or changed.

    \b
    Example:
      sharegroup doctor --bootstrap-server localhost:9092 \\
          --group billing --held-longer-than-ms 60000"""
    from coordinator.protocol.errors import GroupIdNotFound
    from sharegroup.doctor.facts import Examination  # importing takes a second, which --help does not need
    from sharegroup.doctor.findings import Severity
    from sharegroup.doctor.rules import examine, examine_cluster

    with opened(*cluster) as admin:
        config = settings(*cluster)
        repeated = connect_options(cluster.config_path, cluster.properties)
        examination = Examination(admin, config, held_longer_than_ms, repeated)
        listed = admin.list_groups(only_ids=bool(group_ids))
        tell_source(listed.read_from)
        found = {"": examine_cluster(examination.cluster())}
        for group_id in group_ids or tuple(each.group_id for each in listed.groups):
            try:
                found[group_id] = examine(examination.group(group_id))
            except GroupIdNotFound:
                if group_ids:
                    raise
    if as_json:
        print_json([as_object(group_id, each) for group_id, of_group in found.items() for each in of_group])
    else:
        screen = console()
        for group_id, of_group in found.items():
            if of_group or group_id:
                screen.print(report(group_id, of_group))
    return 1 if any(each.severity is Severity.ERROR for of_group in found.values() for each in of_group) else 0


def as_object(group_id: str, finding: Finding) -> dict[str, str]:
    """Returns the finding as a JSON object. ``group_id`` is empty if it concerns the cluster."""
    said = {"what": finding.what, "do": finding.do, "command": finding.command}
    return {"group_id": group_id, "rule": finding.rule, "severity": finding.severity.value, **said}


def report(group_id: str, findings: Iterable[Finding]) -> RenderableType:
    """Returns the findings of one group, or of the cluster (an empty id), for a screen of any width."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    title = f"Group {group_id}" if group_id else "Cluster"
    parts: list[RenderableType] = [Text(title, style="bold")]
    for finding in findings:
        said = Text.assemble((finding.severity.value, _STYLES[finding.severity.value]), "  ", finding.what)
        parts.append(Padding(said, (0, 0, 0, 2), expand=False))
        parts.append(Padding(Text(finding.do, style="italic"), (0, 0, 0, 6), expand=False))
        if finding.command:
            parts.append(Padding(_Pasted(finding.command), (0, 0, 1, 6), expand=False))
    if len(parts) == 1:
        parts.append(Padding(Text("nothing is wrong", style="green"), (0, 0, 0, 2), expand=False))
    return Group(*parts)


class _Pasted:
    """A command that is broken at the screen's width so that a shell takes the copied lines."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        yield Text("\n".join(shell_lines(self._command, options.max_width)), style="cyan")


def shell_lines(command: str, width: int) -> list[str]:
    """Returns the command in lines of up to ``width`` characters, which end in a backslash where the command continues.
    A longer word has a line of its own."""
    lines: list[str] = []
    line = ""
    for word in map(shlex.quote, shlex.split(command)):
        if line and len(line) + len(word) + len("  \\") > width:
            lines.append(f"{line} \\")
            line = "  "
        line = f"{line} {word}" if line.strip() else line + word
    return [*lines, line]


_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold blue"}
