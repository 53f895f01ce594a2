"""``sharegroup check``: the options of a query, the cluster and the executors, without a query."""
