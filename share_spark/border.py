"""The border to Spark: a named error leaves a method of the data source with its sentence first.

Spark shows a Python error as a formatted traceback, whose last line has the error's text. Rule: a named error tells a
person everything, so Spark gets it without frames, and the log has the frames at debug level. Any other error is a bug,
and keeps its frames."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from coordinator.protocol.errors import ShareGroupError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Item = TypeVar("Item")

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""Spark's environment variable for workers that makes an error only its text
(spark.sql.execution.pyspark.udf.hideTraceback.enabled sets it for all errors)."""

_log = logging.getLogger(__name__)


def named_errors_first(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Wrap the method: named errors are raised again without the frames below it."""

    @functools.wraps(method)
    def called(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return method(*arguments, **named)
        except ShareGroupError as error:
            shown = _without_frames(error)
        raise shown

    return called


def named_errors_first_in(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items, with errors as in :func:`named_errors_first`: a generator's errors come while Spark iterates."""
    try:
        yield from items
        return
    except ShareGroupError as error:
        shown = _without_frames(error)
    raise shown


def _without_frames(error: ShareGroupError) -> ShareGroupError:
    """Returns the error without traceback and cause. A worker of Spark ends after an error, so HIDE_TRACEBACK affects
    only this one."""
    _log.debug("%s: %s", type(error).__name__, error, exc_info=error)
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name.startswith("pyspark."):
        os.environ[HIDE_TRACEBACK] = "1"
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
