"""Recordings of Kafka's own core, and tests that compare ours with them."""
