"""The numbers and names that commands take, and options of Kafka's tools that have another form here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click
from click.types import StringParamType

from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.topic_names import is_topic_name


class Whole(click.IntRange):
    """A whole number of ``of`` (milliseconds, records), or of nothing if that is empty."""

    def __init__(self, of: str = "", min: int | None = None, max: int | None = None) -> None:  # noqa: A002 - click's
        super().__init__(min, max)
        self.of = f" of {of}" if of else ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the number. Raises BadParameter if the text is none, or out of the range."""
        try:
            int(value)
        except ValueError:
            self.fail(f"'{value}' is no whole number{self.of}", param, ctx)
        return super().convert(value, param, ctx)


class Seconds(click.FloatRange):
    """A number of seconds, in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the number. Raises BadParameter if the text is none, or out of the range."""
        try:
            is_number = not math.isnan(float(value))
        except ValueError:
            is_number = False
        if not is_number:
            self.fail(f"'{value}' is no number of seconds", param, ctx)
        return super().convert(value, param, ctx)


class Topic(StringParamType):
    """The name of one topic."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the name. Raises BadParameter if no topic can have it."""
        if not is_topic_name(value):
            self.fail(f"'{value}' is no name of a topic{': name one topic' if ',' in value else ''}", param, ctx)
        return value


class Group(StringParamType):
    """The name of a share group."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the name. Raises BadParameter if no group can have it."""
        from coordinator.protocol.group_ids import check_group_id

        if not value.strip():
            self.fail("it is empty: name a share group", param, ctx)
        try:
            check_group_id(value)
        except ShareGroupError as error:
            self.fail(str(error), param, ctx)
        return value


def elsewhere(name: str, instead: str, *, is_flag: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Add an option of Kafka's tool that this command has in another form. Whoever gives it is told ``instead``."""

    def refuse(context: click.Context, option: click.Parameter, value: Any) -> None:
        if value:
            raise click.UsageError(f"{name}: {instead}", context)

    return click.option(name, hidden=True, is_flag=is_flag, expose_value=False, callback=refuse)
