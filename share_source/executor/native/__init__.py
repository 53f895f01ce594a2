"""The compiled read path: a task's records go from librdkafka's queues straight into Arrow's buffers, and a
ShareConsumer's from there into messages (docs/adr/0030).

``drain.c`` is the part that touches each record; clients, positions, gaps, losses and timeouts are the same code as
those of the Python path (docs/adr/0030). The folder is optional: without its compiled module tasks read with Python."""
