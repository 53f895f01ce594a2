"""The Spark source: the data source, its options, and the columns of its rows. ``driver`` has what runs in the driver's
Python process of a query, ``executor`` what reads records in a task.

Rule: importing this package imports nothing else, since each of Spark's workers does. Programs import from
``sharegroup``.
"""
