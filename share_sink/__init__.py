"""The sink: writers of streams and batches whose rows say what became of each record; dead letters; an archive.

Rule: the sink calls the coordinator through `coordinator.client` only, and imports nothing of `share_source`. An
outcome is staged when its batch is committed, and takes effect when the batch is complete (docs/protocol.md, "Outcomes
of a sink").
"""

from share_sink.foreach_batch import acknowledge
from share_sink.redrive.redrive import redrive
from share_sink.task_progress import progress

__all__ = ["acknowledge", "progress", "redrive"]
