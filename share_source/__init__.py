"""The Spark source: its options, its offsets, and reading."""
