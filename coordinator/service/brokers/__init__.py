"""The cluster as a coordinator sees it: topics, offsets, deleted topics, gaps of logs and where a new partition begins,
asked of the brokers and kept for a while."""
