"""The sink's room: writers of streams and batches that say for each record what became of it, dead letters, an archive.

The rule: it speaks with the coordinator through `coordinator.client` only, and knows nothing of `share_source`. What a
row says is staged when its batch is committed, and takes effect when the batch is complete (docs/protocol.md, "Outcomes
of a sink").
"""

from share_sink.foreach_batch import acknowledge
from share_sink.redrive.redrive import redrive

__all__ = ["acknowledge", "redrive"]
