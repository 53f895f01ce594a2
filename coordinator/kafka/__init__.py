"""Kafka's clients, as every part of sharegroup uses them: their creation, their properties and those of Java's clients,
security and token functions, the cluster's metadata, damaged batches and headers of records."""
