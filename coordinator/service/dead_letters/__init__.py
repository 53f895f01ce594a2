"""Writes the dead letters that no sink wrote: schedules groups, reads originals, retries with backoff."""
