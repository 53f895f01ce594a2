"""State in a topic of the Kafka cluster itself: ``share-group-state``.

A group's records lie in one partition of the topic. Each process that serves a group has its own transactional producer
for it: the newest one fences those before, and an append is a transaction. :mod:`coordinator.state_log` has the
records' format; the modules here write, read and prune them, and decide which process owns a group.
"""
