"""Reads records from the brokers, in the tasks of a query and for a ShareConsumer. ``native`` has the compiled
reader."""
