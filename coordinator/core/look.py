"""Look: answer a request that changes nothing, from the group as it is in memory.

A look is pure, and makes no log record. The runtime sends the answer once all that the answer shows is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.core.looks.description import WithLag, describe, list_offsets, with_lag
from coordinator.core.looks.measures import MeasureGroup, measure_group
from coordinator.core.looks.position import read_position
from coordinator.core.looks.shown_runs import list_in_flight, list_plans, list_windows
from coordinator.core.looks.view import ViewGroup, view_group
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import ListInFlight, ListOffsets, ListPlans, ListWindows, ReadPosition
from coordinator.protocol.messages import DescribeGroup, Reply, Request

_LOOKS: dict[type[Request[Any]], Callable[[ShareGroup, Any, int], Any]] = {
    ViewGroup: view_group,
    MeasureGroup: measure_group,
    DescribeGroup: describe,
    ListOffsets: list_offsets,
    WithLag: with_lag,
    ListInFlight: list_in_flight,
    ListWindows: list_windows,
    ListPlans: list_plans,
    ReadPosition: read_position,
}


def is_look(request: Request[Any]) -> bool:
    """Whether :func:`look` answers the request; if not, :func:`coordinator.core.decide.decide` does."""
    return type(request) in _LOOKS


def look(group: ShareGroup, request: Request[Reply], now_ms: int) -> Reply:
    """The answer to ``request``, at this time of the coordinator's clock.

    Raises:
        ShareGroupError: the request is refused; the subclass says why.
    """
    answer: Reply = _LOOKS[type(request)](group, request, now_ms)
    return answer
