"""A table of handlers: which function answers a request of which type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from coordinator.protocol.errors import InvalidRequest
from coordinator.protocol.messages import GroupRequest, Message, Request

Handler: TypeAlias = Callable[[Any], Message]


class Handlers:
    """Answers each request with the handler of its type."""

    def __init__(self, handlers: Mapping[type[Request[Any]], Handler]) -> None:
        self.handlers = handlers

    def handle(self, request: Request[Any]) -> Message:
        """The reply to the request.

        Raises:
            InvalidRequest: the request has no handler, or lacks a group id.
            ShareGroupError: the request is refused; the subclass says why.
        """
        handler = self.handlers.get(type(request))
        if handler is None or (isinstance(request, GroupRequest) and not request.group_id):
            raise InvalidRequest(what=f"{type(request).__name__} needs a group id.")
        return handler(request)
