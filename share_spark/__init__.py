"""What source and sink share of Spark: the border at which named errors leave for Spark, the log of the Python
processes that Spark starts, and the plan of the batch that a task belongs to."""
