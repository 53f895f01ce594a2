"""State in a topic of the Kafka cluster itself: ``share-group-state``.

A group's records lie in one partition of the topic. Each process that serves a group has a transactional producer for
it, which fences the producers before; an append is a transaction. :mod:`coordinator.state_log` has the records' format.
The modules here write, read and prune records, and decide which process owns a group."""
