"""State stores: the contract, a file of SQLite, and the state topic in Kafka."""
