"""Questions about a group that need both its state and the brokers' answers: its lag, lost logs, gaps in a plan, and
topics that were created again. ``brokers`` has the answers that need no group."""
