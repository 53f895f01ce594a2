"""Passes on to the Python workers of a query on one host which plan its batch is.

Spark runs the tasks that read and the functions that work on their records in different Python processes, and gives one
process to tasks of several queries in turn (seen, docs/trust/facts.md). The local properties of all of them name the
query and the batch, but not the plan. So a task that reads a plan leaves a note in the user's runtime directory, by the
query's id, and other workers on the host find it there. A coordinator on demand, which passes signals on to the owner
of the group, is started by those who have the query's Kafka options: the workers that read. Others open a pipe in that
directory, on which these wait.

Rule: a note holds no secret, names the token's file only, and lies in a directory that nobody else can write to. A host
without signals starts no coordinator.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from coordinator.client.client import ENDPOINT
from coordinator.client.endpoints import CA_KEY
from coordinator.client.on_demand import runtime_dir
from coordinator.config.resolved import CoordinatorConfig
from coordinator.config.secret_files import TOKEN_KEY
from coordinator.protocol.wire import DAMAGED

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Spark's local properties of each task of a query."""
DESCRIPTION = "spark.job.description"
"""Spark's local property of each job of a query; it begins with the query's name, if it has one."""
KEPT_S = 86_400.0
"""The note of a query is deleted this many seconds after its last change."""


class TaskPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that a query's tasks read, and where its coordinator is. ``configs``: those by which a client finds the
    standalone coordinator, or starts one on demand; they name files and hold no secret. ``cluster_id`` and
    ``state_store``: those of a coordinator on demand; empty: it is a standalone one."""

    group_id: str
    member_id: str
    member_epoch: int
    plan_id: str
    configs: dict[str, str]
    cluster_id: str = ""
    state_store: str = ""


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    batch_id: str
    plan: TaskPlan


_last: tuple[Path, _Note] | None = None
"""The note that this process wrote last, and where."""
_offered: set[tuple[int, str]] = set()
"""The process, and the keys of the coordinators that it starts when tasks want them."""


def endpoint_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """The coordinator's configs by which executors find it; none if it is started on demand."""
    if not CoordinatorConfig.parse(configs).share_coordinator_endpoint:
        return {}
    return {key: configs[key] for key in (ENDPOINT, TOKEN_KEY, CA_KEY) if key in configs}


def query_name(description: str | None, query_id: str) -> str:
    """The query's name, from Spark's description of its job; empty: it has none, or the program set another
    description."""
    name, found, _ = (description or "").partition(f"\nid = {query_id}\n")
    return name if found else ""


def note(query_id: str, batch_id: str, plan: TaskPlan) -> None:
    """Write a note that the query's batch is this plan, unless this process has done so.

    Raises:
        OSError, UnsafeDirectory: the note can't be written.
    """
    global _last
    directory = _directory()
    path = directory / f"{_name(query_id)}-{_name(plan.member_id)}.json"
    content = _Note(batch_id=batch_id, plan=plan)
    if _last == (path, content) and path.exists():
        return
    _delete_old(directory)
    number, temporary = tempfile.mkstemp(dir=directory)
    with os.fdopen(number, "wb") as file:
        file.write(msgspec.json.encode(content))
    os.replace(temporary, path)
    _last = (path, content)


def noted(query_id: str, batch_id: str) -> list[TaskPlan]:
    """The plans of the query's batch that tasks on this host have read: one for each source of the query.

    Raises:
        OSError, UnsafeDirectory: the notes can't be read.
    """
    found = []
    for path in sorted(_directory().glob(f"{_name(query_id)}-*.json")):
        with contextlib.suppress(FileNotFoundError, *DAMAGED):
            content = msgspec.json.decode(path.read_bytes(), type=_Note)
            if content.batch_id == batch_id:
                found.append(content.plan)
    return found


def offer_start(key: str, start: Callable[[], object]) -> None:
    """Call ``start``, in a thread of this process, each time a task on this host wants the coordinator of this key.

    Raises:
        OSError, UnsafeDirectory: tasks can't say so here.
    """
    if (os.getpid(), key) in _offered:
        return
    path = _pipe(key)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)

    def wait() -> None:
        with contextlib.suppress(OSError):  # the directory is gone
            while True:
                with path.open("rb"):  # returns when a task opens it; open while this starts, so that others wait
                    start()
        _offered.discard((os.getpid(), key))

    _offered.add((os.getpid(), key))
    threading.Thread(target=wait, name="share-task-starter", daemon=True).start()


def want_start(key: str) -> bool:
    """Ask a process of this host to start the coordinator of this key. Returns whether one can."""
    try:
        os.close(os.open(_pipe(key), os.O_WRONLY | os.O_NONBLOCK))
    except OSError:  # nobody waits there
        return False
    return True


def _pipe(key: str) -> Path:
    return _directory() / f"start-{key}"


def _directory() -> Path:
    path = runtime_dir() / "tasks"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _delete_old(directory: Path) -> None:
    """Delete the notes of queries that ended long ago, and the half-written ones of killed processes."""
    before_s = time.time() - KEPT_S
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime < before_s:
                path.unlink()
