"""The state log: a share group's state as records of a Kafka topic.

Kafka's own record types 0 and 1 hold the state of each share partition, byte for byte as Kafka's share coordinator
writes them (KIP-932, "Share coordinator"), so that its tools can read our topic. Type 100 holds our own records, which
those tools skip. The package is pure, as the core is: bytes and values, no clock, thread, I/O or chance.
"""
