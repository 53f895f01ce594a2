"""Reads records from the brokers, in a query's tasks and for a ShareConsumer. ``native``: the compiled reader."""
