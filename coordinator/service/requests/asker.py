"""The one value that says who asks. A door makes it, and nothing behind the door works it out again."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from coordinator.protocol.rights import Caller
from coordinator.service.runtime.transaction import FromAnotherHost


def _waits() -> bool:
    return False


class Asker(NamedTuple):
    """The ``caller`` with its rights and its name, the ``peer`` from which it asks, and the ``protocol`` version of its
    program (empty: it names none). ``request_id``: the client's own id of the request; empty: it gave none.
    ``origin``: the bounds of a request that another host passed on; None: it is of this host. ``is_gone``: whether the
    asker has ceased to wait."""

    caller: Caller
    peer: str
    protocol: str
    request_id: str = ""
    origin: FromAnotherHost | None = None
    is_gone: Callable[[], bool] = _waits
