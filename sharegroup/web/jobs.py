"""Runs redrives in a thread, one after another, since a dead letter topic may be long. Pages poll their progress.

Rule: a redrive continues when its page is closed, and its result is kept."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from share_sink.redrive.report import RedriveReport
from sharegroup.web.errors import TooManyOpen
from sharegroup.web.sessions import Session
from sharegroup.web.words import told

MOST_WAITING, MOST_KEPT = 10, 100
"""Up to MOST_WAITING jobs wait or run at once. Up to MOST_KEPT jobs are kept."""


@dataclass(frozen=True, kw_only=True)
class End:
    """How a job ended. ``report``: what it did or, after a dry run, would do; ``error``: why it ended early."""

    report: RedriveReport | None
    error: str = ""


@dataclass(kw_only=True)
class Job:
    """A redrive or its dry run. ``owner``: the session that began it; ``values``: the chosen dead letters; ``read``:
    how many dead letters it has read; ``end``: None until it has ended; ``pending``: the name to confirm a dry run by;
    ``first``: the first chosen ones, with the beginnings of their values. The job may end while a page is drawn, so a
    page must read ``end`` only once."""

    owner: Session = field(repr=False)
    values: dict[str, Any]
    execute: bool
    read: int = 0
    end: End | None = None
    pending: str = field(default="", repr=False)
    first: list[tuple[str, str]] = field(default_factory=list, repr=False)


class Jobs:
    """The redrives of the page, by random names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="web-redrive")

    def begin(self, job: Job, run: Callable[[Job], RedriveReport]) -> str:
        """Start the job. Returns its name. Raises TooManyOpen if too many jobs wait."""
        name = secrets.token_urlsafe(16)
        with self._lock:
            if sum(each.end is None for each in self._jobs.values()) >= MOST_WAITING:
                raise TooManyOpen(what="Redrives at once", most=MOST_WAITING)
            self._jobs[name] = job
            done = [each for each, kept in self._jobs.items() if kept.end is not None]
            for old in done[: max(0, len(self._jobs) - MOST_KEPT)]:
                del self._jobs[old]
        self._pool.submit(_run, job, run)
        return name

    def find(self, name: str, owner: Session) -> Job | None:
        """Returns the job of this name if this session began it."""
        with self._lock:
            found = self._jobs.get(name)
        return found if found is not None and found.owner is owner else None

    def close(self) -> None:
        """Wait for the running redrive, and start no other."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _run(job: Job, run: Callable[[Job], RedriveReport]) -> None:
    try:
        job.end = End(report=run(job))
    except Exception as error:  # noqa: BLE001 - whatever ends a redrive is told on its page
        job.end = End(report=getattr(error, "report", None), error=told(error))
