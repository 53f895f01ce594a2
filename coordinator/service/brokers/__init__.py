"""What the coordinator asks the brokers: topics, offsets, which offsets the log holds."""
