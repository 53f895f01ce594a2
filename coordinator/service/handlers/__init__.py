"""The handlers of requests, and the table that says which function answers which type of request."""
