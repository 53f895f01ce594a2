"""The share engine, pure: commands and the time come in, log records and a reply come out.

No clock, thread, socket, logger, chance or Kafka. Memory changes only when log records are replayed.
"""
