"""A table of handlers: which function answers a request of which type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from coordinator.protocol.errors import InvalidRequest
from coordinator.protocol.messages import GroupRequest, Reply, Request

Handler: TypeAlias = Callable[[Any], Any]


class Handlers:
    """Answers each request with the handler of its type, once ``check`` has not refused it."""

    def __init__(
        self,
        handlers: Mapping[type[Request[Any]], Handler],
        check: Callable[[Request[Any]], None] = lambda request: None,
    ) -> None:
        self.handlers, self._check = handlers, check

    def handle(self, request: Request[Reply]) -> Reply:
        """The reply to the request.

        Raises:
            InvalidRequest: the request has no handler, or lacks a group id.
            ShareGroupError: the request is refused; the subclass says why."""
        handler = self.handlers.get(type(request))
        if handler is None or (isinstance(request, GroupRequest) and not request.group_id):
            raise InvalidRequest(what=f"{type(request).__name__} needs a group id.")
        self._check(request)
        reply: Reply = handler(request)
        return reply
