"""The sink: writers for streams and batches whose rows carry the outcome of each record; dead letters; an archive.

Rule: the sink calls the coordinator only through `coordinator.client`, and imports nothing of `share_source`. An
outcome is staged when its batch is committed, and takes effect when the batch is complete (docs/trust/protocol.md,
"Outcomes of a sink"). Programs import from ``sharegroup``."""
