"""Writes the dead letters that no sink wrote: schedules the groups, reads the source records, retries with backoff."""
