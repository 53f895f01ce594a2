"""``sharegroup web`` as after an hour: the history of each group is full from the first look on, so that a page draws
as many points as it ever does. Run as ``python -m benchmarks.filled_page web …``."""

from __future__ import annotations

import sys
import time
from unittest import mock

from coordinator.service.process.process_exit import end_process
from sharegroup.__main__ import run
from sharegroup.web.history import LONGEST_S, NAMES, POINTS, History


def main() -> None:
    """Run the command line with full histories."""
    with mock.patch("sharegroup.web.watch.History", _Filled):
        status = run(sys.argv[1:])
    end_process(status)


def _an_hour() -> History:
    found, step_s, now_s = History(), LONGEST_S / POINTS, time.time()
    for at in range(POINTS):
        numbers = [1e9 * (1 + (at * (7 + which)) % 13) for which in range(len(NAMES))]
        found.add(now_s - step_s * (POINTS - at), numbers)
    return found


_HOUR = _an_hour()


class _Filled(History):
    """A history with an hour's points from the beginning. They are copied: the page creates a history at each scan."""

    def __init__(self) -> None:
        self._times_s = _HOUR._times_s[:]
        self._numbers = {name: numbers[:] for name, numbers in _HOUR._numbers.items()}


if __name__ == "__main__":
    main()
