"""The state log: a share group's state as records of a Kafka topic.

Kafka's record types 0 and 1 hold the state of each share partition, byte for byte as Kafka's share coordinator writes
them (KIP-932, "Share coordinator"), so that Kafka's tools can read the topic. Types from 100 up hold sharegroup's own
records, which those tools skip. The package is pure, as the core is: no clock, thread, I/O or randomness."""
