"""What Kafka's own engine does, recorded, and tests that hold ours to it."""
