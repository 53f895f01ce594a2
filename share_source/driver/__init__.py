"""The source on the driver: the checks at ``load()``, the readers that Spark asks for offsets and partitions, and the
query's lines in the log."""
