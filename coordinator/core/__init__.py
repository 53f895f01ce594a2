"""The share engine, pure: commands and the time go in, log records and a reply come out.

It has no clock, thread, socket, logger, randomness or Kafka. Memory changes only when log records are replayed.
"""
