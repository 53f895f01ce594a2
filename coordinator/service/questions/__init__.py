"""The questions about a group that take both the group's state and the brokers' answer: its lag, the logs that it has
lost, gaps in a plan, and topics that were created again. ``brokers`` has the answers that need no group."""
