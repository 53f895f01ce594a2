"""State in a topic of the Kafka cluster itself: ``share-group-state``.

A group's records are in one partition of it. Each process that serves a group has a transactional producer of its own
for it: the newest one fences those before, and an append is a transaction. :mod:`coordinator.state_log` knows what the
records say; the rooms here write, read, prune them, and say whose a group is.
"""
