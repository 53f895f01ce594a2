"""Measurements against what sharegroup is compared with, in one run on one broker: ``python -m benchmarks``."""
