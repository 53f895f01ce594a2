"""What Kafka's own core does, recorded, and tests that hold ours to it."""
