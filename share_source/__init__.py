"""The Spark source: the data source, its options, and the columns of its rows. ``driver`` runs in the Python process of
a query on the driver, ``executor`` reads records in tasks.

Rule: importing this package imports nothing else, since each of Spark's workers imports it. Programs import from
``sharegroup``."""
