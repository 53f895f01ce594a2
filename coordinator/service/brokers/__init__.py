"""The coordinator's questions to the brokers, with cached answers: topics, offsets, deleted topics, gaps of logs, and
where a new partition begins."""
