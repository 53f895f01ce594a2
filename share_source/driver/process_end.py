"""Runs a function before Spark ends the process of a query's source, by SIGTERM or by the end of its input (both seen).

Java has closed its ends of this process's pipes by then (seen), so standard error no longer reaches the driver's log.
The last lines go to the driver's own standard error instead, if the system shows it (Linux's /proc) and a line there
does no harm. Rule: the process ends, even if its main thread waits for a reply, or the function hangs. At SIGTERM a
thread of its own runs the function, for up to LONGEST_S, and then ends the process."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from coordinator.protocol.log_lines import log_to

SOURCE_PROCESS = "pyspark.sql.streaming.python_streaming_source_runner"
LONGEST_S = 5.0
"""The process ends after this many seconds, even if the function still runs: Spark does not wait for the process."""
_BY_SIGTERM = 128 + signal.SIGTERM

_speaks_last = threading.Lock()
_driver: list[int] = []
"""The process id of the parent, the driver, if this is Spark's process for a source."""


def before_sigterm_ends(function: Callable[[], None]) -> None:
    """Have the function called at SIGTERM, before the process ends. Does nothing outside of Spark's process for a
    source, whose signals are not ours, or if another handler is set."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is None or spec.name != SOURCE_PROCESS or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    if threading.current_thread() is not threading.main_thread():
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)  # a handler of Python's, so that the number is written to the pipe
    _driver.append(os.getppid())
    threading.Thread(target=_wait, args=(reading, function), name="share-end", daemon=True).start()


@contextlib.contextmanager
def last_lines() -> Iterator[None]:
    """A context in which the last lines of a source's process reach the driver's log. SIGTERM ends the process only
    after them: the main thread and the thread that waits for SIGTERM enter one after the other."""
    with _speaks_last:
        with contextlib.suppress(OSError):
            if _driver and takes_lines(_driver[0]):
                log_to(Path(f"/proc/{_driver[0]}/fd/2").open("a", encoding="utf-8"))  # noqa: SIM115 - open to the end
        yield


def _wait(reading: int, function: Callable[[], None]) -> None:
    while (number := os.read(reading, 1)) and number[0] != signal.SIGTERM:
        pass
    late = threading.Timer(LONGEST_S, os._exit, (_BY_SIGTERM,))
    late.daemon = True
    late.start()
    with contextlib.suppress(Exception):
        function()
    os._exit(_BY_SIGTERM)


def takes_lines(driver: int) -> bool:
    """Whether this process may write a line to the driver's standard error. If that is a file, it must be open for
    appending: otherwise the driver's next line would overwrite ours."""
    try:
        if os.getppid() != driver:
            return False
        if not stat.S_ISREG(os.stat(f"/proc/{driver}/fd/2").st_mode):
            return True
        info = Path(f"/proc/{driver}/fdinfo/2").read_text(encoding="ascii")
    except OSError:
        return False
    flags = next((line.split()[1] for line in info.splitlines() if line.startswith("flags:")), "0")
    return bool(int(flags, 8) & os.O_APPEND)
