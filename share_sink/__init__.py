"""The sink's room: a streaming writer that acknowledges what it wrote, and the dead letter queue.

The rule: it speaks with the coordinator through `coordinator.client` only, and knows nothing of `share_source`.
Still empty: the writer comes with its own issue.
"""
