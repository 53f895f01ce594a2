"""Opens the admin client for a command, and prints what several commands print."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from coordinator.protocol.log_lines import printable
from sharegroup.cluster_options import settings
from sharegroup.progress_bar import progress

if TYPE_CHECKING:
    from coordinator.admin.admin import Admin, ReadStore
    from coordinator.protocol.messages import GroupDescription, Request
    from coordinator.protocol.wire import LaunchSettings


@contextmanager
def opened(
    bootstrap_server: str, config_path: str | None, properties: Mapping[str, str], *, timeout_ms: int | None = None
) -> Iterator[Admin]:
    """The admin client of these options, for a ``with`` block. If no coordinator runs, a terminal shows that the state
    store is read."""
    from coordinator.admin.admin import Admin  # importing takes a second, which --help does not need
    from coordinator.service.handlers.read_only import read_store

    conf = settings(bootstrap_server, config_path, properties)
    with Admin(conf, read_store=_with_progress(read_store), timeout_ms=timeout_ms) as admin:
        yield admin


def _with_progress(read_store: ReadStore) -> ReadStore:
    """Wrap ``read_store``: a terminal shows while a state store is read."""

    def opened_store(found: LaunchSettings) -> Callable[[Request[Any]], Any]:
        what = f"reading the state store {found.state_store.partition(':')[0]}"
        with progress(what):
            answer = read_store(found)

        def answered(request: Request[Any]) -> Any:
            with progress(what):
                return answer(request)

        return answered

    return opened_store


def described(admin: Admin, group_id: str) -> GroupDescription:
    """Returns the description of a group. Raises GroupIdNotFound if there is no such group."""
    return existing(admin.describe_groups([group_id])[group_id])


def existing(description: GroupDescription) -> GroupDescription:
    """Returns the description. Raises GroupIdNotFound if the group does not exist."""
    from coordinator.protocol.errors import GroupIdNotFound

    if description.state == "DEAD":
        raise GroupIdNotFound(group_id=description.group_id)
    return description


def origins_of(admin: Admin, group_id: str, dlq_topic: str) -> dict[tuple[str, int], int]:
    """Returns the first offset that the group was never given, by topic and partition of all that it reads or has read.
    Empty if there is no such group, or if its dead letters go to another topic."""
    description = admin.describe_groups([group_id])[group_id]
    if description.configs.get("errors.deadletterqueue.topic.name") != dlq_topic:
        return {}
    given: dict[tuple[str, int], int] = defaultdict(int)
    for each in description.partitions:
        given[each.topic, each.partition] = max(each.end_offset, given[each.topic, each.partition])
    for topic, ends in description.forgotten.items():
        for partition, end in ends.items():
            given[topic, int(partition)] = max(end, given[topic, int(partition)])
    return dict(given)


def tell_source(read_from: str) -> None:
    """Print on standard error, if no coordinator answered, what was read instead."""
    if read_from:
        click.echo(f"No coordinator answers: read from {read_from}.", err=True)


def print_lines(lines: Iterable[str]) -> None:
    """Print these lines on standard output. Names in them may come from anybody, so control characters are escaped."""
    for line in lines:
        click.echo(printable(line))


def print_json(value: Any) -> None:
    """Print a value as JSON. Messages become objects with all their fields."""
    click.echo(json.dumps(plain(value)))


def plain(value: Any) -> Any:
    """Returns the value with messages as dicts of all their fields."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
