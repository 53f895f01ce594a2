"""Writes the dead letters that no sink wrote: schedules the groups, reads the source records, retries with backoff. The
format of a dead letter is in :mod:`coordinator.dead_letters`."""
