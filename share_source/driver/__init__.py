"""The source on the driver: the checks at ``load()``, the readers of queries, and a query's lines in the log."""
