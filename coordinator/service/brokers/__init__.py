"""The requests to the brokers: topics, offsets, deleted topics, and which offsets a log holds."""
