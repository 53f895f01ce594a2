"""Measurements of sharegroup against its peers, in one run on one broker: ``python -m benchmarks``."""
