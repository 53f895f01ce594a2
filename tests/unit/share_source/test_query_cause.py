"""The cause of a query's end is found below what Spark puts around it, and a record's text is never taken for it."""
