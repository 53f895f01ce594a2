"""The sink: writers of streams and batches whose rows say what became of each record; dead letters; an archive.

Rule: the sink calls the coordinator through `coordinator.client` only, and imports nothing of `share_source`. An
outcome is staged when its batch is committed, and takes effect when the batch is complete (docs/trust/protocol.md,
"Outcomes of a sink").
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from share_sink.redrive.redrive import redrive  # the package of that name would take a later name's place

if TYPE_CHECKING:
    from share_sink.foreach_batch import acknowledge
    from share_sink.task_progress import progress

__all__ = ["acknowledge", "progress", "redrive"]

_MODULES = {
    "acknowledge": "share_sink.foreach_batch",
    "progress": "share_sink.task_progress",
}


def __getattr__(name: str) -> object:
    """Load the module of a name on demand: a Spark process that only reads imports this package too."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
