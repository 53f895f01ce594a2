"""Tells the Python workers of a query on one host which plan their batch is.

Spark runs the tasks that read, and the functions that process their records, in different Python processes, and one
process serves tasks of several queries in turn (seen, docs/trust/facts.md). The local properties of all of them name
the query and the batch, but not the plan. So a task that reads a plan leaves a note in the user's runtime directory,
under the query's id, and other workers on the host find the note there. Only the workers that read have the query's
Kafka options, so they start a coordinator on demand, which passes signals on to the owner of the group. They wait on a
pipe in that directory, and other workers ask for the start by opening it.

Rule: a note holds no secret, names only the token's file, and is in a directory that nobody else can write to. A host
without signals starts no coordinator."""

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
"""Spark's local property of each job of a query. It begins with the query's name, if the query has one."""
KEPT_S = 86_400.0
"""A query's note is deleted this many seconds after its last change."""


class TaskPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that a query's tasks read, and where its coordinator is. ``configs``: with these a client finds the
    standalone coordinator, or starts one on demand; they name files and hold no secret. ``cluster_id``,
    ``state_store``: those of a coordinator on demand; empty for a standalone one."""

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
"""The note that this process wrote last, and its path."""
_offered: set[tuple[int, str]] = set()
"""The process id, and the keys of the coordinators that this process starts when tasks want them."""


def endpoint_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Returns the configs with which executors find a standalone coordinator; none if it is started on demand."""
    if not CoordinatorConfig.parse(configs).share_coordinator_endpoint:
        return {}
    return {key: configs[key] for key in (ENDPOINT, TOKEN_KEY, CA_KEY) if key in configs}


def query_name(description: str | None, query_id: str) -> str:
    """Returns the query's name from Spark's description of its job; empty if the query has no name, or if the program
    has set another description."""
    name, found, _ = (description or "").partition(f"\nid = {query_id}\n")
    return name if found else ""


def note(query_id: str, batch_id: str, plan: TaskPlan) -> None:
    """Note that the query's batch is this plan, unless this process has noted it before. Raises OSError or
    UnsafeDirectory if the note can't be written."""
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
    """Returns the plans of the query's batch that tasks on this host have read: one for each source of the query.
    Raises OSError or UnsafeDirectory if the notes can't be read."""
    found = []
    for path in sorted(_directory().glob(f"{_name(query_id)}-*.json")):
        with contextlib.suppress(FileNotFoundError, *DAMAGED):
            content = msgspec.json.decode(path.read_bytes(), type=_Note)
            if content.batch_id == batch_id:
                found.append(content.plan)
    return found


def offer_start(key: str, start: Callable[[], object]) -> None:
    """Call ``start``, in a thread of this process, whenever a task on this host wants the coordinator of this key.
    Raises OSError or UnsafeDirectory if tasks can't ask for it here."""
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
    """Ask a process of this host to start the coordinator of this key. Returns False if no process waits for that."""
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
    """Delete the notes of queries that ended long ago, and half-written ones of killed processes."""
    before_s = time.time() - KEPT_S
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime < before_s:
                path.unlink()
