"""Several standalone coordinators that share the groups out by Kafka's own group protocol."""
