"""When a process of a query ends with an error, tells the group the name of the error.

Rule: the process ends as it would without this. The group is told over the open connection, once, within ANSWER_S."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from coordinator.client.client import CoordinatorClient
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.log_lines import printable
from coordinator.protocol.messages import ReportEnding
from coordinator.protocol.values import MOST_ENDING_TEXT

ANSWER_S = 3.0
"""A process that ends waits this many seconds for the coordinator's answer."""
SOON_S = 2.0
"""A failing task waits this many seconds at most: Spark may try it several times (spark.task.maxFailures)."""
_END = 300
"""A longer sentence is cut in its middle, and keeps this many characters of its end, which has the way out."""


def tell_ending(client: CoordinatorClient, group_id: str, error: ShareGroupError, **who: Any) -> None:
    """Tell the group that the process of ``who`` ends with this error (ReportEnding). Nothing is raised."""
    with contextlib.suppress(Exception):
        client.ask_connected(ending_of(group_id, error, **who), ANSWER_S, group_id)


def ending_of(group_id: str, error: ShareGroupError, **who: Any) -> ReportEnding:
    """The request that tells the error. ``who``: the fields that say which process ends."""
    text = printable(str(error))
    if len(text) > MOST_ENDING_TEXT:
        text = f"{text[: MOST_ENDING_TEXT - _END - 5]} ... {text[-_END:]}"
    return ReportEnding(group_id=group_id, error=type(error).__name__, text=text, **who)


def soon(tell: Callable[[], None]) -> None:
    """Call ``tell``, which may have to connect first, and wait for it for SOON_S at most. Nothing is raised."""

    def told() -> None:
        with contextlib.suppress(Exception):
            tell()

    thread = threading.Thread(target=told, name="share-ending", daemon=True)
    thread.start()
    thread.join(SOON_S)
