"""The Spark source: its options, its offsets, and reading; and the ShareConsumer, for programs without Spark.

Rule: importing this package imports nothing else, since each of Spark's workers does. Programs import from
``sharegroup``.
"""
