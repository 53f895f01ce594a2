"""The Spark source: options, offsets, reading, and the ShareConsumer."""
