"""``sharegroup check``: checks the options of a query as ``load()``, sink and coordinator do, without a query."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import click

from coordinator.protocol.errors import ShareGroupError
from sharegroup.admin_access import print_json
from sharegroup.cluster_options import JSON_OPTION

if TYPE_CHECKING:
    from sharegroup.check.options import Found

_FILE = click.Path(dir_okay=False)


def _master(context: click.Context, option: click.Parameter, url: str | None) -> str | None:
    """Returns the URL. Raises BadParameter for one that Spark would refuse with the JVM's traceback."""
    if url is not None and not re.match(r"(local(-cluster)?(\[.*\])?$|yarn$|spark://.|k8s://.)", url):
        raise click.BadParameter(f"'{url}' is neither local[N] nor yarn nor spark://HOST:PORT nor k8s://HOST:PORT")
    return url


@click.command(short_help="Check the options of a query, without a query.")
@click.option("--options", "source_path", metavar="FILE", type=_FILE, help="The options of the source, in a file.")
@click.option("--sink-options", "sink_path", metavar="FILE", type=_FILE, help="The options of the sink, in a file.")
@click.option("--master", metavar="URL", callback=_master, help="Also check the executors of this Spark master.")
@JSON_OPTION
@click.pass_context
def check(
    context: click.Context, source_path: str | None, sink_path: str | None, master: str | None, as_json: bool
) -> int:
    """Check the options of a query: exit status 0 if the query can start with them, 1 if not.

    A file is a Java properties file or a JSON object, with an option of readStream or writeStream in each entry. The
    command asks the leader of every subscribed partition, and the standalone coordinator if the options name one. No
    group is changed. If the sink's options have archive.path, its folder is created, and a small file is written and
    deleted.

    \b
    Example:
      sharegroup check --options billing.json \\
          --sink-options billing-sink.json --json"""
    if source_path is None and sink_path is None:
        raise click.UsageError("Name --options, --sink-options, or both.", context)
    from sharegroup.check.options import of_host, of_sink, of_source, read_options  # importing takes a second

    sides: dict[str, Callable[[], Iterator[Found]]] = {}
    if source_path is not None:
        sides["source"] = lambda: of_source(read_options(source_path))
    if sink_path is not None:
        sides["sink"] = lambda: of_sink(read_options(sink_path), source_path)
    sides["host"] = of_host
    if master is not None:
        from sharegroup.check.executors import of_executors

        sides["executors"] = lambda: of_executors(master)
    found = []
    for each in _checks(sides):
        found.append(each)
        if not as_json:
            error = f"{each['error']}: " if each["error"] else ""
            click.echo(f"{each['result']:6} {each['side']}: {error}{each['what']}")
    if as_json:
        print_json(found)
    return 1 if any(each["error"] for each in found) else 0


def _checks(sides: Mapping[str, Callable[[], Iterator[Found]]]) -> Iterator[dict[str, str | None]]:
    """Yields the findings of each side's check, each once. An error that a check raises ends its side."""
    told: list[dict[str, str | None]] = []

    def is_new(row: dict[str, str | None]) -> bool:  # several questions may meet one error
        told.append(row)
        return row not in told[:-1]

    for side, findings in sides.items():
        try:
            yield from filter(is_new, (_row(side, finding) for finding in findings()))
        except ShareGroupError as error:
            yield from filter(is_new, [_row(side, error)])


def _row(side: str, found: Found) -> dict[str, str | None]:
    is_error = isinstance(found, ShareGroupError)
    result = "wrong" if is_error else str(getattr(found, "result", "ok"))
    what = " ".join(str(found).split())
    return {"side": side, "result": result, "error": type(found).__name__ if is_error else None, "what": what}
