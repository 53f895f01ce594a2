"""Who sends a request. Whatever receives the request, the server or the reader of a topic, makes this value once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from coordinator.protocol.rights import Caller
from coordinator.service.runtime.transaction import FromAnotherHost


class Asker(NamedTuple):
    """The ``caller``: its name and its rights; the ``peer`` from which it asks; the ``protocol`` version of its
    program, empty if it names none. ``request_id``: the client's own id of the request, empty if it gave none.
    ``origin``: the bounds of a request that another host passed on; None: the request is of this host. ``is_gone``:
    whether the asker has ceased to wait."""

    caller: Caller
    peer: str
    protocol: str
    request_id: str = ""
    origin: FromAnotherHost | None = None
    is_gone: Callable[[], bool] = lambda: False
